package server_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// attends returns the item with a code; without one the test fails.
func attends(t *testing.T, s admin.Status, code admin.Code) admin.Attention {
	t.Helper()
	i := slices.IndexFunc(s.Attention, func(a admin.Attention) bool { return a.Code == code })
	if i < 0 {
		t.Errorf("%s is not among\n%s", code, strings.Join(admin.AttentionTexts(s.Attention), "\n"))
		return admin.Attention{}
	}
	if a := s.Attention[i]; a.Severity != admin.Notice && s.OK {
		t.Errorf("ok beside %+v", a)
	}
	return s.Attention[i]
}

// quiet reports codes that should not be told.
func quiet(t *testing.T, s admin.Status, codes ...admin.Code) {
	t.Helper()
	for _, a := range s.Attention {
		if slices.Contains(codes, a.Code) {
			t.Errorf("told: %+v", a)
		}
	}
}

// status is what GET /v1/status tells.
func (w *world) status() (s admin.Status) {
	w.t.Helper()
	w.read("127.0.0.1", "/v1/status", &s)
	return s
}

// ticks lets a few decisions go by.
func (w *world) ticks(n int) {
	w.t.Helper()
	for range n {
		w.tick()
	}
}

// TestAttentionToClients: who is where nobody knows, asks for what does not exist,
// reports nothing, reports something else, or far too often.
func TestAttentionToClients(t *testing.T) {
	renamed := func(prefix string) func(*fleet.AgentOptions) {
		return func(o *fleet.AgentOptions) { o.ID = prefix + o.ID }
	}
	t.Run("in order", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(everywhere(100)...)
			w.ticks(20)
			if s := w.status(); !s.OK || len(s.Attention) != 0 || s.Coverage < 0.999 {
				t.Errorf("coverage %v, %q", s.Coverage, admin.AttentionTexts(s.Attention))
			}
		})
	})
	t.Run("in an unknown region", func(t *testing.T) {
		cfg := configuration(t)
		inWorld(t, cfg, func(w *world) {
			w.start(clients("us/a", 2, constant(100))...)
			w.start(clients("uz/a", 3, constant(30))...)
			w.ticks(4)
			a := attends(t, w.status(), admin.LocalityUnknown)
			if a.Severity != admin.Warning || a.Locality != loc("uz/a") || !strings.HasPrefix(a.Text, "3 clients in uz/a") || !strings.HasSuffix(a.Text, "did you mean us?") {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("in an unknown zone of a known region", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(clients("us/a", 2, constant(100))...)
			w.start(clients("us/z", 1, constant(30))...)
			w.ticks(4)
			if a := attends(t, w.status(), admin.LocalityUnknown); a.Severity != admin.Notice || !strings.Contains(a.Text, "did you mean us/") {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("a service that does not exist", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(clients("us/a", 1, constant(1), func(o *fleet.AgentOptions) { o.Services = []string{"chekout"} })...)
			w.ticks(2)
			if a := attends(t, w.status(), admin.ServiceUnknown); a.Service != "chekout" || !strings.Contains(a.Text, "checkout") {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("without load", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(clients("us/a", 3, constant(0))...)
			w.ticks(4)
			quiet(t, w.status(), admin.NoLoad)
			w.ticks(20)
			if a := attends(t, w.status(), admin.NoLoad); a.Severity != admin.Warning || a.Service != "checkout" {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("load under another name", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(clients("us/a", 3, constant(0))...)
			w.reportOf("checkout-v1", "us/a", func() (ok, failed uint64) { return 500, 0 })
			w.ticks(20)
			s := w.status()
			if a := attends(t, s, admin.NoLoad); a.Severity != admin.Warning || !strings.Contains(a.Text, "checkout-v1") {
				t.Errorf("%+v", a)
			}
			if a := attends(t, s, admin.ClusterUnknown); !strings.Contains(a.Text, `"checkout-v1"`) {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("silent", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(clients("us/a", 3, constant(300))...)
			w.start(clients("us/a", 1, constant(100), renamed("mute-"), func(o *fleet.AgentOptions) { o.Silent = true })...)
			w.ticks(12)
			s := w.status()
			a := attends(t, s, admin.ClientsSilent)
			if a.Client != "mute-us/a-0" || a.Locality != loc("us/a") || a.Service != "checkout" || !strings.HasPrefix(a.Text, "1 client in us/a subscribes to checkout") {
				t.Errorf("%+v", a)
			}
			if s.Coverage < 0.74 || s.Coverage > 0.76 {
				t.Errorf("coverage %v of three clients in four, want 0.75", s.Coverage)
			}
		})
	})
	t.Run("utilization is ignored", func(t *testing.T) {
		c := configuration(t)
		c.Services[0].ORCA.On = true
		inWorld(t, c, func(w *world) {
			w.start(clients("us/a", 2, constant(300))...)
			w.ticks(2)
			quiet(t, w.status(), admin.ORCAIgnored)
			w.start(clients("us/a", 1, constant(100), renamed("node-"), func(o *fleet.AgentOptions) { o.UserAgent = "gRPC Node Pure JS" })...)
			w.ticks(2)
			a := attends(t, w.status(), admin.ORCAIgnored)
			if a.Severity != admin.Notice || a.Service != "checkout" || !strings.HasPrefix(a.Text, "1 of 3 clients of checkout") || !strings.Contains(a.Text, "gRPC Node Pure JS") {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("silent alone", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(clients("us/a", 3, constant(300), func(o *fleet.AgentOptions) { o.Silent = true })...)
			w.ticks(12)
			s := w.status()
			attends(t, s, admin.ClientsSilent)
			quiet(t, s, admin.NoLoad) // it is told already
			if s.Coverage != 0 {
				t.Errorf("coverage %v of nobody", s.Coverage)
			}
		})
	})
	t.Run("excess reports", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			s, err := loadstatsv3.NewLoadReportingServiceClient(w.conn).StreamLoadStats(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			node := &corev3.Node{Id: "eager", Cluster: "web", Locality: protoLocality("us/a")}
			for i := range 1000 {
				if err := s.Send(&loadstatsv3.LoadStatsRequest{Node: node}); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					if _, err := s.Recv(); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.tick()
			if a := attends(t, w.status(), admin.ExcessReports); a.Client != "eager" {
				t.Errorf("%+v", a)
			}
			w.ticks(30)
			quiet(t, w.status(), admin.ExcessReports)
		})
	})
	t.Run("refusing, and behind", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(clients("us/a", 1, constant(100), renamed("no-"), func(o *fleet.AgentOptions) {
				o.Accept = func(*endpointv3.ClusterLoadAssignment) error { return errors.New("no") }
			})...)
			w.start(clients("us/a", 1, constant(100), renamed("late-"), func(o *fleet.AgentOptions) { o.PushDelay = 5 * time.Minute })...)
			w.ticks(12)
			s := w.status()
			if a := attends(t, s, admin.ClientsRefuse); a.Client != "no-us/a-0" {
				t.Errorf("%+v", a)
			}
			if a := attends(t, s, admin.ClientsBehind); a.Client != "late-us/a-0" {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("deviating", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(everywhere(300)...)
			w.start(clients("us/c", 5, constant(200), func(o *fleet.AgentOptions) { o.Split = fleet.OwnLocality(loc("eu/a")) })...)
			w.start(everywhere(300)...)
			w.start(clients("us/c", 5, constant(200), func(o *fleet.AgentOptions) {
				o.Split = func(*endpointv3.ClusterLoadAssignment) map[isobar.Locality]float64 {
					return map[isobar.Locality]float64{loc("us/a"): 0.2, loc("us/b"): 0.8}
				}
			})...)
			w.ticks(30)
			if a := attends(t, w.status(), admin.ClientsDeviate); a.Locality != loc("us/c") || a.Client != "" {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("one client deviates", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(everywhere(300)...)
			w.start(clients("us/a", 1, constant(200), renamed("stray-"), func(o *fleet.AgentOptions) {
				o.Split = func(*endpointv3.ClusterLoadAssignment) map[isobar.Locality]float64 {
					return map[isobar.Locality]float64{loc("eu/b"): 1}
				}
			})...)
			w.ticks(30)
			a := attends(t, w.status(), admin.ClientsDeviate)
			if a.Client != "stray-us/a-0" || !strings.Contains(a.Text, `checkout from us/a: client "stray-us/a-0"`) || !strings.Contains(a.Text, "all of its requests") {
				t.Errorf("%+v", a)
			}
			var list admin.ClientList
			w.read("127.0.0.1", "/v1/clients", &list)
			for i := range list.Clients {
				c := &list.Clients[i]
				if strays := c.ID == "stray-us/a-0"; strays != (len(c.Deviates) == 1) || strays && c.Deviates[0].Service != "checkout" {
					t.Errorf("%s: %+v", c.ID, c.Deviates)
				}
			}
			if len(list.Deviating) != 1 || list.Deviating[0].Locality != loc("us/a") || len(list.Deviating[0].Clients) != 1 {
				t.Errorf("%+v", list.Deviating)
			}
		})
	})
}

// TestAttentionToServices: demand that does not fit, what is held, and what operators
// and health checks took out.
func TestAttentionToServices(t *testing.T) {
	t.Run("demand does not fit", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			w.start(everywhere(4000)...)
			w.ticks(20)
			if a := attends(t, w.status(), admin.DemandDoesNotFit); !strings.HasPrefix(a.Text, "checkout: demand exceeds the ceilings: Isobar raises them by ") {
				t.Error(a.Text)
			}
		})
	})
	for down, are := range map[int]string{1: "is", 2: "are"} {
		t.Run(fmt.Sprintf("demand does not fit into what is healthy, without %d", down), func(t *testing.T) {
			cfg := configuration(t)
			all := 0
			for _, l := range cfg.Services[0].Localities {
				all += len(l.Endpoints)
			}
			for i := range down {
				cfg.Services[0].Localities[0].Endpoints[i].Health = isobar.Unhealthy
			}
			want := fmt.Sprintf("checkout: %d of %d endpoints %s not used (health), and demand exceeds the ceilings of the others: Isobar raises them by ", down, all, are)
			inWorld(t, cfg, func(w *world) {
				w.start(everywhere(4000)...)
				w.ticks(20)
				if a := attends(t, w.status(), admin.DemandDoesNotFit); !strings.HasPrefix(a.Text, want) {
					t.Errorf("%q, want %q", a.Text, want)
				}
			})
		})
	}
	t.Run("dropping", func(t *testing.T) {
		cfg := configuration(t)
		cfg.Services[0].MaxShed = 0.9
		inWorld(t, cfg, func(w *world) {
			w.start(everywhere(4000)...)
			w.ticks(40)
			if a := attends(t, w.status(), admin.Dropping); a.Severity != admin.Critical {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("more in a locality than it can serve", func(t *testing.T) {
		cfg := configuration(t)
		cfg.Services[0].Mode = isobar.ModeObserve
		inWorld(t, cfg, func(w *world) {
			w.start(clients("us/b", 5, constant(1200))...)
			w.ticks(20)
			if a := attends(t, w.status(), admin.LocalityOverloaded); a.Locality != loc("us/b") {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("reports stop", func(t *testing.T) {
		inWorld(t, configuration(t), func(w *world) {
			var mute atomic.Bool
			w.reports("us/a", func(seconds time.Duration) *endpointv3.ClusterStats {
				if mute.Load() {
					return nil
				}
				return &endpointv3.ClusterStats{ClusterName: "checkout", LoadReportInterval: durationpb.New(seconds), UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
					Locality: protoLocality("us/a"), TotalSuccessfulRequests: 500, TotalIssuedRequests: 500,
				}}}
			})
			w.ticks(10)
			quiet(t, w.status(), admin.InputMissing, admin.WeightsHeld)
			mute.Store(true)
			seen := map[admin.Code]bool{}
			for range 100 {
				w.tick()
				s := w.status()
				for _, a := range s.Attention {
					seen[a.Code] = true
				}
			}
			for _, code := range []admin.Code{admin.InputMissing, admin.WeightsHeld} {
				if !seen[code] {
					t.Errorf("%s was never told: %v", code, seen)
				}
			}
		})
	})
	t.Run("capacity and limits", func(t *testing.T) {
		cfg := configuration(t)
		cfg.Services[0].Limits = []isobar.Limit{{Metric: "queue_depth", Max: 10}}
		inWorld(t, cfg, func(w *world) {
			w.start(everywhere(300)...)
			w.start(clients("us/c", 5, constant(2000), func(o *fleet.AgentOptions) { o.Split = fleet.OwnLocality(loc("us/a")) })...)
			w.ticks(30)
			s := w.status()
			if a := attends(t, s, admin.LimitWithoutEffect); !strings.Contains(a.Text, "queue_depth") {
				t.Errorf("%+v", a)
			}
			if a := attends(t, s, admin.CapacityContradicted); a.Locality != loc("us/a") {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("paused", func(t *testing.T) {
		cfg := configuration(t)
		other := cfg.Services[0]
		other.Name = "search"
		cfg.Services = append(cfg.Services, other)
		cfg.Admin.Writable = true
		inWorld(t, cfg, func(w *world) {
			var out admin.Operated
			w.order("/v1/pause", `{"service": "search"}`, &out)
			if s := w.status(); !s.OK {
				t.Errorf("a service that is paused alone: %q", admin.AttentionTexts(s.Attention))
			}
			if a := attends(t, w.status(), admin.ServicePaused); a.Service != "search" || a.Severity != admin.Notice || a.Next != "isobar resume search" {
				t.Errorf("%+v", a)
			}
			w.order("/v1/pause", `{"service": "checkout"}`, &out)
			if a := attends(t, w.status(), admin.AllPaused); a.Severity != admin.Warning || a.Next != "isobar resume" {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("endpoints", func(t *testing.T) {
		cfg := checked(t)
		inWorld(t, cfg, func(w *world) {
			var tr truth
			w.checkers(&tr, fiveZones...)
			w.start(everywhere(100)...)
			w.settle(time.Minute)
			s := w.status()
			quiet(t, s, admin.EndpointsUnhealthy, admin.LocalityUnhealthy, admin.MassFailureHeld, admin.AllEndpointsDown, admin.CheckersShort)
			tr.set("10.0.0.1:80", fleet.ProbeFails)
			w.settle(time.Minute)
			if a := attends(t, w.status(), admin.EndpointsUnhealthy); a.Locality != loc("eu/a") || !strings.Contains(a.Text, "10.0.0.1:80") {
				t.Errorf("%+v", a)
			}
			for e := 1; e <= 4; e++ {
				tr.set(fmt.Sprintf("10.0.0.%d:80", e), fleet.ProbeFails)
			}
			w.settle(2 * time.Minute)
			attends(t, w.status(), admin.LocalityUnhealthy)
		})
	})
	t.Run("everything down at once", func(t *testing.T) {
		inWorld(t, checked(t), func(w *world) {
			var tr truth
			w.checkers(&tr, fiveZones...)
			w.start(everywhere(100)...)
			w.settle(time.Minute)
			for _, l := range w.server.Plan().Services[0].Spec.Localities {
				for _, e := range l.Endpoints {
					tr.set(e.Address, fleet.ProbeFails)
				}
			}
			w.settle(time.Minute)
			attends(t, w.status(), admin.MassFailureHeld)
			var out any
			w.operate(http.MethodPut, "127.0.0.1", "/v1/services/checkout/health/release", "", &out)
			w.settle(time.Minute)
			attends(t, w.status(), admin.AllEndpointsDown)
		})
	})
	t.Run("no checkers", func(t *testing.T) {
		inWorld(t, checked(t), func(w *world) {
			w.settle(time.Minute)
			w.checkers(&truth{}, "us/a")
			w.settle(time.Minute)
			attends(t, w.status(), admin.CheckersShort)
		})
	})
}

// TestAttentionToLimits: what is used to four fifths is told while there is room.
func TestAttentionToLimits(t *testing.T) {
	cfg := configuration(t)
	cfg.XDS.MaxStreams, cfg.XDS.Admission.PeerStreams = 10, 20
	inWorld(t, cfg, func(w *world) {
		w.start(clients("us/a", 7, constant(70))...)
		w.ticks(2)
		s := w.status()
		for _, a := range s.Attention {
			if a.Code == admin.BudgetNearlyUsed && strings.Contains(a.Text, "streams are open") {
				t.Errorf("7 of 10: %+v", a)
			}
		}
		w.start(clients("us/b", 1, constant(70))...)
		w.ticks(2)
		told := strings.Join(admin.AttentionTexts(w.status().Attention), "\n")
		attends(t, w.status(), admin.BudgetNearlyUsed)
		for _, want := range []string{"8 of 10 discovery streams are open: raise xds.max_streams", "8 of 10 load report streams are open"} {
			if !strings.Contains(told, want) {
				t.Errorf("%q is not among\n%s", want, told)
			}
		}
	})
	cfg.XDS.MaxStreams, cfg.XDS.Admission.PeerStreams = 0, 5
	inWorld(t, cfg, func(w *world) {
		w.start(clients("us/a", 4, constant(70))...)
		w.ticks(2)
		if a := attends(t, w.status(), admin.BudgetNearlyUsed); !strings.HasPrefix(a.Text, "4 of 5 streams of one kind that one client may use are used by the address") {
			t.Errorf("%+v", a)
		}
	})
}

// TestAttentionToState: what can't be written, and a clock that went back, which is
// critical only together.
func TestAttentionToState(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		disk := &fullDisk{Store: kept}
		runWorld(t, configuration(t), disk, func(w *world) {
			w.start(clients("us/a", 2, constant(100))...)
			w.ticks(3)
			quiet(t, w.status(), admin.ClockWentBack, admin.NotSaved)
		})
		if moved(t, kept, "2090") == 0 {
			t.Fatal("no times in the state")
		}
		cfg := configuration(t)
		runWith(t, cfg, server.Options{Store: disk, Log: slog.New(slog.DiscardHandler)}, func(w *world) {
			w.start(clients("us/a", 2, constant(100))...)
			w.ticks(3)
			if a := attends(t, w.status(), admin.ClockWentBack); a.Severity != admin.Warning || !strings.Contains(a.Text, ", from 2090-") {
				t.Errorf("%+v", a)
			}
			disk.full.Store(true)
			w.ticks(10)
			attends(t, w.status(), admin.NotSaved)
			if a := attends(t, w.status(), admin.ClockWentBack); a.Severity != admin.Critical {
				t.Errorf("%+v", a)
			}
			disk.full.Store(false)
			w.ticks(int(2 * time.Hour / interval))
			if s := w.status(); !s.OK {
				t.Errorf("with room on the disk, an hour later: %q", admin.AttentionTexts(s.Attention))
			}
		})
	})
}

// TestAttentionToTheStateDirectory: a state directory of which another one has taken the place is told within a
// minute, although no weight changes, and no longer once the first one is back.
func TestAttentionToTheStateDirectory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		kept, err := store.Open(dir, store.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = kept.Close() }()
		runWorld(t, configuration(t), kept, func(w *world) {
			w.start(clients("us/a", 2, constant(100))...)
			w.settle(2 * time.Minute)
			quiet(t, w.status(), admin.NotSaved)
			if err := errors.Join(os.Rename(dir, dir+".away"), os.CopyFS(dir, os.DirFS(dir+".away"))); err != nil {
				t.Fatal(err)
			}
			w.settle(time.Minute)
			if a := attends(t, w.status(), admin.NotSaved); !strings.Contains(a.Text, "another directory took the place of "+dir) {
				t.Errorf("%+v", a)
			}
			if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+".away", dir)); err != nil {
				t.Fatal(err)
			}
			w.settle(time.Minute)
			quiet(t, w.status(), admin.NotSaved)
		})
	})
}
