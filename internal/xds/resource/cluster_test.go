package resource_test

import (
	"slices"
	"testing"
	"time"

	apiv2 "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	apiv2auth "github.com/envoyproxy/go-control-plane/envoy/api/v2/auth"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// everything is a cluster of which all is set.
func everything() isobar.ClusterSettings {
	c := isobar.ClusterSettings{
		Protocol: isobar.ProtocolGRPC, LBPolicy: isobar.LBLeastRequest, ConnectTimeout: isobar.ConnectTimeout(time.Second),
		CircuitBreakers: isobar.CircuitBreakers{MaxRequests: 7},
		TLS: &isobar.EndpointTLS{
			SNI: "checkout.example", CA: isobar.SystemCA, SubjectAltNames: []string{"spiffe://prod.example/ns/shop/*", "checkout.example", "10.0.0.1"},
			Cert: "/client.pem", Key: "/client.key",
		},
	}
	for f := range isobar.OutlierFields {
		switch f.Spec().Kind {
		case isobar.OutlierDuration:
			c.OutlierDetection.Set(f, int64(time.Minute))
		case isobar.OutlierSwitch:
			c.OutlierDetection.Set(f, 1)
		case isobar.OutlierCount, isobar.OutlierPercent:
			c.OutlierDetection.Set(f, int64(10+f))
		}
	}
	return c
}

func cluster(t *testing.T, s *isobar.Service, grpc bool) *clusterv3.Cluster {
	t.Helper()
	m, err := resource.StaticOf(resource.Cluster, s, s.Name, grpc)
	if err != nil {
		t.Fatal(err)
	}
	c, ok := m.(*clusterv3.Cluster)
	if !ok {
		t.Fatalf("%T", m)
	}
	if err := c.ValidateAll(); err != nil {
		t.Error(err)
	}
	return c
}

// Ejection is on, after five errors in a row and by failure percentage. gRPC has no
// panic, counts every status but OK as a failure, and no errors in a row.
func TestClustersEjectByDefault(t *testing.T) {
	const text = `{
		"interval": "2s", "base_ejection_time": "1s", "max_ejection_time": "30s", "max_ejection_percent": 100, "consecutive_5xx": 5,
		"failure_percentage_threshold": 90, "failure_percentage_minimum_hosts": 1, "failure_percentage_request_volume": 5,
		"enforcing_failure_percentage": 100, "enforcing_failure_percentage_local_origin": 100,
		"enforcing_consecutive_5xx": 100, "enforcing_consecutive_gateway_failure": 0, "enforcing_consecutive_local_origin_failure": 0,
		"enforcing_success_rate": 0, "enforcing_local_origin_success_rate": 0}`
	want := &clusterv3.OutlierDetection{}
	if err := protojson.Unmarshal([]byte(text), want); err != nil {
		t.Fatal(err)
	}
	c := cluster(t, &isobar.Service{Name: "checkout"}, false)
	if got := c.GetOutlierDetection(); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := c.GetCommonLbConfig().GetHealthyPanicThreshold().GetValue(); got != isobar.DefaultHealthyPanicThreshold {
		t.Errorf("panic below %v%%", got)
	}
	want.MaxEjectionPercent, want.FailurePercentageMinimumHosts = wrapperspb.UInt32(50), wrapperspb.UInt32(2)
	want.BaseEjectionTime = durationpb.New(10 * time.Second)
	if got := cluster(t, &isobar.Service{Name: "checkout"}, true).GetOutlierDetection(); !proto.Equal(got, want) {
		t.Errorf("gRPC: got %v, want %v", got, want)
	}
	off := isobar.ClusterSettings{OutlierDetection: isobar.OutlierDetection{Off: true}}
	if got := cluster(t, &isobar.Service{Name: "checkout", ClusterSettings: off}, false).GetOutlierDetection(); got != nil {
		t.Errorf("off: got %v", got)
	}
}

// Each setting arrives in the field of its name, for Envoy and for gRPC.
func TestClustersEjectAsSet(t *testing.T) {
	for _, grpc := range []bool{false, true} {
		got := cluster(t, &isobar.Service{Name: "checkout", ClusterSettings: everything()}, grpc).GetOutlierDetection()
		fields := got.ProtoReflect().Descriptor().Fields()
		set := 0
		for i := range fields.Len() {
			if got.ProtoReflect().Has(fields.Get(i)) {
				set++
			}
		}
		if set != int(isobar.OutlierFields) {
			t.Errorf("gRPC %v: %d fields are set, want %d: %v", grpc, set, isobar.OutlierFields, got)
		}
		if got.GetBaseEjectionTime().AsDuration() != time.Minute || got.GetConsecutive_5Xx().GetValue() != uint32(10+isobar.OutlierConsecutive5xx) || !got.GetSplitExternalLocalOriginErrors() {
			t.Errorf("gRPC %v: %v", grpc, got)
		}
	}
	// Other errors in a row eject once somebody asks for it.
	var o isobar.OutlierDetection
	o.Set(isobar.OutlierConsecutiveLocalOriginFailure, 7)
	o.Set(isobar.OutlierBaseEjectionTime, int64(time.Hour))
	got := cluster(t, &isobar.Service{Name: "checkout", ClusterSettings: isobar.ClusterSettings{OutlierDetection: o}}, false).GetOutlierDetection()
	if got.GetEnforcingConsecutiveLocalOriginFailure().GetValue() != 100 || got.GetEnforcingConsecutiveGatewayFailure().GetValue() != 0 || got.GetMaxEjectionTime().AsDuration() != time.Hour {
		t.Errorf("got %v", got)
	}
}

// Unset limits are 1,024 concurrent requests in Envoy and in gRPC.
func TestClustersHaveNoLimits(t *testing.T) {
	for _, s := range []*isobar.Service{{Name: "checkout"}, {Name: "checkout", ORCA: isobar.ORCA{On: true}}} {
		thresholds := cluster(t, s, false).GetCircuitBreakers().GetThresholds()
		if len(thresholds) != 2 || thresholds[0].GetPriority() != corev3.RoutingPriority_DEFAULT || thresholds[1].GetPriority() != corev3.RoutingPriority_HIGH {
			t.Fatalf("thresholds %v, want one for each priority", thresholds)
		}
		for _, limits := range thresholds {
			for name, limit := range map[string]*wrapperspb.UInt32Value{
				"max_connections": limits.GetMaxConnections(), "max_pending_requests": limits.GetMaxPendingRequests(),
				"max_requests": limits.GetMaxRequests(), "max_retries": limits.GetMaxRetries(),
			} {
				if limit.GetValue() != 4294967295 {
					t.Errorf("%s is %v, want 4294967295", name, limit)
				}
			}
		}
	}
	limited := cluster(t, &isobar.Service{Name: "checkout", ClusterSettings: everything()}, true).GetCircuitBreakers().GetThresholds()
	if limited[0].GetMaxRequests().GetValue() != 7 || limited[0].GetMaxConnections().GetValue() != 4294967295 {
		t.Errorf("got %v", limited)
	}
}

// The protocol that a service says, or that its health check speaks for.
func TestClustersSayTheirProtocol(t *testing.T) {
	tls := &isobar.EndpointTLS{SNI: "a.example", CA: "/ca.pem", SubjectAltNames: []string{"a.example"}}
	check := func(c isobar.HealthCheck) []isobar.HealthCheck { return []isobar.HealthCheck{c} }
	set := func(p isobar.Protocol, tls *isobar.EndpointTLS) isobar.ClusterSettings {
		return isobar.ClusterSettings{Protocol: p, TLS: tls}
	}
	for _, tt := range []struct {
		name    string
		service isobar.Service
		want    string // "" = no options: HTTP/1
		alpn    []string
		http2   bool // v2
		select2 bool // v2: the protocol of the downstream connection
	}{
		{"nothing", isobar.Service{}, "", nil, false, false},
		{"HTTP check", isobar.Service{HealthChecks: check(isobar.HealthCheck{HTTP: &isobar.HTTPCheck{}})}, "", nil, false, false},
		{"HTTP/2 check", isobar.Service{HealthChecks: check(isobar.HealthCheck{HTTP: &isobar.HTTPCheck{HTTP2: true}})}, "explicit", nil, true, false},
		{"gRPC check", isobar.Service{HealthChecks: check(isobar.HealthCheck{Protocol: isobar.CheckGRPC})}, "explicit", nil, true, false},
		{"said otherwise", isobar.Service{HealthChecks: check(isobar.HealthCheck{Protocol: isobar.CheckGRPC}), ClusterSettings: set(isobar.ProtocolHTTP1, tls)}, "", []string{"http/1.1"}, false, false},
		{"http2", isobar.Service{ClusterSettings: set(isobar.ProtocolHTTP2, nil)}, "explicit", nil, true, false},
		{"gRPC over TLS", isobar.Service{ClusterSettings: set(isobar.ProtocolGRPC, tls)}, "explicit", []string{"h2"}, true, false},
		{"auto", isobar.Service{ClusterSettings: set(isobar.ProtocolAuto, nil)}, "downstream", nil, true, true},
		{"auto over TLS", isobar.Service{ClusterSettings: set(isobar.ProtocolAuto, tls)}, "auto", nil, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.service.Name = "checkout"
			c := cluster(t, &tt.service, false)
			if got := protocolOf(t, c); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := tlsOf(t, c).GetCommonTlsContext().GetAlpnProtocols(); !slices.Equal(got, tt.alpn) {
				t.Errorf("ALPN %q, want %q", got, tt.alpn)
			}
			if got := protocolOf(t, cluster(t, &tt.service, true)); got != "" {
				t.Errorf("gRPC gets %q", got)
			}
			v2 := clusterV2(t, &tt.service)
			if (v2.GetHttp2ProtocolOptions() != nil) != tt.http2 || (v2.GetProtocolSelection() == apiv2.Cluster_USE_DOWNSTREAM_PROTOCOL) != tt.select2 || len(v2.GetTypedExtensionProtocolOptions()) > 0 {
				t.Errorf("v2: %v", v2)
			}
			v2017 := encodedAs(t, rpc.V2017, &tt.service)
			if (v2017 == nil) != (tt.service.TLS != nil) {
				t.Fatalf("2017: %v", v2017)
			}
			early := &clusterv3.Cluster{}
			if err := proto.Unmarshal(v2017.GetValue(), early); err != nil {
				t.Fatal(err)
			}
			if (early.GetHttp2ProtocolOptions() != nil) != (tt.http2 && !tt.select2 && tt.service.TLS == nil) { //nolint:staticcheck // the field of that time
				t.Errorf("2017: %v", early)
			}
		})
	}
}

func protocolOf(t *testing.T, c *clusterv3.Cluster) string {
	t.Helper()
	options := &httpv3.HttpProtocolOptions{}
	for _, config := range c.GetTypedExtensionProtocolOptions() {
		if err := config.UnmarshalTo(options); err != nil {
			t.Fatal(err)
		}
		if err := options.ValidateAll(); err != nil {
			t.Error(err)
		}
	}
	switch {
	case options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil:
		return "explicit"
	case options.GetAutoConfig() != nil:
		return "auto"
	case options.GetUseDownstreamProtocolConfig() != nil:
		return "downstream"
	}
	return ""
}

func tlsOf(t *testing.T, c *clusterv3.Cluster) *tlsv3.UpstreamTlsContext {
	t.Helper()
	out := &tlsv3.UpstreamTlsContext{}
	if c.GetTransportSocket() == nil {
		return out
	}
	if err := c.GetTransportSocket().GetTypedConfig().UnmarshalTo(out); err != nil {
		t.Fatal(err)
	}
	if err := out.ValidateAll(); err != nil {
		t.Error(err)
	}
	return out
}

// encodedAs is a cluster as clients of an API version get it; nil = not at all.
func encodedAs(t *testing.T, api rpc.APIVersion, s *isobar.Service) *anypb.Any {
	t.Helper()
	r, err := resource.EncodeAs(rpc.As{API: api}, s.Name, resource.Cluster, cluster(t, s, false), 0)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		return nil
	}
	body := &anypb.Any{}
	if err := proto.Unmarshal(r.Body, body); err != nil {
		t.Fatal(err)
	}
	return body
}

func clusterV2(t *testing.T, s *isobar.Service) *apiv2.Cluster {
	t.Helper()
	out := &apiv2.Cluster{}
	if err := encodedAs(t, rpc.V2, s).UnmarshalTo(out); err != nil {
		t.Fatal(err)
	}
	if err := out.ValidateAll(); err != nil {
		t.Error(err)
	}
	if n := len(out.ProtoReflect().GetUnknown()); n > 0 {
		t.Errorf("%d bytes that v2 does not know", n)
	}
	return out
}

// Envoy gets the files, in v3 and in v2; gRPC gets TLS only where the
// configuration names its certificate providers.
func TestClustersSpeakTLS(t *testing.T) {
	s := &isobar.Service{Name: "checkout", ClusterSettings: everything()}
	got := tlsOf(t, cluster(t, s, false))
	validation := got.GetCommonTlsContext().GetValidationContext()
	var types []tlsv3.SubjectAltNameMatcher_SanType
	for _, m := range validation.GetMatchTypedSubjectAltNames() {
		types = append(types, m.GetSanType())
	}
	if got.GetSni() != "checkout.example" || validation.GetTrustedCa().GetFilename() != resource.SystemCAFile ||
		!slices.Equal(types, []tlsv3.SubjectAltNameMatcher_SanType{tlsv3.SubjectAltNameMatcher_URI, tlsv3.SubjectAltNameMatcher_DNS, tlsv3.SubjectAltNameMatcher_IP_ADDRESS}) ||
		validation.GetMatchTypedSubjectAltNames()[0].GetMatcher().GetPrefix() != "spiffe://prod.example/ns/shop/" ||
		got.GetCommonTlsContext().GetTlsCertificates()[0].GetPrivateKey().GetFilename() != "/client.key" {
		t.Errorf("got %v", got)
	}
	old := &apiv2auth.UpstreamTlsContext{}
	if err := clusterV2(t, s).GetTransportSocket().GetTypedConfig().UnmarshalTo(old); err != nil {
		t.Fatal(err)
	}
	v := old.GetCommonTlsContext().GetValidationContext()
	if err := old.ValidateAll(); err != nil || old.GetSni() != "checkout.example" || v.GetTrustedCa().GetFilename() != resource.SystemCAFile ||
		len(v.GetMatchSubjectAltNames()) != 3 || v.GetMatchSubjectAltNames()[1].GetExact() != "checkout.example" {
		t.Errorf("v2: %v (%v)", old, err)
	}
	if socket := cluster(t, s, true).GetTransportSocket(); socket != nil {
		t.Errorf("gRPC gets %v", socket)
	}
	s.TLS.GRPC = &isobar.CertificateProviders{CA: "roots", Cert: "mine"}
	common := tlsOf(t, cluster(t, s, true)).GetCommonTlsContext()
	if common.GetValidationContext().GetCaCertificateProviderInstance().GetInstanceName() != "roots" ||
		common.GetTlsCertificateProviderInstance().GetInstanceName() != "mine" || len(common.GetValidationContext().GetMatchSubjectAltNames()) != 3 { //nolint:staticcheck // what gRPC reads
		t.Errorf("gRPC gets %v", common)
	}
}

// TestEnvoysThatRefuseWRRLocality: those before 1.37, by the version that they
// tell; of others nothing is assumed.
func TestEnvoysThatRefuseWRRLocality(t *testing.T) {
	build := func(major, minor uint32) *corev3.Node {
		return &corev3.Node{UserAgentName: "envoy", UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: major, MinorNumber: minor, Patch: 2}},
		}}
	}
	text := func(agent, version string) *corev3.Node {
		return &corev3.Node{UserAgentName: agent, UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: version}}
	}
	for _, tt := range []struct {
		node    *corev3.Node
		refuses bool
		agent   string
	}{
		{build(1, 36), true, "envoy 1.36.2"},
		{build(1, 37), false, "envoy 1.37.2"},
		{build(2, 0), false, "envoy 2.0.2"},
		{text("envoy", "1.30.0"), true, "envoy 1.30.0"},
		{text("envoy", "new"), false, "envoy new"},
		{text("envoy", ""), false, "envoy"},
		{text("gRPC Go", "1.30.0"), false, "gRPC Go 1.30.0"},
	} {
		n, err := rpc.NodeFrom(tt.node)
		if err != nil || n.UserAgent != tt.agent || n.RefusesWRRLocality() != tt.refuses {
			t.Errorf("%s: agent %q, refuses %v, error %v", tt.agent, n.UserAgent, n.RefusesWRRLocality(), err)
		}
	}
}

// TestClusterWithoutPolicies: weights of localities are obeyed nevertheless, and
// what the cluster reports is left.
func TestClusterWithoutPolicies(t *testing.T) {
	c, err := resource.ClusterOf(&isobar.Service{Name: "a", ORCA: isobar.ORCA{On: true}})
	if err != nil {
		t.Fatal(err)
	}
	metrics := len(c.GetLrsReportEndpointMetrics())
	resource.WithoutPolicies(c)
	if c.GetLoadBalancingPolicy() != nil || c.GetCommonLbConfig().GetLocalityWeightedLbConfig() == nil ||
		c.GetLbPolicy() != clusterv3.Cluster_ROUND_ROBIN || len(c.GetLrsReportEndpointMetrics()) != metrics || metrics == 0 {
		t.Errorf("%v", c)
	}
}
