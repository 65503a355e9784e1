package config

import (
	"encoding/hex"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// Bounds of what a probe sends and waits for.
const (
	maxProbeHeaders = 64
	maxProbeText    = 4096 // bytes of a path, header or payload
	maxProbeName    = 253  // bytes of a host or authority
	maxProbeParts   = 16   // ranges of statuses, pieces of an answer

	maxProbeHeaderBytes = 16 << 10 // of all headers of a probe, as `isobar checker` takes
)

// checkMethods are those that Envoy takes; CONNECT it refuses.
var checkMethods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"}

func readHTTPCheck(v strict.Value) *isobar.HTTPCheck {
	c := &isobar.HTTPCheck{}
	v.Object([]strict.Field{
		{Name: "path", Required: true, Read: func(v strict.Value) { readPath(v, &c.Path) }},
		hostField("host", &c.Host),
		{Name: "method", Read: func(v strict.Value) {
			if s, ok := v.Enum(checkMethods...); ok {
				c.Method = s
			}
		}},
		{Name: "expected", Read: func(v strict.Value) { c.Expected = readStatuses(v) }},
		{Name: "headers", Read: func(v strict.Value) { c.Headers = readHeaders(v) }},
		boolField("http2", &c.HTTP2),
	})
	return c
}

// readPath reads the path of a request, with its query.
func readPath(v strict.Value, into *string) {
	s, ok := v.Text()
	switch {
	case !ok:
	case !strings.HasPrefix(s, "/"):
		v.Errorf("begin it with /, for example /healthz", "%q is not a path", s)
	case len(s) > maxProbeText || !printable(s) || !ascii(s) || strings.Contains(s, "#"):
		v.Errorf("write other characters as %XX", "%q can't be in a request", s)
	default:
		*into = s
	}
}

func ascii(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r > 0x7e }) < 0 }

// hostField reads a host name or authority, with or without a port.
func hostField(name string, into *string) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		s, ok := v.Text()
		switch {
		case !ok:
		case len(s) > maxProbeName || !printable(s) || !ascii(s) || strings.ContainsAny(s, "/\\?#@\"<>"):
			v.Errorf("write a host name, with or without port", "%q is not a host", s)
		default:
			*into = s
		}
	}}
}

// statusText is one status or a range of them, both ends included.
var statusText = regexp.MustCompile(`^([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?$`)

func readStatuses(v strict.Value) []isobar.StatusRange {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("leave it out for 200 only", "is empty")
	}
	if len(items) > maxProbeParts {
		v.Errorf(`write neighbours as a range, for example "200-299"`, "%d entries, more than %d", len(items), maxProbeParts)
		return nil
	}
	var out []isobar.StatusRange
	for _, item := range items {
		if !item.IsText() {
			if n, ok := item.Int(strict.Range{Min: 100, Max: 599}); ok {
				out = append(out, isobar.StatusRange{Start: int(n), End: int(n) + 1})
			}
			continue
		}
		if r, ok := readStatusRange(item); ok {
			out = append(out, r)
		}
	}
	return out
}

func readStatusRange(v strict.Value) (isobar.StatusRange, bool) {
	s, ok := v.Text()
	if !ok {
		return isobar.StatusRange{}, false
	}
	m := statusText.FindStringSubmatch(s)
	if m == nil {
		v.Errorf(`write a status from 100 to 599, or a range such as "200-299"`, "%q is not a range of statuses", s)
		return isobar.StatusRange{}, false
	}
	first, _ := strconv.Atoi(m[1]) // three digits
	last := first
	if m[2] != "" {
		last, _ = strconv.Atoi(m[2])
	}
	if last < first {
		v.Errorf("write the smaller status first", "%q is an empty range", s)
		return isobar.StatusRange{}, false
	}
	return isobar.StatusRange{Start: first, End: last + 1}, true
}

func readHeaders(v strict.Value) []isobar.Header {
	items, _ := v.List()
	if len(items) > maxProbeHeaders {
		v.Errorf("", "%d headers, more than %d", len(items), maxProbeHeaders)
		return nil
	}
	out := make([]isobar.Header, 0, len(items))
	size := 0
	for _, item := range items {
		var h isobar.Header
		item.Object([]strict.Field{
			{Name: "name", Required: true, Read: func(v strict.Value) { readHeaderName(v, &h.Name) }},
			{Name: "value", Required: true, Read: func(v strict.Value) { readHeaderValue(v, &h.Value) }},
		})
		out = append(out, h)
		size += len(h.Name) + len(h.Value)
	}
	if size > maxProbeHeaderBytes {
		v.Errorf("make them shorter: few servers take so much", "%d bytes of headers, more than %d", size, maxProbeHeaderBytes)
	}
	return out
}

// connectionHeaders belong to the connection, which a checker manages; most
// servers refuse a probe that adds one of them.
var connectionHeaders = []string{
	"connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

func readHeaderName(v strict.Value, into *string) {
	s, ok := v.Text()
	switch {
	case !ok:
	case strings.EqualFold(s, "host"):
		v.Errorf("set http.host in place of it", "host is no header to add")
	case slices.Contains(connectionHeaders, strings.ToLower(s)):
		v.Errorf("remove it", "checkers set %s themselves", s)
	case len(s) > maxProbeName || !httpguts.ValidHeaderFieldName(s):
		v.Errorf("use letters, digits and -", "%q is not the name of a header", s)
	default:
		*into = s
	}
}

// rewritten are commands of old format strings. Envoy replaces them in the
// values of headers even where their percent signs are escaped.
var rewritten = []string{"%PER_REQUEST_STATE(", "%DYNAMIC_METADATA([", "%UPSTREAM_METADATA(["}

func readHeaderValue(v strict.Value, into *string) {
	s, ok := v.Text()
	if !ok {
		return
	}
	if len(s) > maxProbeText || !httpguts.ValidHeaderFieldValue(s) {
		v.Errorf("write it on one line, without control characters", "%q can't be the value of a header", s)
		return
	}
	for _, command := range rewritten {
		if strings.Contains(s, command) {
			v.Errorf("send another value", "Envoy would replace %s...)%% in it; values are sent as they stand", command)
			return
		}
	}
	*into = s
}

func readTCPCheck(v strict.Value) *isobar.TCPCheck {
	c := &isobar.TCPCheck{}
	v.Object([]strict.Field{
		{Name: "send", Read: func(v strict.Value) { c.Send, _ = readPayload(v) }},
		{Name: "receive", Read: func(v strict.Value) { c.Receive = readPayloads(v) }},
	})
	return c
}

// readPayloads reads one payload or a list of them.
func readPayloads(v strict.Value) [][]byte {
	items := []strict.Value{v}
	if !v.IsText() {
		items, _ = v.List()
	}
	if len(items) > maxProbeParts {
		v.Errorf("", "%d pieces, more than %d", len(items), maxProbeParts)
		return nil
	}
	var out [][]byte
	for _, item := range items {
		if b, ok := readPayload(item); ok {
			out = append(out, b)
		}
	}
	return out
}

// readPayload reads text as it is, or "hex:" and bytes in hexadecimal.
func readPayload(v strict.Value) ([]byte, bool) {
	s, ok := v.Text()
	if !ok {
		return nil, false
	}
	b := []byte(s)
	if digits, isHex := strings.CutPrefix(s, "hex:"); isHex {
		var err error
		if b, err = hex.DecodeString(digits); err != nil || len(b) == 0 {
			v.Errorf("write two hexadecimal digits for each byte, for example hex:00ff", "%q holds no bytes in hexadecimal", s)
			return nil, false
		}
	}
	if len(b) > maxProbeText {
		v.Errorf("", "%d bytes, more than %d", len(b), maxProbeText)
		return nil, false
	}
	return b, true
}

func readGRPCCheck(v strict.Value) *isobar.GRPCCheck {
	c := &isobar.GRPCCheck{}
	v.Object([]strict.Field{
		probeText("service", &c.Service),
		hostField("authority", &c.Authority),
	})
	return c
}

func readRedisCheck(v strict.Value) *isobar.RedisCheck {
	c := &isobar.RedisCheck{}
	v.Object([]strict.Field{probeText("key", &c.Key)})
	return c
}

func probeText(name string, into *string) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		s, ok := v.Text()
		switch {
		case !ok:
		case len(s) > maxProbeText || !printable(s):
			v.Errorf("write it without blanks and control characters", "%q can't be sent", s)
		default:
			*into = s
		}
	}}
}

// readEndpointCheck reads how the probes of one endpoint differ.
func readEndpointCheck(v strict.Value) *isobar.EndpointCheck {
	c := &isobar.EndpointCheck{}
	v.Object([]strict.Field{
		{Name: "address", Read: func(v strict.Value) { readIP(v, &c.Address) }},
		{Name: "port", Read: func(v strict.Value) {
			if n, ok := v.Int(strict.Range{Min: 1, Max: 65535, ZeroHint: "leave it out to probe the endpoint's port"}); ok {
				c.Port = uint16(n) //nolint:gosec // within the range
			}
		}},
		hostField("hostname", &c.Hostname),
		boolField("disabled", &c.Disabled),
	})
	return c
}

// readIP reads an IP address without port.
func readIP(v strict.Value, into *string) {
	s, ok := v.Text()
	if !ok {
		return
	}
	ip, err := netip.ParseAddr(s)
	if ap, isPort := netip.ParseAddrPort(s); isPort == nil {
		v.Errorf("write "+ap.Addr().String()+" here, and port: "+strconv.Itoa(int(ap.Port())), "%q has a port", s)
		return
	}
	ip = ip.Unmap()
	if err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
		v.Errorf("write the IP address to probe; names are not resolved", "%q is not an address to probe", s)
		return
	}
	*into = ip.String()
}
