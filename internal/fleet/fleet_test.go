package fleet_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// asAny packs a message that is known to be good.
func asAny(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// setService puts listener, route and cluster of a service in force.
func (s *xdsServer) setService(t *testing.T, name string) {
	t.Helper()
	ads := &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
	s.set(t, name, &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{
		ApiListener: asAny(t, &hcmv3.HttpConnectionManager{
			RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
				Name: name,
				VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
					Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
					Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name}}},
				}}}},
			}},
			HttpFilters: []*hcmv3.HttpFilter{{
				Name:       "router",
				ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: asAny(t, &routerv3.Router{})},
			}},
		}),
	}})
	s.set(t, name, &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads, ServiceName: name},
		LbPolicy:             clusterv3.Cluster_ROUND_ROBIN,
		LrsServer:            &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}}},
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{LocalityConfigSpecifier: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}},
	})
}

// overTCP serves s on loopback until the test ends.
func overTCP(t *testing.T, s *xdsServer) (address string) {
	t.Helper()
	return s.serveTCP(t, "127.0.0.1:0")
}

func (s *xdsServer) serveTCP(t *testing.T, listen string) (address string) {
	t.Helper()
	lis, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	s.register(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(lis)
	}()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
	return lis.Addr().String()
}

func backend(t *testing.T, opts fleet.BackendOptions) *fleet.Backend {
	t.Helper()
	b, err := fleet.StartBackend(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Kill)
	return b
}

// atBackend is a locality of an assignment with real backends.
func atBackend(t *testing.T, priority, weight uint32, b *fleet.Backend) *endpointv3.LocalityLbEndpoints {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", b.Address())
	if err != nil {
		t.Fatal(err)
	}
	le := group(b.Locality(), priority, weight)
	le.LbEndpoints = append(le.LbEndpoints, endpoint("127.0.0.1", uint32(addr.Port), up))
	return le
}

// callMany sends n requests at once and counts where they landed; failures
// count under the empty address.
func callMany(t *testing.T, c *fleet.Client, n int) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	landed := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			address, err := c.Call(ctx)
			if err != nil {
				t.Logf("a request failed: %v", err)
				address = ""
			}
			mu.Lock()
			defer mu.Unlock()
			landed[address]++
		})
	}
	wg.Wait()
	return landed
}

// TestRealClient sees a real grpc-go client read its node from its own
// bootstrap, follow locality weights, feel the distance, fail over when a zone
// dies, and report what landed where.
func TestRealClient(t *testing.T) {
	t.Parallel()
	s := newXDSServer()
	s.loadStats = &loadstatsv3.LoadStatsResponse{Clusters: []string{"checkout"}, LoadReportingInterval: durationpb.New(100 * time.Millisecond)}
	fast := fleet.BackendOptions{Locality: zoneA, Concurrency: 100, ServiceTime: time.Millisecond, MaxQueue: 1000}
	a := backend(t, fast)
	fast.Locality = zoneC
	far := backend(t, fast)
	s.setService(t, "checkout")
	s.set(t, "checkout", assignment(atBackend(t, 0, 7500, a), atBackend(t, 0, 2500, far)))

	const rtt = 40 * time.Millisecond
	c, err := fleet.NewClient(fleet.ClientOptions{
		ID: "web-1", Cluster: "web", Locality: zoneA, Server: overTCP(t, s), Service: "checkout",
		RTT: func(address string) time.Duration {
			if address == far.Address() {
				return rtt
			}
			return 0
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Both zones are in use once the far one is connected.
	testhelp.Eventually(t, "something lands in the far zone", func() bool { return callMany(t, c, 10)[far.Address()] > 0 })
	inFar, failed := 0, 0
	for range 5 {
		landed := callMany(t, c, 200)
		inFar, failed = inFar+landed[far.Address()], failed+landed[""]
	}
	near(t, "share of the far zone", float64(inFar)/1000, 0.25, 0.06)
	if failed > 0 {
		t.Errorf("%d requests failed", failed)
	}
	feelDistance(t, c, far.Address(), rtt)

	a.Kill()
	testhelp.Eventually(t, "the client fails over", func() bool { return callMany(t, c, 10)[far.Address()] == 10 })
	testhelp.Eventually(t, "a load report names the far zone", func() bool { return reported(s, zoneC) })
	if nacks, _ := s.seen(); len(nacks) > 0 {
		t.Errorf("NACKs: %q", nacks)
	}
	if got := s.nodes[0]; got != "web-1 a" {
		t.Errorf("node %q, want web-1 in a", got)
	}
}

// TestClientOutlivesALateServer starts the client before the management server
// can be reached.
func TestClientOutlivesALateServer(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := lis.Addr().String()
	_ = lis.Close() // until the server takes it
	c, err := fleet.NewClient(fleet.ClientOptions{ID: "web-2", Locality: zoneA, Server: address, Service: "checkout"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Ready(ctx); err == nil {
		t.Fatal("ready without a server")
	}
	ready := make(chan error, 1)
	go func() { ready <- c.Ready(t.Context()) }()
	testhelp.Eventually(t, "the client has failed once", func() bool {
		_, err := c.Call(t.Context())
		return err != nil
	})
	s := newXDSServer()
	s.setService(t, "checkout")
	s.set(t, "checkout", assignment(atBackend(t, 0, 1, backend(t, fleet.BackendOptions{
		Locality: zoneA, Concurrency: 1, ServiceTime: time.Millisecond, MaxQueue: 10,
	}))))
	s.serveTCP(t, address)
	if err := <-ready; err != nil {
		t.Error(err)
	}
}

// feelDistance sends requests until one lands at an address, and sees that it
// took the round trip, and not several.
func feelDistance(t *testing.T, c *fleet.Client, address string, rtt time.Duration) {
	t.Helper()
	best := time.Hour
	for range 100 {
		began := time.Now()
		if got, err := c.Call(t.Context()); err == nil && got == address {
			best = min(best, time.Since(began))
		}
	}
	if best < rtt || best > 3*rtt {
		t.Errorf("the quickest answer from afar took %v, want a little over %v", best, rtt)
	}
}

// reported tells whether a load report has requests to a locality.
func reported(s *xdsServer, l isobar.Locality) bool {
	_, reports := s.seen()
	for _, r := range reports {
		for _, cs := range r.GetClusterStats() {
			for _, ls := range cs.GetUpstreamLocalityStats() {
				if ls.GetLocality().GetZone() == l.Zone && ls.GetTotalIssuedRequests() > 0 {
					return true
				}
			}
		}
	}
	return false
}
