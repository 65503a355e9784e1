package interop

import (
	"context"
	"errors"
	"io"
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
	"google.golang.org/protobuf/types/known/anypb"
)

// endpointsURL is the type of assignments.
const endpointsURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// relay stands between a client and Isobar. It notes what the client says, and
// can spoil assignments on their way, because Isobar sends none that a client
// refuses.
type relay struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	loadstatsv3.UnimplementedLoadReportingServiceServer

	address string
	ads     discoveryv3.AggregatedDiscoveryServiceClient
	lrs     loadstatsv3.LoadReportingServiceClient

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
	noInterval                bool     // a report without its measured interval
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
	r := &relay{
		address: lis.Addr().String(),
		ads:     discoveryv3.NewAggregatedDiscoveryServiceClient(conn), lrs: loadstatsv3.NewLoadReportingServiceClient(conn),
	}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, r)
	loadstatsv3.RegisterLoadReportingServiceServer(g, r)
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
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := r.ads.StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	return pass(cancel, down.Recv, up.Send, up.Recv, down.Send, r.request(), r.response)
}

// StreamLoadStats passes a stream of load reports on.
func (r *relay) StreamLoadStats(down loadstatsv3.LoadReportingService_StreamLoadStatsServer) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := r.lrs.StreamLoadStats(ctx)
	if err != nil {
		return err
	}
	return pass(cancel, down.Recv, up.Send, up.Recv, down.Send, r.report(), func(*loadstatsv3.LoadStatsResponse) error { return nil })
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
	if m.GetTypeUrl() != endpointsURL {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.assignments++
	if !r.spoil {
		return nil
	}
	for i, res := range m.GetResources() {
		var a endpointv3.ClusterLoadAssignment
		if err := res.UnmarshalTo(&a); err != nil {
			return err
		}
		// The same locality twice in a priority: gRPC refuses that.
		a.Endpoints = append(a.Endpoints, proto.CloneOf(a.GetEndpoints()[0]))
		spoiled, err := anypb.New(&a)
		if err != nil {
			return err
		}
		m.Resources[i] = spoiled
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
