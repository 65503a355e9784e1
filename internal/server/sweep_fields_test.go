package server_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	apiv2 "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	corev2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/core"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv2 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	loadstatsv2 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v2"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
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

// Methods of old API versions, and those that are no streams.
const (
	deltaMethodV2  = "/envoy.service.discovery.v2.AggregatedDiscoveryService/DeltaAggregatedResources"
	edsMethodV2    = "/envoy.api.v2.EndpointDiscoveryService/StreamEndpoints"
	hdsMethodV2    = "/envoy.service.discovery.v2.HealthDiscoveryService/StreamHealthCheck"
	sotwMethod2017 = "/envoy.api.v2.AggregatedDiscoveryService/StreamAggregatedResources"
	lrsMethod2017  = "/envoy.api.v2.EndpointDiscoveryService/StreamLoadStats"
	hdsMethod2017  = "/envoy.api.v2.HealthDiscoveryService/StreamHealthCheck"

	fetchMethod       = "/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints"
	fetchMethodV2     = "/envoy.api.v2.EndpointDiscoveryService/FetchEndpoints"
	fetchHealth       = "/envoy.service.health.v3.HealthDiscoveryService/FetchHealthCheck"
	fetchHealthV2     = "/envoy.service.discovery.v2.HealthDiscoveryService/FetchHealthCheck"
	fetchClientStatus = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus"
)

// older returns what a message says as an older type, which has the
// fields that it knows under the same numbers, and some that are gone since.
func older[T proto.Message](t *testing.T, m proto.Message, old T) T {
	t.Helper()
	b, err := proto.Marshal(m)
	if err == nil {
		err = proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, old)
	}
	if err != nil {
		t.Fatal(err)
	}
	return old
}

// built is a node of an old API version with the version that clients told then.
func built(n *corev2.Node) {
	n.BuildVersion = "d362e791eb9e4efa8d87f6d878740e72dc8330ac/1.5.0/Clean/RELEASE" //nolint:staticcheck // that is the point
}

func oldRequest(t *testing.T) *apiv2.DiscoveryRequest {
	t.Helper()
	m := older(t, fullRequest(resource.EndpointsURLv2), &apiv2.DiscoveryRequest{})
	built(m.GetNode())
	return m
}

func oldDelta(t *testing.T) *apiv2.DeltaDiscoveryRequest {
	t.Helper()
	m := older(t, fullDelta(), &apiv2.DeltaDiscoveryRequest{})
	m.TypeUrl = resource.EndpointsURLv2
	built(m.GetNode())
	return m
}

func oldReport(t *testing.T) *loadstatsv2.LoadStatsRequest {
	t.Helper()
	m := older(t, fullReport(), &loadstatsv2.LoadStatsRequest{})
	built(m.GetNode())
	return m
}

func oldHello(t *testing.T) proto.Message {
	t.Helper()
	m := older(t, fullHello(), &discoveryv2.HealthCheckRequestOrEndpointHealthResponse{})
	built(m.GetHealthCheckRequest().GetNode())
	return m
}

func oldHealth(t *testing.T) proto.Message {
	t.Helper()
	return older(t, fullHealth(), &discoveryv2.HealthCheckRequestOrEndpointHealthResponse{})
}

// TestSweepOfOldAPIVersions does to the messages of v2 and of 2017 what
// TestSweepOfFields does to those of today.
func TestSweepOfOldAPIVersions(t *testing.T) {
	var table bytes.Buffer
	for _, x := range []struct {
		name, method        string
		hello, first, later proto.Message
	}{
		{"discovery request, v2", sotwMethodV2, oldRequest(t), oldRequest(t), oldRequest(t)},
		{"discovery request of one type, v2", edsMethodV2, nil, oldRequest(t), nil},
		{"delta discovery request, v2", deltaMethodV2, oldDelta(t), oldDelta(t), oldDelta(t)},
		{"load report, v2", lrsMethodV2, oldReport(t), oldReport(t), oldReport(t)},
		{"checker's messages, v2", hdsMethodV2, oldHello(t), oldHello(t), oldHealth(t)},
		{"discovery request, 2017", sotwMethod2017, oldRequest(t), oldRequest(t), oldRequest(t)},
		{"load report, 2017", lrsMethod2017, oldReport(t), oldReport(t), oldReport(t)},
		{"checker's messages, 2017", hdsMethod2017, oldHello(t), oldHello(t), oldHealth(t)},
	} {
		inSweep(t, func(w *sweepWorld) {
			w.sweep(x.method, nil, x.first).write(&table, x.name+", first")
			if x.later != nil {
				w.sweep(x.method, x.hello, x.later).write(&table, x.name+", later")
			}
		})
	}
	golden(t, "sweep_apiversions.golden", table.Bytes())
}

// TestSweepOfCalls does the same to the requests of methods that are no streams.
func TestSweepOfCalls(t *testing.T) {
	var table bytes.Buffer
	for _, x := range []struct {
		method string
		full   proto.Message
	}{
		{fetchMethod, fullRequest(resource.EndpointsURL)},
		{fetchMethodV2, oldRequest(t)},
		{fetchHealth, fullHello()},
		{fetchHealthV2, oldHello(t)},
		{fetchClientStatus, fullStatus()},
	} {
		inSweep(t, func(w *sweepWorld) {
			w.sweepCalls(x.method, x.full).write(&table, x.method)
		})
	}
	golden(t, "sweep_calls.golden", table.Bytes())
}

// sweepCalls calls a method with all mutations of its request.
func (w *sweepWorld) sweepCalls(method string, full proto.Message) tally {
	w.t.Helper()
	out := tally{}
	for i, m := range mutations(full) {
		message := proto.CloneOf(full).ProtoReflect()
		m.apply(message)
		request := &rpc.Frame{Pieces: mem.BufferSlice{mem.SliceBuffer(w.encode(message.Interface()))}}
		err := w.conn.Invoke(w.t.Context(), method, request, &rpc.RawMessage{})
		if !isClear(err) {
			w.t.Errorf("%s: %s %s: %v", method, m.path, m.what, err)
		}
		outcome := "answered"
		if err != nil {
			outcome = status.Code(err).String()
		}
		out.add(outcome, m)
		if i%20 == 0 {
			w.alive(m.path + " " + m.what)
		}
	}
	return out
}

// isClear tells whether there is no refusal, or one that says what is wrong, to whom can
// fix it.
func isClear(err error) bool {
	st := status.Convert(err)
	switch st.Code() {
	case codes.OK:
		return true
	case codes.InvalidArgument:
		return len(st.Message()) > 10 && len(st.Message()) < 1000
	case codes.Internal: // what is no protobuf never comes in
		return strings.Contains(st.Message(), "unmarshal") && strings.Contains(st.Message(), "UTF-8")
	default:
		return false
	}
}
