package convert_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	redisv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_checkers/redis/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// everyCheck is a service with a check of every kind.
func everyCheck() *isobar.Service {
	base := func(p isobar.CheckProtocol) isobar.HealthCheck {
		return isobar.HealthCheck{
			Protocol: p, Interval: 5 * time.Second, Timeout: time.Second, Jitter: 100 * time.Millisecond, UnhealthyThreshold: 3, HealthyThreshold: 2,
		}
	}
	http, tcp, grpc, redis := base(isobar.CheckHTTP), base(isobar.CheckTCP), base(isobar.CheckGRPC), base(isobar.CheckRedis)
	http.HTTP = &isobar.HTTPCheck{
		Path: "/healthz", Host: "shop.example:8443", Method: "HEAD", HTTP2: true,
		Expected: []isobar.StatusRange{{Start: 200, End: 300}}, Headers: []isobar.Header{{Name: "X-Probe", Value: "100% of %FOO%"}},
	}
	http.TLS = true
	tcp.TCP = &isobar.TCPCheck{Send: []byte("PING\r\n"), Receive: [][]byte{[]byte("PO"), {0xff, 0}}}
	grpc.GRPC = &isobar.GRPCCheck{Service: "shop.v1.Shop"}
	redis.Redis = &isobar.RedisCheck{Key: "maintenance"}
	redis.Jitter = 0
	return &isobar.Service{
		Name: "checkout", HealthChecks: []isobar.HealthCheck{http, tcp, grpc, redis},
		Localities: []isobar.ServiceLocality{
			{Locality: isobar.MustLocality("r/a/s"), Endpoints: []isobar.Endpoint{
				{Address: "10.0.0.1:80", Check: &isobar.EndpointCheck{Address: "10.1.0.1", Hostname: "one.example"}},
				{Address: "[2001:db8::1]:80", Check: &isobar.EndpointCheck{Port: 9000}},
				{Address: "10.0.0.2:80", Check: &isobar.EndpointCheck{Disabled: true}},
			}},
			{Locality: isobar.MustLocality("r/b"), Endpoints: []isobar.Endpoint{{Address: "10.0.0.3:80", Check: &isobar.EndpointCheck{Disabled: true}}}},
		},
	}
}

func targetsOf(s *isobar.Service) []convert.ProbeTarget {
	var out []convert.ProbeTarget
	for _, l := range s.Localities {
		out = append(out, convert.ProbeTarget{Locality: l.Locality, Endpoints: l.Endpoints})
	}
	return out
}

func specifier(t *testing.T) *healthv3.HealthCheckSpecifier {
	t.Helper()
	c, err := convert.ClusterHealthCheckOf(everyCheck(), targetsOf(everyCheck()))
	if err != nil {
		t.Fatal(err)
	}
	return convert.HealthCheckSpecifier([]*healthv3.ClusterHealthCheck{c}, 5*time.Second)
}

func unpack[M proto.Message](t *testing.T, m M, from interface{ UnmarshalTo(m proto.Message) error }) M {
	t.Helper()
	if err := from.UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestClusterHealthCheck(t *testing.T) {
	spec := specifier(t)
	c := spec.GetClusterHealthChecks()[0]
	for i, h := range c.GetHealthChecks() {
		if h.GetInterval().AsDuration() != 5*time.Second || h.GetNoTrafficInterval().AsDuration() != 5*time.Second || h.GetTimeout().AsDuration() != time.Second ||
			h.GetUnhealthyThreshold().GetValue() != 3 || h.GetHealthyThreshold().GetValue() != 2 || !h.GetReuseConnection().GetValue() ||
			(h.GetIntervalJitter() != nil) != (i != 3) {
			t.Errorf("check %d: %v", i, h)
		}
		if (h.GetTransportSocketMatchCriteria() != nil) != (i == 0) {
			t.Errorf("check %d: criteria %v", i, h.GetTransportSocketMatchCriteria())
		}
	}
	http := c.GetHealthChecks()[0].GetHttpHealthCheck()
	if http.GetHost() != "shop.example:8443" || http.GetMethod() != corev3.RequestMethod_HEAD || http.GetCodecClientType().String() != "HTTP2" ||
		http.GetExpectedStatuses()[0].GetEnd() != 300 || http.GetRequestHeadersToAdd()[0].GetHeader().GetValue() != "100%% of %%FOO%%" {
		t.Errorf("http %v", http)
	}
	tcp := c.GetHealthChecks()[1].GetTcpHealthCheck()
	if tcp.GetSend().GetText() != "50494e470d0a" || len(tcp.GetReceive()) != 2 || tcp.GetReceive()[1].GetText() != "ff00" {
		t.Errorf("tcp %v", tcp)
	}
	if g := c.GetHealthChecks()[2].GetGrpcHealthCheck(); g.GetServiceName() != "shop.v1.Shop" || g.GetAuthority() != "checkout" {
		t.Errorf("grpc %v", g)
	}
	custom := c.GetHealthChecks()[3].GetCustomHealthCheck()
	if r := unpack(t, &redisv3.Redis{}, custom.GetTypedConfig()); custom.GetName() != "envoy.health_checkers.redis" || r.GetKey() != "maintenance" {
		t.Errorf("redis %v", custom)
	}
	socket := c.GetTransportSocketMatches()[0]
	if u := unpack(t, &tlsv3.UpstreamTlsContext{}, socket.GetTransportSocket().GetTypedConfig()); u.GetSni() != "shop.example" || u.GetCommonTlsContext().GetValidationContext() != nil {
		t.Errorf("tls %v", u)
	}
	if !proto.Equal(socket.GetMatch(), c.GetHealthChecks()[0].GetTransportSocketMatchCriteria()) || c.GetHealthChecks()[0].GetTlsOptions().GetAlpnProtocols()[0] != "h2" {
		t.Errorf("socket %v of %v", socket, c.GetHealthChecks()[0])
	}
	// Disabled endpoints stay out, and with them the locality that has no other.
	if len(c.GetLocalityEndpoints()) != 1 || len(c.GetLocalityEndpoints()[0].GetEndpoints()) != 2 {
		t.Fatalf("endpoints %v", c.GetLocalityEndpoints())
	}
	one, two := c.GetLocalityEndpoints()[0].GetEndpoints()[0], c.GetLocalityEndpoints()[0].GetEndpoints()[1]
	if a := one.GetHealthCheckConfig(); a.GetAddress().GetSocketAddress().GetAddress() != "10.1.0.1" || a.GetAddress().GetSocketAddress().GetPortValue() != 80 ||
		a.GetHostname() != "one.example" || a.GetPortValue() != 0 || one.GetAddress().GetSocketAddress().GetAddress() != "10.0.0.1" {
		t.Errorf("first endpoint %v", one)
	}
	if a := two.GetHealthCheckConfig(); a.GetPortValue() != 9000 || a.GetAddress() != nil || two.GetAddress().GetSocketAddress().GetAddress() != "2001:db8::1" {
		t.Errorf("second endpoint %v", two)
	}
}

func TestDefaultsOfChecks(t *testing.T) {
	s := &isobar.Service{Name: "cart", HealthChecks: []isobar.HealthCheck{{
		Protocol: isobar.CheckHTTP, HTTP: &isobar.HTTPCheck{Path: "/"}, Interval: time.Second, Timeout: time.Second, UnhealthyThreshold: 1, HealthyThreshold: 1, TLS: true,
	}}}
	c, err := convert.ClusterHealthCheckOf(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h := c.GetHealthChecks()[0].GetHttpHealthCheck(); h.GetHost() != "cart" || h.GetMethod() != 0 || len(h.GetExpectedStatuses()) != 0 {
		t.Errorf("http %v", h)
	}
	if u := unpack(t, &tlsv3.UpstreamTlsContext{}, c.GetTransportSocketMatches()[0].GetTransportSocket().GetTypedConfig()); u.GetSni() != "" {
		t.Errorf("server name %q", u.GetSni())
	}
	s.HealthChecks[0].HTTP.Host = "10.0.0.1:443"
	if c, err = convert.ClusterHealthCheckOf(s, nil); err != nil {
		t.Fatal(err)
	}
	if u := unpack(t, &tlsv3.UpstreamTlsContext{}, c.GetTransportSocketMatches()[0].GetTransportSocket().GetTypedConfig()); u.GetSni() != "" {
		t.Errorf("server name %q of an IP", u.GetSni())
	}
}

// What breaks a checker is not sent; the field is named.
func TestSpecifiersThatAreRefused(t *testing.T) {
	type (
		spec    = *healthv3.HealthCheckSpecifier
		cluster = *healthv3.ClusterHealthCheck
	)
	first := func(change func(cluster)) func(spec) {
		return func(m spec) { change(m.GetClusterHealthChecks()[0]) }
	}
	check := func(i int, change func(*corev3.HealthCheck)) func(spec) {
		return first(func(c cluster) { change(c.GetHealthChecks()[i]) })
	}
	for field, change := range map[string]func(spec){
		"interval: not set":     func(m spec) { m.Interval = nil },
		"interval: 0s":          func(m spec) { m.Interval = durationpb.New(0) },
		"interval: -1s":         func(m spec) { m.Interval = durationpb.New(-time.Second) },
		"twice":                 func(m spec) { m.ClusterHealthChecks = append(m.ClusterHealthChecks, m.GetClusterHealthChecks()[0]) },
		"cluster_name":          first(func(c cluster) { c.ClusterName = "" }),
		"health_checks: none":   first(func(c cluster) { c.HealthChecks = nil }),
		"timeout":               check(0, func(h *corev3.HealthCheck) { h.Timeout = durationpb.New(0) }),
		"no_traffic_interval":   check(0, func(h *corev3.HealthCheck) { h.NoTrafficInterval = nil }),
		"interval_jitter":       check(1, func(h *corev3.HealthCheck) { h.IntervalJitter = durationpb.New(-1) }),
		"unhealthy_threshold":   check(1, func(h *corev3.HealthCheck) { h.UnhealthyThreshold.Value = 0 }),
		": healthy_threshold":   check(1, func(h *corev3.HealthCheck) { h.HealthyThreshold = nil }),
		"health_checker":        check(1, func(h *corev3.HealthCheck) { h.HealthChecker = nil }),
		"path":                  check(0, func(h *corev3.HealthCheck) { h.GetHttpHealthCheck().Path = "healthz" }),
		"host":                  check(0, func(h *corev3.HealthCheck) { h.GetHttpHealthCheck().Host = "a\r\nb" }),
		"method":                check(0, func(h *corev3.HealthCheck) { h.GetHttpHealthCheck().Method = corev3.RequestMethod_CONNECT }),
		"expected_statuses":     check(0, func(h *corev3.HealthCheck) { h.GetHttpHealthCheck().ExpectedStatuses[0].Start = 300 }),
		"headers_to_add":        check(0, func(h *corev3.HealthCheck) { h.GetHttpHealthCheck().RequestHeadersToAdd[0].Header.Key = ":path" }),
		"tcp_health_check.send": check(1, func(h *corev3.HealthCheck) { h.GetTcpHealthCheck().Send.Payload = nil }),
		"receive[1]":            check(1, func(h *corev3.HealthCheck) { h.GetTcpHealthCheck().Receive[1] = &corev3.HealthCheck_Payload{} }),
		"authority":             check(2, func(h *corev3.HealthCheck) { h.GetGrpcHealthCheck().Authority = "\n" }),
		"custom_health_check":   check(3, func(h *corev3.HealthCheck) { h.GetCustomHealthCheck().Name = "thrift" }),
		"match_criteria":        first(func(c cluster) { c.TransportSocketMatches = nil }),
		"not TLS":               first(func(c cluster) { c.TransportSocketMatches[0].TransportSocket.Name = "raw" }),
		"label of its own": first(func(c cluster) {
			c.TransportSocketMatches = append(c.TransportSocketMatches, proto.CloneOf(c.GetTransportSocketMatches()[0]))
		}),
		"locality: not set": first(func(c cluster) { c.LocalityEndpoints[0].Locality = nil }),
		"locality: r/a/s": first(func(c cluster) {
			c.LocalityEndpoints = append(c.LocalityEndpoints, c.GetLocalityEndpoints()[0])
		}),
		"none that is probed": first(func(c cluster) {
			for _, e := range c.GetLocalityEndpoints()[0].GetEndpoints() {
				e.GetHealthCheckConfig().DisableActiveHealthCheck = true
			}
		}),
		"10.0.0.1:80 is listed twice": first(func(c cluster) {
			l := c.GetLocalityEndpoints()[0]
			l.Endpoints = append(l.Endpoints, l.GetEndpoints()[0])
		}),
		"endpoints[0].address": first(func(c cluster) {
			c.GetLocalityEndpoints()[0].GetEndpoints()[0].GetAddress().GetSocketAddress().Address = "backend.example"
		}),
		"health_check_config.address": first(func(c cluster) {
			c.GetLocalityEndpoints()[0].GetEndpoints()[0].GetHealthCheckConfig().GetAddress().GetSocketAddress().Address = "fe80::1%eth0"
		}),
		"port_value": first(func(c cluster) {
			c.GetLocalityEndpoints()[0].GetEndpoints()[1].GetHealthCheckConfig().PortValue = 70_000
		}),
		"hostname": first(func(c cluster) {
			c.GetLocalityEndpoints()[0].GetEndpoints()[0].GetHealthCheckConfig().Hostname = "\x00"
		}),
	} {
		m := specifier(t)
		if err := convert.CheckSpecifier(m); err != nil {
			t.Fatalf("the good one: %v", err)
		}
		change(m)
		if err := convert.CheckSpecifier(m); !errors.Is(err, rpc.ErrRefused) || !strings.Contains(err.Error(), field) {
			t.Errorf("%q: %v", field, err)
		}
	}
}

func TestServicesThatCannotBeChecked(t *testing.T) {
	for want, change := range map[string]func(*isobar.Service){
		"health_checks: none":    func(s *isobar.Service) { s.HealthChecks = nil },
		"by tcp has no settings": func(s *isobar.Service) { s.HealthChecks[0].Protocol = isobar.CheckTCP },
		"protocol(9)":            func(s *isobar.Service) { s.HealthChecks[0].Protocol = 9 },
		"timeout":                func(s *isobar.Service) { s.HealthChecks[0].Timeout = 0 },
		"endpoints[0].address":   func(s *isobar.Service) { s.Localities[0].Endpoints[0].Address = "x" },
		"cluster_name":           func(s *isobar.Service) { s.Name = "" },
	} {
		s := everyCheck()
		change(s)
		if _, err := convert.ClusterHealthCheckOf(s, targetsOf(s)); !errors.Is(err, rpc.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
