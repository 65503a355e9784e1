package convert_test

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/rpc"
)

func healthOf(ip string, port uint32, s corev3.HealthStatus) *healthv3.EndpointHealth {
	return &healthv3.EndpointHealth{HealthStatus: s, Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
		Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}},
	}}}
}

// healthReport is a report as Envoy sends it, every entry twice.
func healthReport(entries ...*healthv3.EndpointHealth) *healthv3.EndpointHealthResponse {
	m := flatReport(entries...)
	m.ClusterEndpointsHealth = []*healthv3.ClusterEndpointsHealth{{
		ClusterName: "checkout",
		LocalityEndpointsHealth: []*healthv3.LocalityEndpointsHealth{{
			Locality: &corev3.Locality{Region: "r", Zone: "a"}, EndpointsHealth: entries,
		}},
	}}
	return m
}

// flatReport is a report as old builds of Envoy send it.
func flatReport(entries ...*healthv3.EndpointHealth) *healthv3.EndpointHealthResponse {
	return &healthv3.EndpointHealthResponse{EndpointsHealth: entries} //nolint:staticcheck // deprecated, and the one form of old builds
}

func TestHealthEntries(t *testing.T) {
	pipe := healthOf("", 0, corev3.HealthStatus_HEALTHY)
	pipe.Endpoint.Address = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/tmp/x"}}}
	m := healthReport(
		healthOf("10.0.0.1", 80, corev3.HealthStatus_HEALTHY), healthOf("::ffff:10.0.0.2", 80, corev3.HealthStatus_TIMEOUT),
		healthOf("10.0.0.3", 80, corev3.HealthStatus_UNKNOWN), healthOf("10.0.0.4", 80, 99), healthOf("10.0.0.5", 80, -1),
		healthOf("backend.example", 80, corev3.HealthStatus_HEALTHY), healthOf("10.0.0.6", 0, corev3.HealthStatus_HEALTHY),
		healthOf("10.0.0.7", 70_000, corev3.HealthStatus_HEALTHY), pipe, &healthv3.EndpointHealth{},
	)
	m.ClusterEndpointsHealth = append(m.ClusterEndpointsHealth,
		&healthv3.ClusterEndpointsHealth{LocalityEndpointsHealth: m.GetClusterEndpointsHealth()[0].GetLocalityEndpointsHealth()},
		&healthv3.ClusterEndpointsHealth{ClusterName: "x", LocalityEndpointsHealth: []*healthv3.LocalityEndpointsHealth{
			{Locality: &corev3.Locality{Zone: strings.Repeat("z", 300)}, EndpointsHealth: []*healthv3.EndpointHealth{pipe}}, nil,
		}})
	var codes []rpc.RejectCode
	got, flat, err := convert.HealthEntries(m, func(r convert.HealthRejection) { codes = append(codes, r.Code) })
	want := []convert.HealthEntry{
		{Service: "checkout", Locality: isobar.MustLocality("r/a"), Address: netip.MustParseAddrPort("10.0.0.1:80"), Status: isobar.Healthy},
		{Service: "checkout", Locality: isobar.MustLocality("r/a"), Address: netip.MustParseAddrPort("10.0.0.2:80"), Status: isobar.Timeout},
	}
	if err != nil || flat || !slices.Equal(got, want) {
		t.Errorf("entries %+v, %v, %v", got, flat, err)
	}
	s, a := convert.RejectStatus, convert.RejectAddress
	if !slices.Equal(codes, []rpc.RejectCode{s, s, s, a, a, a, a, a, rpc.RejectName, rpc.RejectLocality}) {
		t.Errorf("rejected %v", codes)
	}
	for _, c := range codes {
		if !slices.Contains(convert.HealthRejectCodes(), c) {
			t.Errorf("%s is not listed", c)
		}
	}

	m.ClusterEndpointsHealth = nil
	got, flat, err = convert.HealthEntries(m, nil)
	if err != nil || !flat || len(got) != 2 || got[0].Service != "" || !got[0].Locality.IsZero() {
		t.Errorf("flat: %+v, %v, %v", got, flat, err)
	}
	if got, flat, err := convert.HealthEntries(nil, nil); err != nil || flat || len(got) != 0 {
		t.Errorf("nothing: %+v, %v, %v", got, flat, err)
	}
}

func TestHealthReportsAreBounded(t *testing.T) {
	e := healthOf("10.0.0.1", 80, corev3.HealthStatus_HEALTHY)
	many := healthReport(slices.Repeat([]*healthv3.EndpointHealth{e}, 100_001)...)
	if _, _, err := convert.HealthEntries(many, nil); !errors.Is(err, rpc.ErrMessage) {
		t.Errorf("many grouped: %v", err)
	}
	many.ClusterEndpointsHealth = nil
	if _, _, err := convert.HealthEntries(many, nil); !errors.Is(err, rpc.ErrMessage) {
		t.Errorf("many flat: %v", err)
	}
	e.HealthMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue(strings.Repeat("x", 5000))}}
	refused := 0
	got, _, err := convert.HealthEntries(healthReport(e), func(r convert.HealthRejection) {
		if r.Code == convert.RejectMetadata {
			refused++
		}
	})
	if err != nil || len(got) != 1 || got[0].Metadata != "" || got[0].Status != isobar.Healthy || refused != 1 {
		t.Errorf("large metadata: %+v, %v, %d refused", got, err, refused)
	}
	e.HealthMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNumberValue(math.NaN()), "y": nil}}
	if got, _, err = convert.HealthEntries(healthReport(e), nil); err != nil || len(got) != 1 || got[0].Metadata != `{"x":"NaN","y":null}` {
		t.Errorf("odd metadata: %+v, %v", got, err)
	}
}

func helloOf(id string) *healthv3.HealthCheckRequest {
	return &healthv3.HealthCheckRequest{
		Node: &corev3.Node{Id: id, Cluster: "probes", UserAgentName: "envoy", Locality: &corev3.Locality{Region: "r", Zone: "a"}},
		Capability: &healthv3.Capability{HealthCheckProtocols: []healthv3.Capability_Protocol{
			healthv3.Capability_HTTP, healthv3.Capability_TCP,
		}},
	}
}

func wrapped(r *healthv3.HealthCheckRequest) *healthv3.HealthCheckRequestOrEndpointHealthResponse {
	return &healthv3.HealthCheckRequestOrEndpointHealthResponse{
		RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{HealthCheckRequest: r},
	}
}

func TestFirstHealthMessage(t *testing.T) {
	noCapability := helloOf("probe-1")
	noCapability.Capability = nil
	for name, m := range map[string]proto.Message{
		"wrapped": wrapped(helloOf("probe-1")), "bare": helloOf("probe-1"),
		"wrapped without capability": wrapped(noCapability), "bare without capability": noCapability,
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := convert.FirstHealthMessage(data)
		if err != nil || got.Request.GetNode().GetId() != "probe-1" {
			t.Errorf("%s: %v, %v", name, got.Request, err)
			continue
		}
		c, err := convert.CheckerFrom(got.Request, rpc.V3)
		if err != nil || c.Node.ID != "probe-1" || c.Node.Locality != isobar.MustLocality("r/a") {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if _, err := convert.FirstHealthMessage([]byte{0xff}); !errors.Is(err, rpc.ErrMessage) {
		t.Errorf("garbage: %v", err)
	}
}

func TestCapabilities(t *testing.T) {
	for _, tc := range []struct {
		want   string
		change func(*healthv3.HealthCheckRequest)
	}{
		{"http+tcp", func(*healthv3.HealthCheckRequest) {}},
		{"", func(r *healthv3.HealthCheckRequest) { r.Capability = nil }},
		{"redis", func(r *healthv3.HealthCheckRequest) {
			r.Capability.HealthCheckProtocols = []healthv3.Capability_Protocol{healthv3.Capability_REDIS, 42, -1, healthv3.Capability_REDIS}
		}},
		{"http+tcp+grpc", func(r *healthv3.HealthCheckRequest) { r.Node.ClientFeatures = []string{"x", convert.FeatureGRPCChecks} }},
		{"http+tcp+grpc", func(r *healthv3.HealthCheckRequest) { r.Node.UserAgentName = "isobar-checker" }},
	} {
		r := helloOf("probe-1")
		tc.change(r)
		c, err := convert.CheckerFrom(r, rpc.V3)
		if err != nil || c.Protocols.String() != tc.want {
			t.Errorf("%v: %q, %v, want %q", r, c.Protocols, err, tc.want)
		}
	}
	for _, r := range []*healthv3.HealthCheckRequest{nil, {}, helloOf(""), helloOf("a\nb"), helloOf(strings.Repeat("x", 2000))} {
		if _, err := convert.CheckerFrom(r, rpc.V3); !errors.Is(err, rpc.ErrMessage) {
			t.Errorf("%.100v: %v", r, err)
		}
	}
}

// An Envoy is given 500 endpoints, and any checker what its metadata says.
func TestEndpointsOfACheckerAreBounded(t *testing.T) {
	for _, tc := range []struct {
		agent string
		most  any // in the metadata
		want  int // -1: refused
	}{
		{"envoy", nil, 500},
		{"isobar-checker", nil, 0},
		{"", nil, 0},
		{"envoy", 2000.0, 2000},
		{"other", 7.0, 7},
		{"envoy", 0.0, -1},
		{"envoy", 1.5, -1},
		{"envoy", 1e9, -1},
		{"envoy", "many", -1},
	} {
		r := helloOf("probe-1")
		r.Node.UserAgentName = tc.agent
		if tc.most != nil {
			m, err := structpb.NewStruct(map[string]any{"isobar": map[string]any{"max_endpoints": tc.most}, "other": true})
			if err != nil {
				t.Fatal(err)
			}
			r.Node.Metadata = m
		}
		c, err := convert.CheckerFrom(r, rpc.V3)
		switch {
		case tc.want < 0 && (!errors.Is(err, rpc.ErrMessage) || !strings.Contains(err.Error(), "max_endpoints")):
			t.Errorf("%s with %v: %v, want it refused", tc.agent, tc.most, err)
		case tc.want >= 0 && (err != nil || c.Bounded(500).MaxEndpoints != tc.want):
			t.Errorf("%s with %v: %d %v, want %d", tc.agent, tc.most, c.Bounded(500).MaxEndpoints, err, tc.want)
		}
	}
}
