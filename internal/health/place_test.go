package health_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

func TestPlaceSpreadsOverNearZones(t *testing.T) {
	in := health.PlacementInput{
		Topology: topology(service("web", 4, zoneA, zoneF)),
		Checkers: checkersIn(2, zoneA, zoneB, zoneC, zoneF),
	}
	p := health.Place(in)
	if len(p.Shortfalls) > 0 {
		t.Fatalf("shortfalls %v", p.Shortfalls)
	}
	for i := range 4 {
		near := designated(&p, health.Key{Service: "web", Address: fmt.Sprintf("10.0.0.%d:80", i)})
		if len(near) != 3 || near[0][:4] != "eu/a" || near[1][:4] != "eu/b" || near[2][:4] != "eu/c" {
			t.Errorf("endpoint %d in eu/a: %v, want one checker of each zone of its region", i, near)
		}
		// us/f has two checkers at home; the third is in another zone.
		far := designated(&p, health.Key{Service: "web", Address: fmt.Sprintf("10.1.0.%d:80", i)})
		if len(far) != 3 || far[1] != "us/f-0" || far[2] != "us/f-1" {
			t.Errorf("endpoint %d in us/f: %v, want both of its zone and one more", i, far)
		}
	}
}

func TestShortfalls(t *testing.T) {
	grpcOnly := service("api", 1, zoneA)
	grpcOnly.HealthChecks[0].Protocol = isobar.CheckGRPC
	fast := service("fast", 1, zoneA)
	fast.HealthChecks[0].Interval = 250 * time.Millisecond
	fastest := service("fastest", 1, zoneA)
	fastest.HealthChecks[0].Interval = 100 * time.Millisecond
	strict := service("strict", 1, zoneA)
	strict.HealthChecks[0].Interval = 100 * time.Millisecond
	strict.Checkers = isobar.Checkers{Count: 4, Domains: 3}
	lone := service("lone", 1, zoneA)
	lone.Checkers = isobar.Checkers{Count: 1}
	one := service("one", 1, zoneA)
	one.Checkers = isobar.Checkers{Count: 3, Domains: 1}
	envoys := checkersIn(1, zoneA, zoneB, zoneC)
	for i := range envoys {
		envoys[i].Protocols = health.ProtocolsOf(isobar.CheckHTTP, isobar.CheckTCP)
	}
	secure, ranged := service("vault", 1, zoneA), service("vault", 1, zoneA)
	secure.HealthChecks[0].TLS = true
	ranged.Localities[0].Endpoints[0].Check = &isobar.EndpointCheck{Port: 9000}
	late := slices.Clone(envoys) // one of them speaks v2
	late[0].Protocols |= health.SpeaksV2
	for _, row := range []struct {
		name     string
		spec     isobar.Service
		checkers []health.Checker
		limits   health.Limits
		got      int
		why      string
	}{
		{"none", service("web", 1, zoneA), nil, health.Limits{}, 0, "no checker is connected"},
		{"unfit", grpcOnly, envoys, health.Limits{}, 0, "no connected checker supports grpc checks"},
		{"untold", secure, late, health.Limits{}, 0, "no connected checker supports tcp checks with API v3"},
		{"half told", ranged, late, health.Limits{}, 1, "too few connected checkers support tcp checks with API v2 or later: 1"},
		{"few", service("web", 1, zoneA), checkersIn(1, zoneA, zoneB), health.Limits{}, 2, "too few connected checkers support tcp checks: 2"},
		{"one zone", service("web", 1, zoneA), checkersIn(5, zoneA), health.Limits{}, 3, "in 1 zone only; `checkers: {domains: 1}` accepts that"},
		{"one zone accepted", one, checkersIn(5, zoneA), health.Limits{}, 3, ""},
		{"budget", fast, envoys, health.Limits{}, 2, "more checkers would probe it too often: each makes 4 probes/s"},
		{"as many as agree", fastest, envoys, health.Limits{}, 2, "more checkers would probe it too often: each makes 10 probes/s"},
		{"as many as agree in zones", strict, envoys, health.Limits{}, 3, "more checkers would probe it too often: each makes 10 probes/s"},
		{"limit", service("web", 10, zoneA), envoys, health.Limits{CheckerRate: 1}, 2, "checkers are at their limit of 1 probes/s"},
		{"contradiction", lone, envoys, health.Limits{}, 1, "1 checker can't be in 2 zones"},
		{"enough", service("web", 1, zoneA), envoys, health.Limits{}, 3, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := health.PlacementInput{Topology: topology(row.spec), Checkers: row.checkers, Limits: row.limits}
			p := health.Place(in)
			if in.Previous = p; !reflect.DeepEqual(health.Place(in), p) {
				t.Error("with nothing left to do it gives something else")
			}
			if got := len(designated(&p, health.Key{Service: row.spec.Name, Address: "10.0.0.0:80"})); got != row.got {
				t.Errorf("%d checkers, want %d", got, row.got)
			}
			why := ""
			if len(p.Shortfalls) > 0 {
				why = p.Shortfalls[len(p.Shortfalls)-1].Why
			}
			if !strings.Contains(why, row.why) || (why == "") != (row.why == "") {
				t.Errorf("why %q, want %q", why, row.why)
			}
		})
	}
}

func TestWhatIsNotPlaced(t *testing.T) {
	s := service("web", 3, zoneA)
	s.Localities[0].Endpoints[1].Check = &isobar.EndpointCheck{Disabled: true}
	s.Localities[0].Endpoints[2].Address = s.Localities[0].Endpoints[0].Address // a damaged topology
	unchecked := service("static", 3, zoneA)
	unchecked.HealthChecks = nil
	p := health.Place(health.PlacementInput{Topology: topology(s, unchecked), Checkers: append(checkersIn(1, zoneA, zoneB, zoneC), checkersIn(1, zoneA)...)})
	if len(p.Designations) != 3 {
		t.Fatalf("%d checkers, want 3: of two with one id one counts", len(p.Designations))
	}
	for _, d := range p.Designations {
		if !slices.Equal(d.Endpoints, []health.Key{{Service: "web", Address: "10.0.0.0:80"}}) {
			t.Errorf("%s: %v", d.Checker, d.Endpoints)
		}
	}
	if p := health.Place(health.PlacementInput{Checkers: checkersIn(1, zoneA)}); len(p.Designations) != 1 || len(p.Of("eu/a-0")) != 0 || p.Of("x") != nil {
		t.Errorf("without a topology: %+v", p)
	}
}

func TestScarceCheckersAreShared(t *testing.T) {
	// Two checkers for each of 30 endpoints are all that the limit allows.
	p := health.Place(health.PlacementInput{
		Topology: topology(service("web", 10, zoneA, zoneB, zoneC)), Checkers: checkersIn(1, zoneA, zoneB, zoneC), Limits: health.Limits{CheckerRate: 4},
	})
	if len(p.Shortfalls) != 30 {
		t.Fatalf("%d shortfalls, want 30", len(p.Shortfalls))
	}
	for _, s := range p.Shortfalls {
		if s.Checkers != 2 || s.Domains != 2 {
			t.Errorf("%+v, want two checkers in two zones", s)
		}
	}
}

func TestADesignationStays(t *testing.T) {
	top := topology(service("web", 30, zoneA, zoneB))
	far := checkersIn(2, zoneC, zoneF)
	p := health.Place(health.PlacementInput{Topology: top, Checkers: far})
	near := append(checkersIn(2, zoneA, zoneB), far...)
	next := health.Place(health.PlacementInput{Topology: top, Checkers: near, Previous: p})
	moved := 0
	for _, d := range p.Designations {
		moved += len(d.Endpoints) - len(next.Of(d.Checker))
	}
	// 180 designations over 8 checkers: 1.25 times the mean is 28.
	if want := 180 - 4*28; moved != want {
		t.Errorf("%d designations moved, want %d: the nearer ones take over what is above the cap", moved, want)
	}
	unfit := slices.Clone(near)
	unfit[0].Protocols = 0
	last := health.Place(health.PlacementInput{Topology: top, Checkers: unfit, Previous: next})
	if len(last.Of(unfit[0].ID)) != 0 || len(last.Shortfalls) != 0 {
		t.Errorf("a checker that can't probe keeps %d endpoints", len(last.Of(unfit[0].ID)))
	}
	lower := health.Place(health.PlacementInput{Topology: top, Checkers: near, Previous: next, Limits: health.Limits{CheckerRate: 4}})
	for _, d := range lower.Designations {
		if len(d.Endpoints) > 20 {
			t.Errorf("%s: %d endpoints every 5 s, above 4 probes/s", d.Checker, len(d.Endpoints))
		}
	}
	fewer := service("web", 30, zoneA, zoneB)
	fewer.Checkers.Count = 2
	p = health.Place(health.PlacementInput{Topology: topology(fewer), Checkers: near, Previous: next})
	if got := designated(&p, health.Key{Service: "web", Address: "10.0.0.3:80"}); len(got) != 2 || len(p.Shortfalls) != 0 {
		t.Errorf("%v, want 2 checkers in 2 zones", got)
	}
}

func TestAZoneThatComesBackIsUsed(t *testing.T) {
	top := topology(service("web", 10, zoneA))
	p := health.Place(health.PlacementInput{Topology: top, Checkers: checkersIn(3, zoneA)})
	if len(p.Shortfalls) != 10 {
		t.Fatalf("%d shortfalls, want 10", len(p.Shortfalls))
	}
	p = health.Place(health.PlacementInput{Topology: top, Checkers: append(checkersIn(3, zoneA), checker("b", zoneB)), Previous: p})
	if len(p.Shortfalls) != 0 || len(p.Of("b")) != 10 {
		t.Errorf("%d shortfalls, %d endpoints for the checker in the second zone; want 0 and 10", len(p.Shortfalls), len(p.Of("b")))
	}
}

// TestTheOrderOfArrivalDoesNotDecide: checkers come one by one, zone after
// zone, and at last every endpoint has one in each of three, so that any zone
// may be cut off and the other two still agree.
func TestTheOrderOfArrivalDoesNotDecide(t *testing.T) {
	top := topology(service("web", 30, zoneA, zoneB))
	all := checkersIn(2, zoneA, zoneB, zoneC)
	var p health.Placement
	for i := range all {
		p = health.Place(health.PlacementInput{Topology: top, Checkers: all[:i+1], Previous: p})
	}
	zone := map[string]isobar.Locality{}
	for i := range all {
		zone[all[i].ID] = all[i].Zone()
	}
	for i := range 60 {
		seen := map[isobar.Locality]bool{}
		for _, id := range designated(&p, health.Key{Service: "web", Address: top.Services[0].Localities[i/30].Endpoints[i%30].Address}) {
			seen[zone[id]] = true
		}
		if len(seen) != 3 {
			t.Errorf("endpoint %d has checkers in %d zones, want 3", i, len(seen))
		}
	}
	// A far zone is not worth it.
	p = health.Place(health.PlacementInput{Topology: top, Checkers: checkersIn(2, zoneA, zoneB)})
	next := health.Place(health.PlacementInput{Topology: top, Checkers: append(checkersIn(2, zoneA, zoneB), checker("far", zoneF)), Previous: p})
	limit := 0
	for _, d := range p.Designations {
		limit += max(0, len(d.Endpoints)-45) // 1.25 times the mean of 180 designations over 5 checkers
	}
	if n := len(next.Of("far")); n > limit {
		t.Errorf("a checker on another continent took over %d endpoints, want what was above the cap, %d", n, limit)
	}
}

// Checkers begin again with an endpoint that moves to another locality or is
// probed elsewhere, and with all of a service that is probed with other TLS
// settings; they begin with unhealthy.
func TestEndpointsThatChangeAreProbedAnew(t *testing.T) {
	for name, edit := range map[string]func(*isobar.Service){
		"moved": func(s *isobar.Service) {
			e := s.Localities[0].Endpoints[0]
			s.Localities[0].Endpoints = slices.Delete(s.Localities[0].Endpoints, 0, 1)
			s.Localities[1].Endpoints = append(s.Localities[1].Endpoints, e)
		},
		"other port": func(s *isobar.Service) {
			s.Localities[0].Endpoints[0].Check = &isobar.EndpointCheck{Port: 81}
		},
		"over TLS": func(s *isobar.Service) {
			s.HealthChecks = slices.Clone(s.HealthChecks)
			s.HealthChecks[0].TLS = true
		},
		"other server name": func(s *isobar.Service) {
			s.HealthChecks = append(slices.Clone(s.HealthChecks), s.HealthChecks[0])
			s.HealthChecks[1].Protocol, s.HealthChecks[1].TCP = isobar.CheckHTTP, nil
			s.HealthChecks[1].TLS, s.HealthChecks[1].HTTP = true, &isobar.HTTPCheck{Path: "/", Host: "other.example"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := atRest(t, 5, 1, zoneA, zoneB, zoneC)
			o.change(edit)
			o.look()
			o.step(100 * time.Millisecond) // what was on its way still tells of the old place
			o.dead(first)
			for o.now.Before(start.Add(10*time.Second + 18*time.Second)) {
				if o.step(interval); o.told(first) != isobar.Healthy {
					t.Fatalf("%s after %s, want what is known until checkers had their time", o.told(first), o.now.Sub(start)-10*time.Second)
				}
			}
			o.run(4 * interval)
			if got := o.told(first); got != isobar.Unhealthy {
				t.Errorf("%s, want unhealthy: all say so for long enough", got)
			}
		})
	}
	o := atRest(t, 2, 1, zoneA, zoneB, zoneC)
	o.change(func(s *isobar.Service) { s.Localities[0].Endpoints[0].Check = &isobar.EndpointCheck{} })
	o.dead(first)
	o.step(interval)
	if got := o.told(first); got != isobar.Unhealthy {
		t.Errorf("%s, want unhealthy at once: nothing changed that matters", got)
	}
}
