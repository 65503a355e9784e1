package isobar

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

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
