package server_test

import (
	"bytes"
	"strings"
	"testing"

	apiv2 "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	corev2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/core"
	discoveryv2 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2"
	loadstatsv2 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Methods of old forms, and those that are no streams.
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

// older gives what a message says in the form of an older type, which has the
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

// built is a node of an old form with the version that clients told then.
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

// TestSweepOfOldForms does to the messages of v2 and of 2017 what
// TestSweepOfFields does to those of today.
func TestSweepOfOldForms(t *testing.T) {
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
	golden(t, "sweep_forms.golden", table.Bytes())
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
