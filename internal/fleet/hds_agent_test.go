package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

var builds = map[string]fleet.EnvoyBuild{
	"now": fleet.EnvoyNow, "early 2021": fleet.EnvoyEarly2021, "2019": fleet.Envoy2019, "2018": fleet.Envoy2018,
}

// over serves health discovery in memory.
func over(t *testing.T, srv interface{ Register(r grpc.ServiceRegistrar) }) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	g := grpc.NewServer(grpc.ForceServerCodecV2(rpc.ServerCodec()))
	srv.Register(g)
	return testhelp.Serve(t, g)
}

func checked(names ...string) *isobar.Topology {
	top := &isobar.Topology{}
	for i, name := range names {
		top.Services = append(top.Services, isobar.Service{
			Name: name,
			HealthChecks: []isobar.HealthCheck{{
				Protocol: isobar.CheckTCP, TCP: &isobar.TCPCheck{}, Interval: time.Second, Timeout: time.Second,
				UnhealthyThreshold: 2, HealthyThreshold: 2,
			}},
			Localities: []isobar.ServiceLocality{
				{Locality: zoneA, Endpoints: []isobar.Endpoint{{Address: fmt.Sprintf("10.0.%d.1:80", i)}, {Address: fmt.Sprintf("10.0.%d.2:80", i)}}},
				{Locality: zoneB, Endpoints: []isobar.Endpoint{{Address: fmt.Sprintf("10.0.%d.3:80", i)}}},
			},
		})
	}
	top.Normalize()
	return top
}

func everything(top *isobar.Topology, id string) []health.Designation {
	d := health.Designation{Checker: id}
	for _, s := range top.Services {
		for _, l := range s.Localities {
			for _, e := range l.Endpoints {
				d.Endpoints = append(d.Endpoints, health.Key{Service: s.Name, Address: e.Address})
			}
		}
	}
	return []health.Designation{d}
}

// latest keeps the newest word on each endpoint, as the loop would.
type latest map[string]isobar.HealthStatus

func (l latest) collect(srv *hds.Server) {
	for _, r := range srv.Collect(time.Now()) {
		l[r.Service+" "+r.Address] = r.Status
	}
}

// An Envoy of every age connects, is told what to probe, reports, is told
// something else, loses its connection, comes back and is told nothing, and
// never gets what would crash or silence it.
func TestEnvoysOfEveryAgeThroughHealthDiscovery(t *testing.T) {
	for name, build := range builds {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				srv := hds.New(hds.Options{Interval: func() time.Duration { return 2 * time.Second }})
				conn, stop := over(t, srv)
				defer stop()
				defer srv.Stop()
				var outcomes sync.Map
				e, err := fleet.NewEnvoyChecker(fleet.EnvoyCheckerOptions{
					Conn: conn, ID: "envoy-1", Locality: zoneA, Build: build,
					Probe: func(_, address string, _ time.Time) fleet.ProbeOutcome {
						if o, ok := outcomes.Load(address); ok {
							return o.(fleet.ProbeOutcome)
						}
						return fleet.ProbePasses
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ran := make(chan error, 1)
				go func() { ran <- e.Run(ctx) }()

				both := checked("cart", "pay")
				srv.Designate(both, everything(both, "envoy-1"))
				outcomes.Store("10.0.1.2:80", fleet.ProbeHangs)
				pass(10 * time.Second)
				said := latest{}
				said.collect(srv)
				if len(said) != 6 || said["cart 10.0.0.1:80"] != isobar.Healthy || said["pay 10.0.1.2:80"] != isobar.Timeout {
					t.Errorf("after 10 s: %v", said)
				}
				outcomes.Store("10.0.0.3:80", fleet.ProbeFails)
				pass(5 * time.Second)
				said.collect(srv)
				if said["cart 10.0.0.3:80"] != isobar.Unhealthy {
					t.Errorf("a refusal is not seen: %v", said)
				}

				// pay goes while a probe of it hangs.
				cart := checked("cart")
				srv.Designate(cart, everything(cart, "envoy-1"))
				pass(20 * time.Second)
				if s := e.Stats(); s.Clusters != 1 || s.Hosts != 3 || s.Abrupt != 0 {
					t.Errorf("after pay went: %+v", s)
				}

				// The network breaks; the same specifier would silence old builds.
				before := e.Stats()
				e.Disconnect()
				pass(time.Minute)
				after := e.Stats()
				clear(said)
				said.collect(srv)
				if after.Streams != before.Streams+1 || after.Reports < before.Reports+10 || len(said) != 3 {
					t.Errorf("after a reconnect: %+v, before %+v, heard %v", after, before, said)
				}
				if got := srv.Checkers(time.Now()); len(got) != 1 || got[0].ID != "envoy-1" || got[0].Rejected != 0 {
					t.Errorf("checkers %+v", got)
				}

				// Nothing left: it goes on, and says so.
				srv.Designate(checked(), []health.Designation{{Checker: "envoy-1"}})
				pass(20 * time.Second)
				if s := e.Stats(); s.Clusters != 0 || s.Empty < 5 || s.Abrupt != 0 {
					t.Errorf("with nothing to probe: %+v", s)
				}
				if got := srv.Checkers(time.Now())[0]; time.Since(got.LastSeen) > 3*time.Second {
					t.Errorf("last seen %v ago", time.Since(got.LastSeen))
				}
				// And something again.
				srv.Designate(both, everything(both, "envoy-1"))
				pass(10 * time.Second)
				clear(said)
				said.collect(srv)
				if len(said) != 6 {
					t.Errorf("designated again: %v", said)
				}
				cancel()
				if err := <-ran; err != nil {
					t.Errorf("the server made it crash: %v", err)
				}
			})
		})
	}
}

// Designations that change all the time don't keep an Envoy from reporting.
func TestRestlessDesignationsDoNotSilence(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := hds.New(hds.Options{Interval: func() time.Duration { return 5 * time.Second }})
		conn, stop := over(t, srv)
		defer stop()
		defer srv.Stop()
		e, err := fleet.NewEnvoyChecker(fleet.EnvoyCheckerOptions{Conn: conn, ID: "envoy-1", Locality: zoneA})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- e.Run(ctx) }()
		one, two := checked("cart"), checked("cart", "pay")
		for range 100 {
			pass(500 * time.Millisecond)
			srv.Designate(one, everything(one, "envoy-1"))
			pass(500 * time.Millisecond)
			srv.Designate(two, everything(two, "envoy-1"))
		}
		if s := e.Stats(); s.Reports < 15 {
			t.Errorf("%d reports in 100 s: %+v", s.Reports, s)
		}
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// carelessServer sends one specifier, whatever it holds.
type carelessServer struct {
	healthv3.UnimplementedHealthDiscoveryServiceServer

	specs []*healthv3.HealthCheckSpecifier
	every time.Duration
}

func (s *carelessServer) Register(r grpc.ServiceRegistrar) {
	healthv3.RegisterHealthDiscoveryServiceServer(r, s)
}

func (s *carelessServer) StreamHealthCheck(g healthv3.HealthDiscoveryService_StreamHealthCheckServer) error {
	var first rpc.RawMessage
	if err := g.RecvMsg(&first); err != nil {
		return err
	}
	for _, spec := range s.specs {
		if err := g.Send(spec); err != nil {
			return err
		}
		select {
		case <-g.Context().Done():
		case <-time.After(s.every):
		}
	}
	<-g.Context().Done()
	return nil
}

// The fake Envoy is as easy to crash as the real one: else it would prove
// nothing.
func TestEnvoyCrashes(t *testing.T) {
	spec := func(change func(*healthv3.ClusterHealthCheck)) *healthv3.HealthCheckSpecifier {
		s := checked("cart").Services[0]
		c, err := convert.ClusterHealthCheckOf(&s, []convert.ProbeTarget{{Locality: zoneA, Endpoints: s.Localities[0].Endpoints}})
		if err != nil {
			t.Fatal(err)
		}
		change(c)
		return convert.HealthCheckSpecifier([]*healthv3.ClusterHealthCheck{c}, time.Second)
	}
	good := func(*healthv3.ClusterHealthCheck) {}
	check := func(change func(*corev3.HealthCheck)) []*healthv3.HealthCheckSpecifier {
		return []*healthv3.HealthCheckSpecifier{spec(func(c *healthv3.ClusterHealthCheck) { change(c.GetHealthChecks()[0]) })}
	}
	noInterval := spec(good)
	noInterval.Interval = nil
	for name, tc := range map[string]struct {
		specs []*healthv3.HealthCheckSpecifier
		build fleet.EnvoyBuild
		want  string // "" = it lives
	}{
		"all good":              {[]*healthv3.HealthCheckSpecifier{spec(good)}, fleet.Envoy2018, ""},
		"no interval":           {[]*healthv3.HealthCheckSpecifier{noInterval}, fleet.Envoy2019, "interval"},
		"no interval for a new": {[]*healthv3.HealthCheckSpecifier{noInterval}, fleet.EnvoyNow, ""},
		"no thresholds":         {check(func(h *corev3.HealthCheck) { h.HealthyThreshold = nil }), fleet.EnvoyNow, "thresholds"},
		"no timeout":            {check(func(h *corev3.HealthCheck) { h.Timeout = durationpb.New(0) }), fleet.EnvoyNow, "timeout"},
		"no checker":            {check(func(h *corev3.HealthCheck) { h.HealthChecker = nil }), fleet.EnvoyNow, "checker"},
		"gRPC":                  {check(func(h *corev3.HealthCheck) { h.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{} }), fleet.EnvoyNow, "HTTP/2"},
		"name in place of address": {[]*healthv3.HealthCheckSpecifier{spec(func(c *healthv3.ClusterHealthCheck) {
			c.GetLocalityEndpoints()[0].GetEndpoints()[0].GetAddress().GetSocketAddress().Address = "x.example"
		})}, fleet.EnvoyNow, "IP"},
		"empty locality": {[]*healthv3.HealthCheckSpecifier{spec(func(c *healthv3.ClusterHealthCheck) {
			c.GetLocalityEndpoints()[0].Endpoints = nil
		})}, fleet.EnvoyNow, "element 0"},
		"abrupt": {[]*healthv3.HealthCheckSpecifier{spec(good), convert.HealthCheckSpecifier(nil, time.Second)}, fleet.EnvoyNow, "running"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				conn, stop := over(t, &carelessServer{specs: tc.specs, every: 2500 * time.Millisecond})
				defer stop()
				e, err := fleet.NewEnvoyChecker(fleet.EnvoyCheckerOptions{
					Conn: conn, ID: "envoy-1", Build: tc.build,
					Probe: func(string, string, time.Time) fleet.ProbeOutcome { return fleet.ProbeHangs },
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				err = e.Run(ctx)
				if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, fleet.ErrEnvoyCrashed) || !strings.Contains(err.Error(), tc.want)) {
					t.Errorf("it ended with %v, want %q", err, tc.want)
				}
			})
		})
	}
}

// The same specifier on a new stream silences builds before July 2021, and an
// interval of 0 all of them.
func TestEnvoyFallsSilent(t *testing.T) {
	same := convert.HealthCheckSpecifier(nil, time.Second)
	never := convert.HealthCheckSpecifier(nil, 0)
	for name, tc := range map[string]struct {
		spec  *healthv3.HealthCheckSpecifier
		build fleet.EnvoyBuild
		talks bool
	}{
		"new build": {same, fleet.EnvoyNow, true}, "old build": {same, fleet.EnvoyEarly2021, false}, "interval 0": {never, fleet.EnvoyNow, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				conn, stop := over(t, &carelessServer{specs: []*healthv3.HealthCheckSpecifier{tc.spec}})
				defer stop()
				e, err := fleet.NewEnvoyChecker(fleet.EnvoyCheckerOptions{Conn: conn, ID: "envoy-1", Build: tc.build})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ran := make(chan error, 1)
				go func() { ran <- e.Run(ctx) }()
				pass(10 * time.Second)
				e.Disconnect()
				pass(40 * time.Second)
				before := e.Stats()
				pass(40 * time.Second)
				after := e.Stats()
				if after.Streams != 2 || (after.Reports > before.Reports) != tc.talks {
					t.Errorf("%+v after %+v", after, before)
				}
				cancel()
				if err := <-ran; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
