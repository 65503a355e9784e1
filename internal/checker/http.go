package checker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// httpCheck is what all HTTP probes of a check share.
type httpCheck struct {
	transport *http.Transport // makes connections; it keeps none
	scheme    string
	host      string
	method    string
	url       *url.URL // without scheme and host
	header    http.Header
	payload   payload
	look      int // bytes of the body that are looked at; 0 = all
	expected  []statusRange
	retriable []statusRange
	service   func(string) bool // wants the name in the answer's header; nil = any
	reuse     bool
}

// serviceHeader is where Envoy's health check filter names its cluster.
const serviceHeader = "X-Envoy-Upstream-Healthchecked-Cluster"

// targetKey hands the target through the transport to its dialer.
type targetKey struct{}

func newHTTP(m *corev3.HealthCheck_HttpHealthCheck, l link) (func(Target) (Prober, error), error) {
	c := &httpCheck{scheme: "http", host: m.GetHost(), reuse: l.reuse, look: 1024}
	if l.tls != nil {
		c.scheme = "https"
	}
	var err error
	if c.url, err = newPath(m.GetPath()); err != nil {
		return nil, err
	}
	if c.method, err = newMethod(m.GetMethod()); err != nil {
		return nil, err
	}
	if err := c.setHeaders(m); err != nil {
		return nil, err
	}
	if c.payload, err = newPayload(m.GetSend(), m.GetReceive()); err != nil {
		return nil, fmt.Errorf("http_health_check.%w", err)
	}
	if len(c.payload.send) > 0 && !slices.Contains([]string{"POST", "PUT", "PATCH", "OPTIONS"}, c.method) {
		return nil, fmt.Errorf("http_health_check.send: method %s has no body; want POST, PUT, PATCH or OPTIONS", c.method)
	}
	if size := m.GetResponseBufferSize(); size != nil {
		c.look = int(min(size.GetValue(), mostResponse))
	}
	if c.expected, err = newRanges("expected_statuses", m.GetExpectedStatuses()); err != nil {
		return nil, err
	}
	if len(c.expected) == 0 {
		c.expected = []statusRange{{http.StatusOK, http.StatusOK + 1}}
	}
	if c.retriable, err = newRanges("retriable_statuses", m.GetRetriableStatuses()); err != nil {
		return nil, err
	}
	if m.GetServiceNameMatcher() != nil {
		if c.service, err = newMatcher(m.GetServiceNameMatcher()); err != nil {
			return nil, fmt.Errorf("http_health_check.service_name_matcher: %w", err)
		}
	}
	if c.transport, err = newTransport(m, l); err != nil {
		return nil, err
	}
	return c.prober, nil
}

// newTransport makes connections in the check's protocol, with small buffers:
// there is one connection for each endpoint.
func newTransport(m *corev3.HealthCheck_HttpHealthCheck, l link) (*http.Transport, error) {
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if to, ok := ctx.Value(targetKey{}).(*Target); ok {
				network, address = to.Network, to.Address
			}
			return l.dial(ctx, network, address)
		},
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize:         2 << 10,
		WriteBufferSize:        1 << 10,
		Protocols:              new(http.Protocols),
	}
	if l.tls != nil {
		t.TLSClientConfig = l.tls.config.Clone()
		// The protocol decides what is offered by ALPN.
		t.TLSClientConfig.NextProtos = nil
	}
	switch {
	case m.GetUseAlpnProtocol() && l.tls == nil:
		return nil, errors.New("http_health_check.use_alpn_protocol: needs TLS")
	case m.GetUseAlpnProtocol():
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(true)
	case m.GetCodecClientType() == typev3.CodecClientType_HTTP1:
		t.Protocols.SetHTTP1(true)
	case m.GetCodecClientType() == typev3.CodecClientType_HTTP2 && l.tls != nil:
		t.Protocols.SetHTTP2(true)
	case m.GetCodecClientType() == typev3.CodecClientType_HTTP2:
		t.Protocols.SetUnencryptedHTTP2(true)
	default:
		return nil, errors.New("http_health_check.codec_client_type: want HTTP1 or HTTP2")
	}
	return t, nil
}

func newPath(path string) (*url.URL, error) {
	if len(path) > 8<<10 || path == "" || path[0] != '/' {
		return nil, fmt.Errorf("http_health_check.path %q: want a path that begins with /, up to 8 KiB", short(path))
	}
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil, fmt.Errorf("http_health_check.path %q: not a path", short(path))
	}
	return &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery}, nil
}

func newMethod(m corev3.RequestMethod) (string, error) {
	switch m {
	case corev3.RequestMethod_METHOD_UNSPECIFIED:
		return http.MethodGet, nil
	case corev3.RequestMethod_CONNECT:
		return "", errors.New("http_health_check.method: CONNECT is no health check")
	default:
		name, ok := corev3.RequestMethod_name[int32(m)]
		if !ok {
			return "", fmt.Errorf("http_health_check.method %d: unknown", m)
		}
		return name, nil
	}
}

// statusRange is half open.
type statusRange struct{ start, end int }

func newRanges(field string, ranges []*typev3.Int64Range) ([]statusRange, error) {
	if len(ranges) > 600 {
		return nil, fmt.Errorf("http_health_check.%s: %d ranges: want at most 600", field, len(ranges))
	}
	out := make([]statusRange, 0, len(ranges))
	for _, r := range ranges {
		if r.GetStart() < 100 || r.GetEnd() > 600 || r.GetStart() >= r.GetEnd() {
			return nil, fmt.Errorf("http_health_check.%s [%d, %d): want a range within [100, 600)", field, r.GetStart(), r.GetEnd())
		}
		out = append(out, statusRange{int(r.GetStart()), int(r.GetEnd())})
	}
	return out, nil
}

func within(status int, ranges []statusRange) bool {
	return slices.ContainsFunc(ranges, func(r statusRange) bool { return r.start <= status && status < r.end })
}

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

// httpProber probes one endpoint over HTTP, on one connection that it owns.
type httpProber struct {
	check   *httpCheck
	target  Target
	request *http.Request // copied for each probe
	conn    *http.ClientConn
}

func (c *httpCheck) prober(t Target) (Prober, error) {
	u := *c.url
	u.Scheme, u.Host = c.scheme, t.Address
	if t.Network == "unix" {
		u.Host = "localhost"
	}
	return &httpProber{check: c, target: t, request: &http.Request{
		Method: c.method, URL: &u, Host: t.authority(c.host), Header: c.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}}, nil
}

// Probe sends the request and reads the whole answer.
func (p *httpProber) Probe(ctx context.Context) (Outcome, error) {
	reused := p.conn != nil && p.conn.Err() == nil
	resp, err := p.roundTrip(ctx) //nolint:bodyclose // judge closes it
	if err != nil && reused && !timedOut(ctx, err) {
		// The server may have closed the connection while it was idle, which
		// says nothing about its health.
		p.Close()
		resp, err = p.roundTrip(ctx) //nolint:bodyclose // judge closes it
	}
	if err != nil {
		p.Close()
		return lost(ctx, err)
	}
	outcome, err := p.judge(ctx, resp)
	if !p.check.reuse || outcome.lostConnection() || resp.Close {
		p.Close()
	}
	return outcome, err
}

func (p *httpProber) roundTrip(ctx context.Context) (*http.Response, error) {
	if p.conn != nil && p.conn.Err() != nil {
		p.Close()
	}
	if p.conn == nil {
		conn, err := p.check.transport.NewClientConn(context.WithValue(ctx, targetKey{}, &p.target), p.check.scheme, hostPort(p.request.URL))
		if err != nil {
			return nil, err
		}
		p.conn = conn
	}
	req := p.request.WithContext(ctx)
	if body := p.check.payload.send; len(body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return p.conn.RoundTrip(req)
}

// hostPort is what the connection is named after; a pipe's has no port.
func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return u.Host + ":80"
	}
	return u.Host
}

// judge reads the answer and decides by status, body and service name.
func (p *httpProber) judge(ctx context.Context, resp *http.Response) (Outcome, error) {
	defer resp.Body.Close()
	c := p.check
	var body []byte
	if resp.StatusCode == http.StatusSwitchingProtocols { // what follows is no answer, and may never end
		p.Close()
	} else {
		var err error
		if body, err = io.ReadAll(io.LimitReader(resp.Body, mostResponse+1)); err != nil {
			return lost(ctx, fmt.Errorf("reading the answer: %w", err))
		}
	}
	if len(body) > mostResponse {
		p.Close() // what is left is not worth reading
	}
	if c.look > 0 && len(body) > c.look {
		body = body[:c.look]
	}
	switch status := resp.StatusCode; {
	case !within(status, c.expected) && within(status, c.retriable):
		return Broken, fmt.Errorf("status %d, which is retriable", status)
	case !within(status, c.expected):
		return Failed, fmt.Errorf("status %d", status)
	case !c.payload.found(body):
		return Failed, errors.New("the response body lacks the expected payload")
	case c.service != nil && !c.service(resp.Header.Get(serviceHeader)):
		return Failed, fmt.Errorf("the response is from service %q", short(resp.Header.Get(serviceHeader)))
	}
	return Passed, nil
}

// Close lets go of the connection.
func (p *httpProber) Close() {
	if p.conn != nil {
		_ = p.conn.Close() // nothing was sent that closing could lose
		p.conn = nil
	}
}
