package checker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"

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
