package checker_test

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestInvalidClusters: what is wrong with one cluster is counted, and does not
// touch the others.
func TestInvalidClusters(t *testing.T) {
	onCheck := func(f func(*corev3.HealthCheck)) func(*healthv3.ClusterHealthCheck) {
		return func(c *healthv3.ClusterHealthCheck) { f(c.HealthChecks[0]) }
	}
	onHTTP := func(f func(*corev3.HealthCheck_HttpHealthCheck)) func(*healthv3.ClusterHealthCheck) {
		return func(c *healthv3.ClusterHealthCheck) { c.HealthChecks[0] = overHTTP(f) }
	}
	onTLS := func(up *tlsv3.CommonTlsContext) func(*healthv3.ClusterHealthCheck) {
		return func(c *healthv3.ClusterHealthCheck) {
			config, err := anypb.New(&tlsv3.UpstreamTlsContext{CommonTlsContext: up})
			if err != nil {
				t.Fatal(err)
			}
			c.TransportSocketMatches = anyTLS(t, nil)
			c.TransportSocketMatches[0].TransportSocket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: config}
		}
	}
	for name, spoil := range map[string]func(*healthv3.ClusterHealthCheck){
		"no check":            func(c *healthv3.ClusterHealthCheck) { c.HealthChecks = nil },
		"too many checks":     func(c *healthv3.ClusterHealthCheck) { c.HealthChecks = make([]*corev3.HealthCheck, 9) },
		"long name":           func(c *healthv3.ClusterHealthCheck) { c.ClusterName = strings.Repeat("x", 2000) },
		"no checker":          onCheck(func(hc *corev3.HealthCheck) { hc.HealthChecker = nil }),
		"no timeout":          onCheck(func(hc *corev3.HealthCheck) { hc.Timeout = nil }),
		"timeout 0":           onCheck(func(hc *corev3.HealthCheck) { hc.Timeout = durationpb.New(0) }),
		"timeout of an hour":  onCheck(func(hc *corev3.HealthCheck) { hc.Timeout = durationpb.New(time.Hour) }),
		"no interval":         onCheck(func(hc *corev3.HealthCheck) { hc.Interval = nil }),
		"negative interval":   onCheck(func(hc *corev3.HealthCheck) { hc.Interval = durationpb.New(-1) }),
		"interval of a week":  onCheck(func(hc *corev3.HealthCheck) { hc.NoTrafficInterval = durationpb.New(7 * 24 * time.Hour) }),
		"impossible duration": onCheck(func(hc *corev3.HealthCheck) { hc.Interval = &durationpb.Duration{Seconds: 1, Nanos: -1} }),
		"no thresholds":       onCheck(func(hc *corev3.HealthCheck) { hc.HealthyThreshold = nil }),
		"threshold 0":         onCheck(func(hc *corev3.HealthCheck) { hc.UnhealthyThreshold = wrapperspb.UInt32(0) }),
		"unknown custom check": onCheck(func(hc *corev3.HealthCheck) {
			hc.HealthChecker = &corev3.HealthCheck_CustomHealthCheck_{CustomHealthCheck: &corev3.HealthCheck_CustomHealthCheck{Name: "thrift"}}
		}),
		"path without a slash": onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) { h.Path = "healthz" }),
		"path that is none":    onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) { h.Path = "/%zz" }),
		"CONNECT":              onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) { h.Method = corev3.RequestMethod_CONNECT }),
		"method 99":            onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) { h.Method = 99 }),
		"HTTP/3":               onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) { h.CodecClientType = typev3.CodecClientType_HTTP3 }),
		"ALPN without TLS":     onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) { h.UseAlpnProtocol = true }),
		"status 99": onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) {
			h.ExpectedStatuses = []*typev3.Int64Range{{Start: 99, End: 200}}
		}),
		"empty range": onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) {
			h.ExpectedStatuses = []*typev3.Int64Range{{Start: 200, End: 200}}
		}),
		"header name":         onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) { h.RequestHeadersToAdd = headers("a b", "c") }),
		"header value":        onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) { h.RequestHeadersToAdd = headers("a", "b\r\nc: d") }),
		"body with GET":       onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) { h.Send = text("00") }),
		"payload not hex":     onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) { h.Receive = []*corev3.HealthCheck_Payload{text("0g")} }),
		"empty payload":       onHTTP(func(h *corev3.HealthCheck_HttpHealthCheck) { h.Receive = []*corev3.HealthCheck_Payload{{}} }),
		"certificate by name": onTLS(&tlsv3.CommonTlsContext{TlsCertificates: []*tlsv3.TlsCertificate{{CertificateChain: file("/etc/passwd")}}}),
		"certificate by SDS":  onTLS(&tlsv3.CommonTlsContext{TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: "x"}}}),
		"authority that is none": onTLS(&tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{
				TrustedCa: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "nothing"}},
			},
		}}),
		"bind to a name": func(c *healthv3.ClusterHealthCheck) {
			c.UpstreamBindConfig = &corev3.BindConfig{SourceAddress: &corev3.SocketAddress{Address: "host.example"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			s := start(t, func(o *checker.Options) {
				o.Registerer = registry
				o.NewProber = func(checker.Target, *corev3.HealthCheck) (checker.Prober, error) { return always(checker.Passed), nil }
			}).stream()
			bad := cluster("bad", check(nil), a1)
			spoil(bad)
			s.specify(t, spec(bad, cluster("good", check(nil), a2)))
			s.until(t, "good", a2, healthy)
			if n := len(s.next(t).GetEndpointHealthResponse().GetClusterEndpointsHealth()); n != 1 {
				t.Errorf("%d clusters are reported, want the good one", n)
			}
			if got := testhelp.Metric(t, registry, "isobar_checker_refused_entries_total"); got != 1 {
				t.Errorf("%v entries counted as refused, want 1", got)
			}
		})
	}
}

func headers(key, value string) []*corev3.HeaderValueOption {
	return []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: key, Value: value}}}
}

func text(hex string) *corev3.HealthCheck_Payload {
	return &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Text{Text: hex}}
}

func file(name string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: name}}
}

// TestInvalidEndpoints are left out; the others of their cluster are probed.
func TestInvalidEndpoints(t *testing.T) {
	inBubble(t, func(w *world, _ *script) {
		t := w.t
		s := w.stream()
		c := cluster("c", check(nil), a1)
		bad := []*endpointv3.Endpoint{
			nil, {}, endpoint("192.0.2.9:0"), {Address: socket("192.0.2.9:70000")}, {Address: socket("host.example:80")},
			{Address: &corev3.Address{Address: &corev3.Address_EnvoyInternalAddress{}}},
			{Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/" + strings.Repeat("x", 200)}}}},
			{Address: socket(a2), HealthCheckConfig: healthCheckConfig("", 70000, "")},
			{Address: socket(a2), HealthCheckConfig: healthCheckConfig("", 0, "host.example:80")},
		}
		udp := endpoint("192.0.2.9:80")
		udp.GetAddress().GetSocketAddress().Protocol = corev3.SocketAddress_UDP
		c.LocalityEndpoints[0].Endpoints = append(append(bad, udp), c.LocalityEndpoints[0].GetEndpoints()...)
		s.specify(t, spec(c))
		s.until(t, "c", a1, healthy)
		if got := s.next(t).GetEndpointHealthResponse().GetClusterEndpointsHealth()[0].GetLocalityEndpointsHealth()[0].GetEndpointsHealth(); len(got) != 1 {
			t.Errorf("reported %v", got)
		}
	})
}

// TestInvalidChange: a cluster whose new form is not valid stays as it was.
func TestInvalidChange(t *testing.T) {
	inBubble(t, func(w *world, sc *script) {
		t := w.t
		s := w.stream()
		s.specify(t, spec(cluster("c", check(nil), a1)))
		s.until(t, "c", a1, healthy)
		s.specify(t, spec(cluster("c", check(func(hc *corev3.HealthCheck) { hc.Timeout = nil }), a2), cluster("d", check(nil), a3)))
		s.until(t, "d", a3, healthy)
		sc.set(a1, checker.Broken)
		s.until(t, "c", a1, unhealthy)
		s.specify(t, spec(cluster("d", check(nil), a3)))
		sc.set(a3, checker.Broken)
		s.until(t, "d", a3, unhealthy)
		if _, ok := statusIn(s.next(t), "c", a1); ok {
			t.Error("a cluster that is gone is reported")
		}
	})
}

// TestOptions: what makes no checker is refused.
func TestOptions(t *testing.T) {
	for _, o := range []checker.Options{{}, {ID: "c"}} {
		if _, err := checker.New(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
