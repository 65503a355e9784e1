package isobar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
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

// String gives the protocol's name.
func (p CheckProtocol) String() string {
	if int(p) < len(protocolNames) {
		return protocolNames[p]
	}
	return fmt.Sprintf("protocol(%d)", uint8(p))
}

// MarshalText gives the name, for JSON.
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

// HealthCheck is one way to probe the endpoints of a service. All defaults are
// filled in by whoever reads configuration.
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
