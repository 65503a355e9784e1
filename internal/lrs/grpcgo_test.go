package lrs_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// fixedADS answers every request with the resources of its type.
type fixedADS struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	resources map[string]*anypb.Any // by type URL
}

func (s *fixedADS) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has left
		}
		if req.GetErrorDetail() != nil {
			return status.Errorf(codes.Internal, "the client rejects %s: %s", req.GetTypeUrl(), req.GetErrorDetail().GetMessage())
		}
		r := s.resources[req.GetTypeUrl()]
		if req.GetResponseNonce() != "" || r == nil {
			continue
		}
		err = stream.Send(&discoveryv3.DiscoveryResponse{VersionInfo: "1", Nonce: "1", TypeUrl: r.GetTypeUrl(), Resources: []*anypb.Any{r}})
		if err != nil {
			return err
		}
	}
}

// backend answers every call and says how busy it is.
func backend(t *testing.T, utilization float64) string {
	t.Helper()
	return testhelp.Loopback(t, grpc.NewServer(orca.CallMetricsServerOption(nil), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
			return err
		}
		orca.CallMetricsRecorderFromContext(stream.Context()).SetApplicationUtilization(utilization)
		return stream.SendMsg(new(emptypb.Empty))
	})))
}

func (s *fixedADS) set(t *testing.T, m proto.Message, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	s.resources[a.GetTypeUrl()] = a
}

// manage serves discovery and load reporting for one service with two zones.
func manage(t *testing.T, srv *lrs.Server, svc *isobar.Service, a *isobar.Assignment) string {
	t.Helper()
	ads := &fixedADS{resources: map[string]*anypb.Any{}}
	for _, kind := range []resource.Kind{resource.Cluster, resource.Listener, resource.Route} {
		m, err := resource.StaticOf(kind, svc, svc.Name, true)
		ads.set(t, m, err)
	}
	endpoints, err := resource.Assignment(a)
	ads.set(t, endpoints, err)
	g := grpc.NewServer(grpc.ForceServerCodecV2(rpc.ServerCodec()))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, ads)
	srv.Register(g)
	return testhelp.Loopback(t, g)
}

func dialXDS(t *testing.T, server, service string) *grpc.ClientConn {
	t.Helper()
	bootstrap, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri": server, "channel_creds": []any{map[string]string{"type": "insecure"}}, "server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{"id": "web-1", "cluster": "web", "locality": map[string]string{"region": "us-east", "zone": "a"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+service, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// A real grpc-go client reports what it sent, dropped and heard by ORCA.
func TestGRPCGoReports(t *testing.T) {
	near, far := isobar.MustLocality("us-east/a"), isobar.MustLocality("us-east/b")
	group := func(l isobar.Locality, address string) *isobar.EndpointGroup {
		return &isobar.EndpointGroup{Locality: l, Endpoints: []isobar.WeightedEndpoint{{Address: address, Weight: 1}}}
	}
	assignment := &isobar.Assignment{
		Service: "checkout", Source: near, Drop: 0.2, OverprovisioningFactor: 140,
		Priorities: [][]isobar.LocalityWeight{{
			{EndpointGroup: group(near, backend(t, 0.3)), Weight: 7000},
			{EndpointGroup: group(far, backend(t, 0.9)), Weight: 3000},
		}},
	}
	srv := lrs.New(lrs.Options{Interval: every(time.Second), Services: names("checkout")})
	conn := dialXDS(t, manage(t, srv, &isobar.Service{Name: "checkout", ORCA: isobar.ORCA{On: true}}, assignment), "checkout")

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := caller{conn: conn, answered: map[string]uint64{}}
	for len(c.answered) < 2 { // as long as it reaches one locality only, all calls go there
		c.call(ctx, t)
	}
	nearby := assignment.Priorities[0][0].Endpoints[0].Address
	before := c.answered[nearby]
	const calls = 1000
	for range calls {
		c.call(ctx, t)
	}
	got := gather(ctx, t, srv, c.made)
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if got.dropped != c.dropped || c.dropped < c.made/10 || c.dropped > c.made*3/10 {
		t.Errorf("%d drops reported of %d, of %d calls, want about a fifth", got.dropped, c.dropped, c.made)
	}
	if got.sites[near].Issued != c.answered[nearby] {
		t.Errorf("%d requests were issued nearby, and %d answered", got.sites[near].Issued, c.answered[nearby])
	}
	if share := float64(c.answered[nearby]-before) / (calls * 0.8); share < 0.6 || share > 0.8 {
		t.Errorf("a share of %v was issued nearby, want about 0.7", share)
	}
	for l, want := range map[isobar.Locality]float64{near: 0.3, far: 0.9} {
		if got := got.utilization[l]; got < want-1e-6 || got > want+1e-6 {
			t.Errorf("utilization of %v = %v, want %v", l, got, want)
		}
	}
	if got.node.ID != "web-1" || got.node.Agent != load.AgentGRPC || got.node.Locality != near {
		t.Errorf("node %+v", got.node)
	}
}

// caller makes calls one after the other.
type caller struct {
	conn          *grpc.ClientConn
	made, dropped uint64
	answered      map[string]uint64 // by address of the backend
}

func (c *caller) call(ctx context.Context, t *testing.T) {
	t.Helper()
	var from peer.Peer
	err := c.conn.Invoke(ctx, "/test/Call", new(emptypb.Empty), new(emptypb.Empty), grpc.WaitForReady(true), grpc.Peer(&from))
	c.made++
	switch {
	case err == nil:
		c.answered[from.Addr.String()]++
	case status.Code(err) == codes.Unavailable:
		c.dropped++
	default:
		t.Fatal(err)
	}
}

// gathered adds up what one client reported.
type gathered struct {
	node        load.Node
	dropped     uint64
	sites       map[isobar.Locality]load.LocalityReport
	utilization map[isobar.Locality]float64 // of the newest report
}

// gather collects until as many requests are reported as were made.
func gather(ctx context.Context, t *testing.T, srv *lrs.Server, want uint64) gathered {
	t.Helper()
	g := gathered{sites: map[isobar.Locality]load.LocalityReport{}, utilization: map[isobar.Locality]float64{}}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	total := uint64(0)
	for total < want {
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d requests were reported in time", total, want)
		case now := <-tick.C:
			for _, w := range srv.Collect(now) {
				g.node = w.Node
				for _, r := range w.Reports {
					total += g.add(t, &r)
				}
			}
		}
	}
	return g
}

func (g *gathered) add(t *testing.T, r *load.Report) (requests uint64) {
	t.Helper()
	for _, s := range r.Services {
		if s.Service != "checkout" || s.Interval <= 0 || s.Interval > 2*time.Minute {
			t.Errorf("service %q over %v", s.Service, s.Interval)
		}
		g.dropped += s.Dropped
		requests += s.Dropped
		for _, l := range s.Localities {
			x := g.sites[l.Where()]
			x.Issued += l.Issued
			g.sites[l.Where()] = x
			requests += l.Issued
			if l.Details == nil {
				continue
			}
			for _, m := range l.Details.Metrics {
				if m.Name == load.MetricApplication {
					g.utilization[l.Where()] = m.Total / float64(m.Requests)
				}
			}
		}
	}
	return requests
}
