package loadgen_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/loadgen"
	"github.com/isobar-xds/isobar/internal/plan"
)

const interval = time.Second

// serve starts the real server with services that have endpoints in two zones.
func serve(t *testing.T, services int) fleet.Management {
	t.Helper()
	topology := &isobar.Topology{Network: &isobar.Network{}}
	for s := range services {
		topology.Services = append(topology.Services, service(s, 80))
	}
	m, err := fleet.ServeIsobar(t.Context(), topology, &fleet.Scenario{Interval: interval})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func service(s, port int) isobar.Service {
	out := isobar.Service{Name: fmt.Sprintf("service-%02d", s)}
	for z, zone := range []string{"us/a", "us/b"} {
		out.Localities = append(out.Localities, isobar.ServiceLocality{
			Locality:  isobar.MustLocality(zone),
			Endpoints: []isobar.Endpoint{{Address: fmt.Sprintf("10.0.%d.%d:%d", z, s, port), MaxRate: 1000}},
		})
	}
	return out
}

func TestClientsAreServed(t *testing.T) {
	m := serve(t, 7)
	var phases []loadgen.Phase
	var last loadgen.Progress
	got, err := loadgen.Run(t.Context(), loadgen.Options{
		Target: m.XDSAddress(), Clients: 40, Connections: 3, Subscribe: 3,
		Ramp: 100 * time.Millisecond, Duration: 2500 * time.Millisecond, Reconnect: true, Patience: 20 * time.Second,
		Phase:    func(p loadgen.Phase) { phases = append(phases, p) },
		Progress: func(p loadgen.Progress) { last = p },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !got.OK() || got.FirstEDS.Count != 40 || got.Reconnect == nil || got.Reconnect.Count != 40 || len(got.Errors) > 0 {
		t.Errorf("not all were served: %+v", got)
	}
	if f := got.FirstEDS; f.P50MS <= 0 || f.P99MS < f.P50MS || f.MaxMS < f.P99MS {
		t.Errorf("times make no sense: %+v", f)
	}
	if got.Services != 7 || got.Subscribed != 3 || !slices.Equal(got.Localities, []string{"us/a", "us/b"}) {
		t.Errorf("learned %+v", got)
	}
	if got.ReportInterval != interval.Seconds() || got.Reports < 40 {
		t.Errorf("%d reports, each %v s", got.Reports, got.ReportInterval)
	}
	if want := []loadgen.Phase{loadgen.Connecting, loadgen.Holding, loadgen.Reconnecting}; !slices.Equal(phases, want) {
		t.Errorf("phases %v", phases)
	}
	// Streams that end may report once more after the last progress.
	if last.Phase != loadgen.Reconnecting || last.Done != 1 || last.Answered != 40 || last.Reports > got.Reports || last.Reports == 0 {
		t.Errorf("progress ended with %+v", last)
	}
}

// TestStreamForEachService: clients have a stream for each service, as Envoys outside
// of ADS and gRPC in Java, C++ and Python have. The server counts clients and streams
// apart.
func TestStreamForEachService(t *testing.T) {
	for _, on := range []loadgen.Streams{loadgen.EachEDS, loadgen.EachADS} {
		t.Run(string(on), func(t *testing.T) {
			m := serve(t, 7)
			ask := remote(t, m)
			var status admin.Status
			addresses, peers := 0, map[string]bool{}
			if runtime.GOOS == "linux" {
				addresses = 4
			}
			got, err := loadgen.Run(t.Context(), loadgen.Options{
				Target: m.XDSAddress(), Clients: 10, Connections: 10, Subscribe: 5, Streams: on, Addresses: addresses, Duration: 1500 * time.Millisecond,
				Reconnect: true, Patience: 20 * time.Second,
				Progress: func(p loadgen.Progress) {
					if p.Phase == loadgen.Holding && p.Done > 0.5 {
						var err error
						if status, err = ask.Status(t.Context()); err != nil {
							t.Error(err)
						}
						list, err := ask.Clients(t.Context())
						if err != nil {
							t.Error(err)
						}
						for _, c := range list.Clients {
							peers[c.Peer[:strings.LastIndexByte(c.Peer, ':')]] = true
						}
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(peers) != max(1, addresses) {
				t.Errorf("connections come from %v", peers)
			}
			if !got.OK() || got.FirstEDS.Count != 10 || got.Reconnect.Count != 10 || got.Streams != 50 || len(got.Errors) > 0 {
				t.Errorf("not all were served: %+v", got)
			}
			if c := status.Clients; c.Total != 10 || c.Streams != 50 || c.InSync != 10 || c.Reporting != 10 {
				t.Errorf("the server counts %+v", c)
			}
		})
	}
}

// TestLoadIsReported: the server sees the load that the clients claim, where it
// assigned it, and believes that they obey.
func TestLoadIsReported(t *testing.T) {
	m := serve(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	var e plan.Explanation
	ask := remote(t, m)
	got, err := loadgen.Run(ctx, loadgen.Options{
		Target: m.XDSAddress(), Clients: 10, Subscribe: 2,
		Localities: []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")},
		Services:   []string{"service-01", "service-00"},
		Rate:       80,
		Duration:   30 * time.Second,
		Progress: func(loadgen.Progress) {
			var err error
			if e, err = ask.Explain(t.Context(), "service-00", "us/a"); err != nil {
				t.Error(err)
			}
			if math.Abs(e.Demand.Rate-200) < 4 && e.Coverage == 1 {
				cancel()
			}
		},
	})
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(e.Demand.Rate-200) > 4 || got.NACKs > 0 || got.Reports < 10 {
		t.Errorf("demand %v, want 200; %+v", e.Demand, got)
	}
}

// TestFewRequestsLandAsAssigned: also of clients that report one request at a
// time, as many land in each locality as the shares say, and as many are dropped.
func TestFewRequestsLandAsAssigned(t *testing.T) {
	topology := &isobar.Topology{Network: &isobar.Network{}, Services: []isobar.Service{service(0, 80)}}
	s := &topology.Services[0]
	s.MaxShed = 0.5
	s.Localities[0].Endpoints[0].MaxRate, s.Localities[1].Endpoints[0].MaxRate = 50, 30 // 40 and 24 of 80 requests/s
	m, err := fleet.ServeIsobar(t.Context(), topology, &fleet.Scenario{Interval: interval})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	var e plan.Explanation
	ask, fits := remote(t, m), false
	_, err = loadgen.Run(ctx, loadgen.Options{
		Target: m.XDSAddress(), Clients: 80, Localities: []isobar.Locality{isobar.MustLocality("us/a")}, Rate: 1,
		Duration: time.Minute,
		Progress: func(loadgen.Progress) {
			var err error
			if e, err = ask.Explain(t.Context(), "service-00", "us/a"); err != nil {
				t.Error(err)
			}
			fits = len(e.Localities) == 2 && math.Abs(e.Drop-0.2) < 0.04
			for _, l := range e.Localities {
				fits = fits && l.ObservedShare > 0.2 && math.Abs(l.ObservedShare-l.Published) < 0.05
			}
			if fits {
				cancel()
			}
		},
	})
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	if !fits {
		t.Errorf("drop %v, localities %+v", e.Drop, e.Localities)
	}
}

// remote speaks with the server as operators do.
func remote(t *testing.T, m fleet.Management) *admin.Remote {
	t.Helper()
	r, err := admin.NewRemote("http://" + m.AdminAddress())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestChangesAreSeen: a change reaches every stream, and how far apart they got
// it is measured.
func TestChangesAreSeen(t *testing.T) {
	m := serve(t, 1)
	ask := remote(t, m)
	changed := false
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, err := loadgen.Run(ctx, loadgen.Options{
		Target: m.XDSAddress(), Clients: 30, Duration: 30 * time.Second,
		Progress: func(p loadgen.Progress) {
			if p.Phase == loadgen.Holding && !changed {
				changed = true
				if _, err := ask.SetHealth(t.Context(), &isobar.HealthOverride{Service: "service-00", Address: "10.0.0.0:80", Status: isobar.Draining}, false); err != nil {
					t.Error(err)
				}
			}
			if p.Pushes >= 30 {
				cancel()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Pushes < 30 || got.PushBytes == 0 || got.Spread.Count == 0 || got.Spread.MaxMS <= 0 {
		t.Errorf("the change was not seen: %+v", got)
	}
}

// TestNobodyAnswers: what can't be reached is an error that names it, and not a
// run that hangs.
func TestNobodyAnswers(t *testing.T) {
	_, err := loadgen.Run(t.Context(), loadgen.Options{Target: "127.0.0.1:1", Clients: 1})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
}

func TestServicesThatNobodyHas(t *testing.T) {
	m := serve(t, 1)
	got, err := loadgen.Run(t.Context(), loadgen.Options{
		Target: m.XDSAddress(), Clients: 2, Services: []string{"service-00", "nowhere"},
		Localities: []isobar.Locality{isobar.MustLocality("us/a")}, Patience: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.OK() || got.FirstEDS.Incomplete != 2 || got.FirstEDS.Silent != 0 {
		t.Errorf("an assignment that does not exist is not missed: %+v", got)
	}
}

// TestNoneOfTheServicesIsThere: without localities to go by, that ends the run
// before it begins.
func TestNoneOfTheServicesIsThere(t *testing.T) {
	m := serve(t, 1)
	_, err := loadgen.Run(t.Context(), loadgen.Options{
		Target: m.XDSAddress(), Clients: 2, Services: []string{"e", "d", "c", "b", "a"}, Patience: 300 * time.Millisecond,
	})
	if err == nil || !strings.Contains(err.Error(), "no assignment of a, b, c or 2 more within 300ms: does the server have these services?") {
		t.Errorf("got %v", err)
	}
}

// TestCutShort: clients that had yet to connect were not left without an answer,
// but that all are served is not known either.
func TestCutShort(t *testing.T) {
	m := serve(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, err := loadgen.Run(ctx, loadgen.Options{
		Target: m.XDSAddress(), Clients: 20, Ramp: time.Hour, Duration: time.Hour,
		Progress: func(p loadgen.Progress) {
			if p.Answered > 0 {
				cancel()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if f := got.FirstEDS; f.Count != 1 || f.Silent != 0 || f.NotBegun != 19 || got.OK() {
		t.Errorf("got %+v", f)
	}
}

// TestCutShortBeforeComingBack: that clients come back was asked for, so it is no
// success when they did not get to. Otherwise all that counts has been seen.
func TestCutShortBeforeComingBack(t *testing.T) {
	m := serve(t, 1)
	for _, back := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got, err := loadgen.Run(ctx, loadgen.Options{
			Target: m.XDSAddress(), Clients: 3, Duration: time.Hour, Reconnect: back,
			Progress: func(p loadgen.Progress) {
				if p.Phase == loadgen.Holding {
					cancel()
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got.FirstEDS.Count != 3 || got.NoReconnect != back || got.OK() == back {
			t.Errorf("to come back %v: got %+v", back, got)
		}
	}
}

func TestBadOptions(t *testing.T) {
	tests := []struct {
		name string
		opts loadgen.Options
		want string
	}{
		{"no target", loadgen.Options{Clients: 1}, "no target"},
		{"no clients", loadgen.Options{Target: "x:1"}, "0 clients, want 1 to 100000"},
		{"connections", loadgen.Options{Target: "x:1", Clients: 2, Connections: 3}, "3 connections for 2 clients"},
		{"crowded", loadgen.Options{Target: "x:1", Clients: 2000, Connections: 1}, "2000 clients of 2 streams on a connection"},
		{"many streams", loadgen.Options{Target: "x:1", Clients: 100, Subscribe: 10, Streams: loadgen.EachEDS, Connections: 1}, "100 clients of 11 streams on a connection"},
		{"streams", loadgen.Options{Target: "x:1", Clients: 2, Streams: "lds"}, `streams "lds"`},
		{"subscribe", loadgen.Options{Target: "x:1", Clients: 2, Subscribe: -1}, "-1 services"},
		{"rate", loadgen.Options{Target: "x:1", Clients: 2, Rate: math.NaN()}, "a rate of NaN"},
		{"duration", loadgen.Options{Target: "x:1", Clients: 2, Duration: -1}, "must not be negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := loadgen.Run(t.Context(), tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
