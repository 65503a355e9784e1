package server_test

import (
	"bytes"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Methods of the services.
const (
	sotwMethod   = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	sotwMethodV2 = "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources"
	deltaMethod  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	edsMethod    = "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"
	lrsMethod    = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
	lrsMethodV2  = "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats"
	hdsMethod    = "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck"
	csdsMethod   = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus"
)

// fullNode is a node with everything that is read of it.
func fullNode() *corev3.Node {
	n := nodeIn("swept", "us/a/1")
	n.UserAgentName = "envoy"
	n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
		Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 30, Patch: 2}, Metadata: &structpb.Struct{},
	}}
	n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNumberValue(1)}}
	n.ClientFeatures = []string{rpc.FeatureSendAllClusters}
	return n
}

func fullRequest(url string) *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{
		VersionInfo: "1", Node: fullNode(), ResourceNames: []string{"checkout", "unheard-of"}, TypeUrl: url, ResponseNonce: "1",
		ErrorDetail: &statuspb.Status{Code: 3, Message: "no"},
	}
}

func fullDelta() *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{
		Node: fullNode(), TypeUrl: resource.EndpointsURL, ResourceNamesSubscribe: []string{"checkout"}, ResourceNamesUnsubscribe: []string{"cart"},
		InitialResourceVersions: map[string]string{"checkout": "1"}, ResponseNonce: "1", ErrorDetail: &statuspb.Status{Code: 3, Message: "no"},
	}
}

func socketAddress(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func fullReport() *loadstatsv3.LoadStatsRequest {
	return &loadstatsv3.LoadStatsRequest{Node: fullNode(), ClusterStats: []*endpointv3.ClusterStats{{
		ClusterName: "outbound", ClusterServiceName: "checkout", LoadReportInterval: durationpb.New(5 * time.Second),
		TotalDroppedRequests: 3, DroppedRequests: []*endpointv3.ClusterStats_DroppedRequests{{Category: "isobar", DroppedCount: 2}},
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
			Locality: &corev3.Locality{Region: "us", Zone: "a", SubZone: "1"}, Priority: 1,
			TotalIssuedRequests: 100, TotalSuccessfulRequests: 90, TotalErrorRequests: 5, TotalRequestsInProgress: 7,
			CpuUtilization:  &endpointv3.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: 10, TotalMetricValue: 5},
			LoadMetricStats: []*endpointv3.EndpointLoadMetricStats{{MetricName: "queue", NumRequestsFinishedWithMetric: 2, TotalMetricValue: 6}},
			UpstreamEndpointStats: []*endpointv3.UpstreamEndpointStats{{
				Address: socketAddress("10.2.0.1", 80), TotalIssuedRequests: 60, TotalSuccessfulRequests: 50, TotalErrorRequests: 5,
				LoadMetricStats: []*endpointv3.EndpointLoadMetricStats{{MetricName: "queue", NumRequestsFinishedWithMetric: 2, TotalMetricValue: 6}},
			}},
		}},
	}}}
}

func fullHello() *healthv3.HealthCheckRequestOrEndpointHealthResponse {
	return &healthv3.HealthCheckRequestOrEndpointHealthResponse{
		RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{HealthCheckRequest: &healthv3.HealthCheckRequest{
			Node: fullNode(), Capability: &healthv3.Capability{HealthCheckProtocols: []healthv3.Capability_Protocol{healthv3.Capability_HTTP}},
		}},
	}
}

func fullHealth() *healthv3.HealthCheckRequestOrEndpointHealthResponse {
	e := []*healthv3.EndpointHealth{{
		Endpoint: &endpointv3.Endpoint{
			Address: socketAddress("10.2.0.1", 80), Hostname: "h",
			HealthCheckConfig: &endpointv3.Endpoint_HealthCheckConfig{PortValue: 80},
		},
		HealthStatus: corev3.HealthStatus_UNHEALTHY, HealthMetadata: &structpb.Struct{},
	}}
	return &healthv3.HealthCheckRequestOrEndpointHealthResponse{
		RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{EndpointHealthResponse: &healthv3.EndpointHealthResponse{
			EndpointsHealth: e, //nolint:staticcheck // builds of Envoy still send it
			ClusterEndpointsHealth: []*healthv3.ClusterEndpointsHealth{{
				ClusterName:             "checkout",
				LocalityEndpointsHealth: []*healthv3.LocalityEndpointsHealth{{Locality: &corev3.Locality{Region: "us", Zone: "a"}, EndpointsHealth: e}},
			}},
		}},
	}
}

func fullStatus() *statusv3.ClientStatusRequest {
	return &statusv3.ClientStatusRequest{Node: fullNode(), ExcludeResourceContents: true, NodeMatchers: []*matcherv3.NodeMatcher{{
		NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "g"}, IgnoreCase: true},
	}}}
}

// TestSweepOfFields clears every field of every message that comes in, in turn,
// and sets it to extremes, as the first message of a stream and as a later one:
// it is taken for what is left of it, or refused with what is wrong, and the
// others are served all the while. The table is what was refused.
func TestSweepOfFields(t *testing.T) {
	var table bytes.Buffer
	for _, x := range []struct {
		name, method string
		first, later proto.Message
	}{
		{"discovery request", sotwMethod, fullRequest(resource.EndpointsURL), fullRequest(resource.EndpointsURL)},
		{"discovery request for clusters", sotwMethod, nil, fullRequest(resource.ClusterURL)},
		{"discovery request, one type", edsMethod, fullRequest(resource.EndpointsURL), nil},
		{"delta discovery request", deltaMethod, fullDelta(), fullDelta()},
		{"load report", lrsMethod, fullReport(), fullReport()},
		{"checker's first message", hdsMethod, fullHello(), nil},
		{"checker's report", hdsMethod, nil, fullHealth()},
		{"client status request", csdsMethod, fullStatus(), fullStatus()},
	} {
		inSweep(t, func(w *sweepWorld) {
			if x.first != nil {
				w.sweep(x.method, nil, x.first).write(&table, x.name+", first")
			}
			if x.later != nil {
				w.sweep(x.method, hello(x.method), x.later).write(&table, x.name+", later")
			}
		})
	}
	golden(t, "sweep.golden", table.Bytes())
}

// hello is a good first message of a method.
func hello(method string) proto.Message {
	switch method {
	case lrsMethod:
		return fullReport()
	case hdsMethod:
		return fullHello()
	case csdsMethod:
		return fullStatus()
	case deltaMethod:
		return fullDelta()
	default:
		return fullRequest(resource.EndpointsURL)
	}
}

// sweep sends all mutations of a message, each on a stream of its own after a
// good message, if one is given.
func (w *sweepWorld) sweep(method string, before, full proto.Message) tally {
	w.t.Helper()
	out := tally{}
	for i, m := range mutations(full) {
		s := w.open(method)
		message := proto.CloneOf(full).ProtoReflect()
		if before != nil {
			s.send(w.encode(before))
			if s.answers() == 0 {
				w.t.Fatalf("%s: no answer to what is right: %v", method, s.err)
			}
		}
		if f := message.Descriptor().Fields().ByName("response_nonce"); f != nil && before != nil {
			message.Set(f, protoreflect.ValueOfString(s.nonce()))
		}
		m.apply(message)
		had := s.answers()
		s.send(w.encode(message.Interface()))
		if !s.clear() {
			w.t.Errorf("%s: %s %s: %v", method, m.path, m.what, s.err)
		}
		out.add(s.outcome(had), m)
		s.close()
		if i%20 == 0 {
			w.alive(m.path + " " + m.what)
		}
	}
	return out
}

func (w *sweepWorld) encode(m proto.Message) []byte {
	w.t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	return spoil(b)
}
