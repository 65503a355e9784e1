package server_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// failing are clients whose requests to a locality fail.
func failing(at string) func(*fleet.AgentOptions) {
	return func(o *fleet.AgentOptions) {
		o.Landing = func(_ string, l isobar.Locality) fleet.Fate {
			if l == loc(at) {
				return fleet.Failed
			}
			return fleet.Served
		}
	}
}

// TestAttentionToRequests: what of requests fails, and where.
func TestAttentionToRequests(t *testing.T) {
	t.Run("everything at a locality", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(clients("us/b", 4, constant(100), failing("us/b"))...)
			w.start(clients("us/a", 4, constant(100), func(o *fleet.AgentOptions) { o.ID = "near-" + o.ID }, failing("us/b"))...)
			for range 20 {
				w.tick()
				if s := w.status(); slices.ContainsFunc(s.Attention, func(a admin.Attention) bool { return a.Code == admin.LocalityFailing }) {
					break
				}
			}
			if a := attends(t, w.status(), admin.LocalityFailing); a.Locality != loc("us/b") || a.Service != "checkout" || a.Severity != admin.Critical {
				t.Errorf("%+v", a)
			}
			for range 20 {
				w.tick()
			}
			quiet(t, w.status(), admin.NoLoad, admin.ClientsSilent, admin.LocalityUnknown, admin.ServiceUnknown)
			attends(t, w.status(), admin.LocalityUnreachable)
		})
	})
	t.Run("everything from a locality", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(clients("us/a", 4, constant(100))...)
			w.start(clients("eu/a", 2, constant(20), func(o *fleet.AgentOptions) {
				o.Landing = func(string, isobar.Locality) fleet.Fate { return fleet.Failed }
			})...)
			w.ticks(6)
			if a := attends(t, w.status(), admin.SourceFailing); a.Locality != loc("eu/a") {
				t.Errorf("%+v", a)
			}
			attends(t, w.status(), admin.RequestsFailing)
		})
	})
	t.Run("the few requests from a locality", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(clients("us/a", 4, constant(100))...)
			var fails atomic.Bool
			fails.Store(true)
			w.reportOf("checkout", "eu/a", func() (ok, failed uint64) { // 0.6/s
				if fails.Load() {
					return 0, 3
				}
				return 3, 0
			})
			w.ticks(8)
			if a := attends(t, w.status(), admin.SourceFailing); a.Locality != loc("eu/a") || a.Service != "checkout" {
				t.Errorf("%+v", a)
			}
			if a := attends(t, w.status(), admin.LocalityFailing); a.Locality != loc("eu/a") {
				t.Errorf("%+v", a)
			}
			fails.Store(false)
			w.ticks(3)
			quiet(t, w.status(), admin.SourceFailing, admin.LocalityFailing)
		})
	})
	t.Run("a part at one locality", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(clients("us/a", 4, constant(600))...)
			w.start(clients("eu/a", 5, constant(20), func(o *fleet.AgentOptions) {
				if o.ID == "eu/a-0" {
					failing("eu/a")(o)
				}
			})...)
			w.ticks(12)
			s := w.status()
			a := attends(t, s, admin.LocalityFailsPartly)
			if a.Locality != loc("eu/a") || !strings.Contains(a.Text, "20% of the requests to eu/a fail") {
				t.Errorf("%+v", a)
			}
			quiet(t, s, admin.RequestsFailing)
		})
	})
	t.Run("one endpoint", func(t *testing.T) {
		cfg := configuration(t)
		cfg.XDS.EndpointLoad = true
		inWorld(t, cfg, func(w *world) {
			w.reportByEndpoint("us/a", func(_ string, i int) (ok, failed uint64) {
				if i == 0 {
					return 300, 200
				}
				return 500, 0
			})
			w.ticks(4)
			if a := attends(t, w.status(), admin.EndpointFailing); a.Locality != loc("us/a") || !strings.Contains(a.Text, "fails 40% of its requests, the others there 0%") {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("few requests", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			// One request a second, of which every twentieth fails: no single report has more
			// than one failure.
			var n atomic.Int64
			w.reportOf("checkout", "us/a", func() (ok, failed uint64) {
				if n.Add(1)%4 == 0 {
					return 4, 1
				}
				return 5, 0
			})
			w.ticks(40)
			if a := attends(t, w.status(), admin.RequestsFailing); !strings.Contains(a.Text, "of the last") {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("a locality that returns", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			var down atomic.Bool
			down.Store(true)
			breaks := func(o *fleet.AgentOptions) {
				o.Landing = func(_ string, l isobar.Locality) fleet.Fate {
					if down.Load() && l == loc("us/a") {
						return fleet.Failed
					}
					return fleet.Served
				}
			}
			w.start(clients("us/a", 4, constant(300), breaks)...)
			w.start(clients("us/b", 4, constant(300), breaks)...)
			w.ticks(10)
			attends(t, w.status(), admin.LocalityUnreachable)
			down.Store(false)
			seen := false
			for range 30 {
				w.tick()
				s := w.status()
				seen = seen || slices.ContainsFunc(s.Attention, func(a admin.Attention) bool { return a.Code == admin.LocalityReturning })
			}
			if s := w.status(); !seen || !s.OK {
				t.Errorf("%s was told: %v; now %q", admin.LocalityReturning, seen, admin.AttentionTexts(s.Attention))
			}
		})
	})
}

// reportOf opens a load report stream that tells each interval what count gives.
func (w *world) reportOf(cluster, source string, count func() (ok, failed uint64)) {
	w.reports(source, func(seconds time.Duration) *endpointv3.ClusterStats {
		ok, failed := count()
		return &endpointv3.ClusterStats{
			ClusterName: cluster, LoadReportInterval: durationpb.New(seconds),
			UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
				Locality: protoLocality(source), TotalSuccessfulRequests: ok, TotalErrorRequests: failed, TotalIssuedRequests: ok + failed,
			}},
		}
	})
}

// reportByEndpoint does the same for each endpoint of a locality of checkout.
func (w *world) reportByEndpoint(at string, count func(address string, i int) (ok, failed uint64)) {
	synctest.Wait()
	svc, _ := w.server.Plan().Service("checkout")
	var addresses []string
	for i := range svc.Spec.Localities {
		if l := &svc.Spec.Localities[i]; l.Locality == loc(at) {
			for _, e := range l.Endpoints {
				addresses = append(addresses, e.Address)
			}
		}
	}
	w.reports(at, func(seconds time.Duration) *endpointv3.ClusterStats {
		stats := &endpointv3.UpstreamLocalityStats{Locality: protoLocality(at)}
		for i, a := range addresses {
			ok, failed := count(a, i)
			stats.TotalSuccessfulRequests += ok
			stats.TotalErrorRequests += failed
			stats.TotalIssuedRequests += ok + failed
			host, _, _ := strings.Cut(a, ":")
			stats.UpstreamEndpointStats = append(stats.UpstreamEndpointStats, &endpointv3.UpstreamEndpointStats{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
				}}},
				TotalSuccessfulRequests: ok, TotalErrorRequests: failed, TotalIssuedRequests: ok + failed,
			})
		}
		return &endpointv3.ClusterStats{
			ClusterName: "checkout", LoadReportInterval: durationpb.New(seconds), UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{stats},
		}
	})
}

// reports opens a load report stream, and sends a report each interval until the
// world ends, but where there is none.
func (w *world) reports(source string, stats func(time.Duration) *endpointv3.ClusterStats) {
	w.t.Helper()
	s, err := loadstatsv3.NewLoadReportingServiceClient(w.conn).StreamLoadStats(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	hello := &loadstatsv3.LoadStatsRequest{Node: &corev3.Node{Id: "reporter-" + source, Cluster: "web", Locality: protoLocality(source)}}
	if err := s.Send(hello); err != nil {
		w.t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		for w.ctx.Err() == nil {
			select {
			case <-w.ctx.Done():
				return
			case <-time.After(interval):
			}
			one := stats(interval)
			if one == nil {
				continue
			}
			if s.Send(&loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{one}}) != nil {
				return
			}
		}
	}()
}

func protoLocality(s string) *corev3.Locality {
	l := loc(s)
	return &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}
