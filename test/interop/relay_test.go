package interop

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// The types of assignments.
const (
	endpointsURL   = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	endpointsURLv2 = "type.googleapis.com/envoy.api.v2.ClusterLoadAssignment"
)

// relay stands between a client and Isobar. It notes what the client says, and
// can spoil assignments on their way, because Isobar sends none that a client
// refuses.
type relay struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	loadstatsv3.UnimplementedLoadReportingServiceServer

	address string
	isobar  *grpc.ClientConn

	mu          sync.Mutex
	spoil       bool
	assignments int // that came from Isobar
	nacks       []string
	facts       facts
}

// facts are what a client was seen to do.
type facts struct {
	features                  []string // of the node in the first LRS message
	reports, idle             int      // LRS messages after the first; without clusters
	nodeLater                 bool     // a later LRS message has the node
	issued                    bool     // fills total_issued_requests
	dropped, droppedWithCause uint64   // total_dropped_requests, sum of dropped_requests
	streams                   int      // of load reports
	noInterval                bool     // a report without its measured interval
	yearOne                   bool     // a report whose interval begins in the year 1
	noServiceName             bool     // a report without cluster_service_name
	nodeLaterADS              bool     // a later discovery request has the node
}

func startRelay(t *testing.T, isobar string) *relay {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(isobar, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: lis.Addr().String(), isobar: conn}
	g := grpc.NewServer()
	// v2 has other names, but the same bytes in all that is looked at here.
	for name, desc := range map[string]grpc.ServiceDesc{
		"envoy.service.discovery.v2.AggregatedDiscoveryService": discoveryv3.AggregatedDiscoveryService_ServiceDesc,
		"envoy.service.load_stats.v2.LoadReportingService":      loadstatsv3.LoadReportingService_ServiceDesc,
	} {
		g.RegisterService(&desc, r)
		old := desc
		old.ServiceName = name
		g.RegisterService(&old, r)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(lis) // ends with Stop
	}()
	t.Cleanup(func() {
		g.Stop()
		<-done
		_ = conn.Close()
	})
	return r
}

func (r *relay) setSpoil(spoil bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spoil = spoil
}

// snapshot tells what was seen so far.
func (r *relay) snapshot() (facts, int, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.facts, r.assignments, slices.Clone(r.nacks)
}

// StreamAggregatedResources passes a discovery stream on.
func (r *relay) StreamAggregatedResources(down discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	up, cancel, err := above[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse](r, down)
	if err != nil {
		return err
	}
	defer cancel()
	return pass(cancel, down.Recv, up.Send, up.Recv, down.Send, r.request(), r.response)
}

// StreamLoadStats passes a stream of load reports on.
func (r *relay) StreamLoadStats(down loadstatsv3.LoadReportingService_StreamLoadStatsServer) error {
	up, cancel, err := above[loadstatsv3.LoadStatsRequest, loadstatsv3.LoadStatsResponse](r, down)
	if err != nil {
		return err
	}
	defer cancel()
	return pass(cancel, down.Recv, up.Send, up.Recv, down.Send, r.report(), func(*loadstatsv3.LoadStatsResponse) error { return nil })
}

// above opens the same method of Isobar.
func above[Q, A any](r *relay, down grpc.ServerStream) (*grpc.GenericClientStream[Q, A], context.CancelFunc, error) {
	method, ok := grpc.MethodFromServerStream(down)
	if !ok {
		return nil, nil, errors.New("a stream without a method")
	}
	ctx, cancel := context.WithCancel(down.Context())
	stream, err := r.isobar.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return &grpc.GenericClientStream[Q, A]{ClientStream: stream}, cancel, nil
}

// pass copies both directions of a stream, showing each message to its
// watcher first, until one of them ends.
func pass[Q, A any](
	cancel context.CancelFunc, recvDown func() (Q, error), sendUp func(Q) error, recvUp func() (A, error), sendDown func(A) error,
	request func(Q), response func(A) error,
) error {
	go func() { // ends when the handler has returned: recvDown fails then
		defer cancel()
		for {
			m, err := recvDown()
			if err != nil {
				return
			}
			request(m)
			if sendUp(m) != nil {
				return
			}
		}
	}()
	for {
		m, err := recvUp()
		if err == nil {
			if err = response(m); err == nil {
				err = sendDown(m)
			}
		}
		if err != nil {
			cancel()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// request notes what stands in discovery requests.
func (r *relay) request() func(*discoveryv3.DiscoveryRequest) {
	first := true
	return func(m *discoveryv3.DiscoveryRequest) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !first && m.GetNode() != nil {
			r.facts.nodeLaterADS = true
		}
		first = false
		if e := m.GetErrorDetail(); e != nil {
			r.nacks = append(r.nacks, e.GetMessage())
		}
	}
}

// response counts assignments and spoils them where that is wanted.
func (r *relay) response(m *discoveryv3.DiscoveryResponse) error {
	if m.GetTypeUrl() != endpointsURL && m.GetTypeUrl() != endpointsURLv2 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.assignments++
	if !r.spoil {
		return nil
	}
	for _, res := range m.GetResources() {
		var a endpointv3.ClusterLoadAssignment // with the same bytes in v2
		if err := proto.Unmarshal(res.GetValue(), &a); err != nil {
			return err
		}
		// The same locality twice in a priority: gRPC refuses that.
		a.Endpoints = append(a.Endpoints, proto.CloneOf(a.GetEndpoints()[0]))
		var err error
		if res.Value, err = proto.Marshal(&a); err != nil {
			return err
		}
	}
	return nil
}

// report notes what stands in load reports.
func (r *relay) report() func(*loadstatsv3.LoadStatsRequest) {
	first := true
	return func(m *loadstatsv3.LoadStatsRequest) {
		r.mu.Lock()
		defer r.mu.Unlock()
		f := &r.facts
		if first {
			first = false
			f.streams++
			f.features = features(m.GetNode())
			return
		}
		f.reports++
		f.nodeLater = f.nodeLater || m.GetNode() != nil
		if len(m.GetClusterStats()) == 0 {
			f.idle++
		}
		for _, c := range m.GetClusterStats() {
			f.noInterval = f.noInterval || c.GetLoadReportInterval().AsDuration() <= 0
			f.yearOne = f.yearOne || c.GetLoadReportInterval().AsDuration() == math.MaxInt64
			f.noServiceName = f.noServiceName || c.GetClusterServiceName() == ""
			f.dropped += c.GetTotalDroppedRequests()
			for _, d := range c.GetDroppedRequests() {
				f.droppedWithCause += d.GetDroppedCount()
			}
			for _, l := range c.GetUpstreamLocalityStats() {
				f.issued = f.issued || l.GetTotalIssuedRequests() > 0
			}
		}
	}
}

func features(n *corev3.Node) []string {
	out := slices.Clone(n.GetClientFeatures())
	slices.Sort(out)
	return out
}
