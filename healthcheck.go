package isobar

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// CheckProtocol is what a health check speaks.
type CheckProtocol uint8

// The protocols of health checks.
const (
	CheckHTTP CheckProtocol = iota
	CheckTCP
	CheckGRPC
	CheckRedis
)

// ErrBadProtocol is wrapped by the errors of [ParseCheckProtocol].
var ErrBadProtocol = errors.New("bad health check protocol")

var protocolNames = [...]string{"http", "tcp", "grpc", "redis"}

// ParseCheckProtocol reads "http", "tcp", "grpc" or "redis".
func ParseCheckProtocol(s string) (CheckProtocol, error) {
	if i := slices.Index(protocolNames[:], s); i >= 0 {
		return CheckProtocol(i), nil //nolint:gosec // i < 4
	}
	return CheckHTTP, fmt.Errorf("%w %q: want one of %s", ErrBadProtocol, s, strings.Join(protocolNames[:], ", "))
}

// String returns the protocol's name.
func (p CheckProtocol) String() string {
	if int(p) < len(protocolNames) {
		return protocolNames[p]
	}
	return fmt.Sprintf("protocol(%d)", uint8(p))
}

// MarshalText returns the name, for JSON.
func (p CheckProtocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (p *CheckProtocol) UnmarshalText(b []byte) error {
	v, err := ParseCheckProtocol(string(b))
	if err != nil {
		return err
	}
	*p = v
	return nil
}

// Defaults of a health check's fields.
const (
	DefaultCheckInterval      = 5 * time.Second
	DefaultCheckTimeout       = 1 * time.Second
	DefaultUnhealthyThreshold = 3
	DefaultHealthyThreshold   = 2
	DefaultCheckerCount       = 3
	DefaultCheckerDomains     = 2
)

// HealthCheck is one way to probe the endpoints of a service. The code that reads configuration
// fills in all defaults.
type HealthCheck struct {
	Protocol CheckProtocol `json:"protocol"`
	Interval time.Duration `json:"interval"`         // between probes of one checker
	Timeout  time.Duration `json:"timeout"`          // of one probe, below or at the interval
	Jitter   time.Duration `json:"jitter,omitempty"` // at most added to each interval, at random
	// UnhealthyThreshold is how many probes in a row without an answer flip to
	// unhealthy; an answer that says no flips at once, as in Envoy.
	UnhealthyThreshold uint32 `json:"unhealthy_threshold"`
	HealthyThreshold   uint32 `json:"healthy_threshold"` // successes in a row that flip to healthy
	TLS                bool   `json:"tls,omitempty"`     // probe over TLS, without verifying the certificate's name

	HTTP  *HTTPCheck  `json:"http,omitempty"`
	TCP   *TCPCheck   `json:"tcp,omitempty"`
	GRPC  *GRPCCheck  `json:"grpc,omitempty"`
	Redis *RedisCheck `json:"redis,omitempty"`
}

// HTTPCheck is a request whose answer's status decides.
type HTTPCheck struct {
	Path     string        `json:"path"`               // begins with /
	Host     string        `json:"host,omitempty"`     // the Host header; empty = the service's name
	Method   string        `json:"method,omitempty"`   // empty = GET
	Expected []StatusRange `json:"expected,omitempty"` // empty = 200 only
	Headers  []Header      `json:"headers,omitempty"`  // added to the request
	HTTP2    bool          `json:"http2,omitempty"`
}

// StatusRange is a half-open range of HTTP statuses, 100 to 600.
type StatusRange struct {
	Start int `json:"start"`
	End   int `json:"end"` // not in the range
}

// Header is a request header.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TCPCheck connects; with Send it writes that and waits for all of Receive, in
// order, anywhere in the answer.
type TCPCheck struct {
	Send    []byte   `json:"send,omitempty"`
	Receive [][]byte `json:"receive,omitempty"`
}

// GRPCCheck asks grpc.health.v1.Health/Check.
type GRPCCheck struct {
	Service   string `json:"service,omitempty"`   // empty = the whole server
	Authority string `json:"authority,omitempty"` // empty = the service's name
}

// RedisCheck sends PING, or EXISTS when a key is given: a key that exists is
// unhealthy.
type RedisCheck struct {
	Key string `json:"key,omitempty"`
}

// Checkers says how many designated checkers probe each endpoint.
type Checkers struct {
	Count   int `json:"count"`   // K; 0 = DefaultCheckerCount
	Domains int `json:"domains"` // failure domains (zones) that they are spread over; 0 = DefaultCheckerDomains
}

// EndpointCheck changes how one endpoint is probed.
type EndpointCheck struct {
	Address  string `json:"address,omitempty"`  // IP to probe in place of the endpoint's
	Port     uint16 `json:"port,omitempty"`     // port to probe in place of the endpoint's; 0 = the same
	Hostname string `json:"hostname,omitempty"` // Host or authority, in place of the check's
	Disabled bool   `json:"disabled,omitempty"` // not probed: counts as its configured health
}

// In JSON a health check looks as it does in configuration files: durations are
// text, statuses are numbers and ranges, payloads are text or "hex:", and the
// protocol is the name of the one field that is there.

// healthCheckJSON is a [HealthCheck] in JSON.
type healthCheckJSON struct {
	HTTP  *HTTPCheck  `json:"http,omitempty"`
	TCP   *TCPCheck   `json:"tcp,omitempty"`
	GRPC  *GRPCCheck  `json:"grpc,omitempty"`
	Redis *RedisCheck `json:"redis,omitempty"`

	Interval           durationJSON `json:"interval"`
	Timeout            durationJSON `json:"timeout"`
	Jitter             durationJSON `json:"jitter,omitempty"`
	UnhealthyThreshold uint32       `json:"unhealthy_threshold"`
	HealthyThreshold   uint32       `json:"healthy_threshold"`
	TLS                bool         `json:"tls,omitempty"`
}

// durationJSON is a duration as text, such as "5s".
type durationJSON time.Duration

// MarshalText writes the duration.
func (d durationJSON) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads it.
func (d *durationJSON) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = durationJSON(v)
	return err
}

// MarshalJSON writes the check as configuration has it.
func (c HealthCheck) MarshalJSON() ([]byte, error) {
	return json.Marshal(healthCheckJSON{
		HTTP: c.HTTP, TCP: c.TCP, GRPC: c.GRPC, Redis: c.Redis,
		Interval: durationJSON(c.Interval), Timeout: durationJSON(c.Timeout), Jitter: durationJSON(c.Jitter),
		UnhealthyThreshold: c.UnhealthyThreshold, HealthyThreshold: c.HealthyThreshold, TLS: c.TLS,
	})
}

// UnmarshalJSON is the inverse of MarshalJSON. It fills in no defaults.
func (c *HealthCheck) UnmarshalJSON(b []byte) error {
	var j healthCheckJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	out := HealthCheck{
		HTTP: j.HTTP, TCP: j.TCP, GRPC: j.GRPC, Redis: j.Redis,
		Interval: time.Duration(j.Interval), Timeout: time.Duration(j.Timeout), Jitter: time.Duration(j.Jitter),
		UnhealthyThreshold: j.UnhealthyThreshold, HealthyThreshold: j.HealthyThreshold, TLS: j.TLS,
	}
	protocols := 0
	for p, given := range []bool{j.HTTP != nil, j.TCP != nil, j.GRPC != nil, j.Redis != nil} {
		if given {
			out.Protocol = CheckProtocol(p)
			protocols++
		}
	}
	if protocols != 1 {
		return fmt.Errorf("%w: %d protocols in one health check, want one of %s", ErrBadProtocol, protocols, strings.Join(protocolNames[:], ", "))
	}
	*c = out
	return nil
}

// MarshalJSON writes one status as a number, several as text such as "200-299".
func (r StatusRange) MarshalJSON() ([]byte, error) {
	if r.End == r.Start+1 {
		return json.Marshal(r.Start)
	}
	return json.Marshal(fmt.Sprintf("%d-%d", r.Start, r.End-1))
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (r *StatusRange) UnmarshalJSON(b []byte) error {
	var one int
	if err := json.Unmarshal(b, &one); err == nil {
		*r = StatusRange{Start: one, End: one + 1}
		return nil
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	first, last, _ := strings.Cut(text, "-")
	start, err := strconv.Atoi(first)
	if err != nil {
		return fmt.Errorf("statuses %q: want a range such as 200-299", text)
	}
	end, err := strconv.Atoi(last)
	if err != nil {
		return fmt.Errorf("statuses %q: want a range such as 200-299", text)
	}
	*r = StatusRange{Start: start, End: end + 1}
	return nil
}

// payload is what is sent or awaited, in JSON.
type payload []byte

// hexPrefix marks bytes that are no plain text.
const hexPrefix = "hex:"

// MarshalText writes plain text as it is, other bytes in hexadecimal.
func (p payload) MarshalText() ([]byte, error) {
	odd := func(r rune) bool { return !unicode.IsPrint(r) && !strings.ContainsRune("\r\n\t", r) }
	if utf8.Valid(p) && !strings.ContainsFunc(string(p), odd) && !strings.HasPrefix(string(p), hexPrefix) {
		return p, nil
	}
	return []byte(hexPrefix + hex.EncodeToString(p)), nil
}

// UnmarshalText is the inverse of MarshalText.
func (p *payload) UnmarshalText(b []byte) error {
	digits, isHex := strings.CutPrefix(string(b), hexPrefix)
	if !isHex {
		*p = append(payload{}, b...)
		return nil
	}
	out, err := hex.DecodeString(digits)
	*p = out
	return err
}

// tcpCheckJSON is a [TCPCheck] in JSON.
type tcpCheckJSON struct {
	Send    payload   `json:"send,omitempty"`
	Receive []payload `json:"receive,omitempty"`
}

// MarshalJSON writes the payloads as configuration has them.
func (c TCPCheck) MarshalJSON() ([]byte, error) {
	j := tcpCheckJSON{Send: c.Send}
	for _, b := range c.Receive {
		j.Receive = append(j.Receive, b)
	}
	return json.Marshal(j)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (c *TCPCheck) UnmarshalJSON(b []byte) error {
	var j tcpCheckJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*c = TCPCheck{Send: j.Send}
	for _, p := range j.Receive {
		c.Receive = append(c.Receive, p)
	}
	return nil
}
