package checker

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Bounds of the headers that a check adds.
const (
	mostHeaders     = 64
	mostHeaderBytes = 16 << 10
)

// setHeaders works out the request's header.
func (c *httpCheck) setHeaders(m *corev3.HealthCheck_HttpHealthCheck) error {
	c.header = http.Header{"User-Agent": {"Isobar/HC"}}
	added, err := addedHeaders(m.GetRequestHeadersToAdd())
	if err != nil {
		return fmt.Errorf("http_health_check.request_headers_to_add: %w", err)
	}
	for _, h := range added {
		name := http.CanonicalHeaderKey(h.name)
		switch {
		case name == "Host":
			c.host = h.value
		case name == "User-Agent" || h.replace:
			c.header.Set(name, h.value)
		default:
			c.header.Add(name, h.value)
		}
	}
	if len(m.GetRequestHeadersToRemove()) > mostHeaders {
		return fmt.Errorf("http_health_check.request_headers_to_remove: want at most %d", mostHeaders)
	}
	for _, name := range m.GetRequestHeadersToRemove() {
		name = http.CanonicalHeaderKey(name)
		c.header.Del(name)
		if name == "User-Agent" {
			c.header[name] = []string{""} // else the library adds its own
		}
	}
	return nil
}

type addedHeader struct {
	name, value string
	replace     bool
}

// addedHeaders validates headers or metadata that a check adds.
func addedHeaders(options []*corev3.HeaderValueOption) ([]addedHeader, error) {
	if len(options) > mostHeaders {
		return nil, fmt.Errorf("%d headers: want at most %d", len(options), mostHeaders)
	}
	var out []addedHeader
	sum := 0
	for _, o := range options {
		h := addedHeader{name: o.GetHeader().GetKey(), value: o.GetHeader().GetValue()}
		if h.value == "" {
			h.value = string(o.GetHeader().GetRawValue())
		}
		// Values are format strings. No command is known here, so a single
		// percent sign stands for itself.
		h.value = strings.ReplaceAll(h.value, "%%", "%")
		if !validHeaderName(h.name) {
			return nil, fmt.Errorf("%q is not the name of a header", short(h.name))
		}
		if strings.ContainsFunc(h.value, func(r rune) bool { return (r < ' ' && r != '\t') || r == 0x7f }) {
			return nil, fmt.Errorf("header %s: control characters in the value", short(h.name))
		}
		if sum += len(h.name) + len(h.value); sum > mostHeaderBytes {
			return nil, errors.New("more than 16 KiB of headers")
		}
		h.replace = o.GetAppendAction() == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		if a := o.GetAppend(); a != nil && !a.GetValue() { //nolint:staticcheck // servers still send it
			h.replace = true
		}
		out = append(out, h)
	}
	return out, nil
}

func validHeaderName(name string) bool {
	if name == "" || len(name) > 256 {
		return false
	}
	for _, b := range []byte(name) {
		letter := 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(b)) {
			return false
		}
	}
	return true
}
