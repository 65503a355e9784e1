package fleet_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointsvc "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// xdsServer is the least management server that real clients accept: it
// answers every subscription with what was set, and records what clients say.
type xdsServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	endpointsvc.UnimplementedEndpointDiscoveryServiceServer
	loadstatsv3.UnimplementedLoadReportingServiceServer

	mu        sync.Mutex
	resources map[string]map[string]*anypb.Any // by type URL and name
	assigned  map[string]*anypb.Any            // for clients of one zone only, by zone
	version   int
	changed   chan struct{}
	nacks     []string
	nodes     []string
	reports   []*loadstatsv3.LoadStatsRequest
	loadStats *loadstatsv3.LoadStatsResponse
}

func newXDSServer() *xdsServer {
	return &xdsServer{resources: map[string]map[string]*anypb.Any{}, assigned: map[string]*anypb.Any{}, changed: make(chan struct{})}
}

func (s *xdsServer) register(g *grpc.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	endpointsvc.RegisterEndpointDiscoveryServiceServer(g, s)
	loadstatsv3.RegisterLoadReportingServiceServer(g, s)
}

// set puts a resource in force and pushes it.
func (s *xdsServer) set(t *testing.T, name string, m proto.Message) {
	t.Helper()
	res := asAny(t, m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resources[res.GetTypeUrl()] == nil {
		s.resources[res.GetTypeUrl()] = map[string]*anypb.Any{}
	}
	s.resources[res.GetTypeUrl()][name] = res
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *xdsServer) StreamEndpoints(stream endpointsvc.EndpointDiscoveryService_StreamEndpointsServer) error {
	return s.serve(stream)
}

func (s *xdsServer) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(stream)
}

type discoveryServerStream interface {
	Context() context.Context
	Send(resp *discoveryv3.DiscoveryResponse) error
	Recv() (*discoveryv3.DiscoveryRequest, error)
}

func (s *xdsServer) serve(stream discoveryServerStream) error {
	requests := make(chan *discoveryv3.DiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			req, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- req:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	zone := ""
	names := map[string][]string{}
	sent := map[string]int{}
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		for _, typ := range sortedKeys(names) {
			if err := s.push(stream, typ, zone, names[typ], sent); err != nil {
				return err
			}
		}
		select {
		case req, ok := <-requests:
			if !ok {
				return nil
			}
			s.note(req)
			if req.GetNode() != nil {
				zone = req.GetNode().GetLocality().GetZone()
			}
			if !slices.Equal(names[req.GetTypeUrl()], req.GetResourceNames()) {
				names[req.GetTypeUrl()] = req.GetResourceNames()
				sent[req.GetTypeUrl()] = 0
			}
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (s *xdsServer) note(req *discoveryv3.DiscoveryRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.GetNode() != nil {
		s.nodes = append(s.nodes, req.GetNode().GetId()+" "+req.GetNode().GetLocality().GetZone())
	}
	if req.GetErrorDetail() != nil {
		s.nacks = append(s.nacks, req.GetErrorDetail().GetMessage())
	}
}

func (s *xdsServer) push(stream discoveryServerStream, typ, zone string, names []string, sent map[string]int) error {
	s.mu.Lock()
	resp := &discoveryv3.DiscoveryResponse{
		TypeUrl: typ, VersionInfo: strconv.Itoa(s.version), Nonce: typ + strconv.Itoa(s.version),
	}
	fresh := sent[typ] != s.version
	for _, n := range names {
		r := s.resources[typ][n]
		if own := s.assigned[zone]; own.GetTypeUrl() == typ {
			r = own
		}
		if r != nil {
			resp.Resources = append(resp.Resources, r)
		}
	}
	sent[typ] = s.version
	s.mu.Unlock()
	if !fresh || len(resp.GetResources()) == 0 {
		return nil
	}
	return stream.Send(resp)
}

func (s *xdsServer) StreamLoadStats(stream loadstatsv3.LoadReportingService_StreamLoadStatsServer) error {
	for first := true; ; first = false {
		req, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has left
		}
		s.mu.Lock()
		resp := s.loadStats
		s.reports = append(s.reports, req)
		s.mu.Unlock()
		if first && resp != nil {
			if err := stream.Send(resp); err != nil {
				return err
			}
		}
	}
}

// setFor puts an assignment in force for the clients of one zone only.
func (s *xdsServer) setFor(t *testing.T, zone string, m proto.Message) {
	t.Helper()
	res := asAny(t, m)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned[zone] = res
}

// seen returns the NACK texts and load reports so far.
func (s *xdsServer) seen() (nacks []string, reports []*loadstatsv3.LoadStatsRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.nacks), slices.Clone(s.reports)
}

// overBufconn serves s in memory and returns a connection to it; both end with
// stop.
func overBufconn(t *testing.T, s *xdsServer) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	g := grpc.NewServer()
	s.register(g)
	return testhelp.Serve(t, g)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
