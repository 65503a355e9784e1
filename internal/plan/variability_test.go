package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// variable plans one tick in which the demand of the first source varies by half.
func variable(t *testing.T, top *isobar.Topology, l *load.Snapshot) *plan.Plan {
	t.Helper()
	l.Services[0].Sources[0].Variability = 0.5
	return decided(t, plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Version: 1, Load: l})
}

// TestSharesAreMadeForVariableDemand: more goes to the next zone than of steady demand, and
// the plan says why. Where nothing fits anyway, it says nothing of the kind.
func TestSharesAreMadeForVariableDemand(t *testing.T) {
	top := threeZones(t)
	for _, tt := range []struct {
		rate float64
		want float64 // variability in the plan
	}{{700, 0.5}, {5000, 0}, {0, 0}} {
		rates := map[string]float64{"us/a": tt.rate}
		p := variable(t, top, demand(t0, "checkout", rates))
		s, _ := p.Service("checkout")
		if got := s.Variability(); got != tt.want {
			t.Errorf("at %v requests/s the plan has a variability of %v, want %v", tt.rate, got, tt.want)
		}
		e, err := p.Explain("checkout", loc("us/a"))
		if err != nil {
			t.Fatal(err)
		}
		told := slices.ContainsFunc(e.Reasons, func(r assign.Reason) bool {
			return r.Code == assign.ReasonVariability && strings.Contains(r.Text, "planned for 350 and 1050 requests/s")
		})
		if told != (tt.want > 0) || e.Demand.Variability != tt.want {
			t.Errorf("at %v requests/s the explanation has a variability of %v and the reasons %+v", tt.rate, e.Demand.Variability, e.Reasons)
		}
		if tt.want > 0 {
			steady, is := share(t, ticks(t, top, 1, rates), "us/a", "us/b"), share(t, p, "us/a", "us/b")
			if is <= steady {
				t.Errorf("us/b gets %v of what varies, %v of what does not", is, steady)
			}
		}
	}
}

// TestVariableDemandOfManyZonesIsNotPlannedFor: the loop would wait for the solver.
func TestVariableDemandOfManyZonesIsNotPlannedFor(t *testing.T) {
	for zones, want := range map[int]float64{8: 0.5, 51: 0} {
		top, l := wide(t, 1, zones)
		p := variable(t, top, l)
		if got, _ := p.Service("checkout-00"); got.Variability() != want {
			t.Errorf("%d zones: a variability of %v is planned for, want %v", zones, got.Variability(), want)
		}
	}
}

// TestVariableDemandOfManyServices: of 55 services of 20 zones, 50 are planned with their
// variability, those of which most requests come and go; and these stay chosen.
func TestVariableDemandOfManyServices(t *testing.T) {
	top, l := wide(t, 55, 20)
	count := func(p *plan.Plan) (n int, last bool) {
		for _, s := range p.Services {
			if last = s.Variability() > 0; last {
				n++
			}
		}
		return n, last
	}
	var before *plan.Plan
	for tick := range 2 {
		for i := range l.Services {
			l.Services[i].Sources[0].Variability = 0.2 + 0.005*float64(i)
			if tick > 0 {
				l.Services[i].Sources[0].Variability = 0.5 - 0.005*float64(i)
			}
		}
		at := t0.Add(time.Duration(tick) * 10 * time.Second)
		l.At = at
		p, err := plan.Next(plan.Input{Now: at, Trigger: assign.Tick, Topology: top, Version: uint64(tick) + 1, Load: l, Previous: before})
		if err != nil {
			t.Fatal(err)
		}
		if n, last := count(p); n != 50 || !last || p.Services[0].Variability() > 0 {
			t.Errorf("tick %d: %d services are planned with their variability, want 50: the last one, which varied most at first (%v), and not the first (%v)",
				tick, n, last, p.Services[0].Variability() > 0)
		}
		before = p
	}
}

// wide makes services, each with endpoints and demand in so many zones.
func wide(t *testing.T, services, zones int) (*isobar.Topology, *load.Snapshot) {
	t.Helper()
	network, err := isobar.NewNetwork(nil)
	if err != nil {
		t.Fatal(err)
	}
	top, snapshot := &isobar.Topology{Network: network, Revision: 1}, &load.Snapshot{At: t0}
	for k := range services {
		s := isobar.Service{Name: fmt.Sprintf("checkout-%02d", k)}
		l := load.ServiceLoad{Name: s.Name, Coverage: 1, Covered: true}
		for i := range zones {
			at := loc(fmt.Sprintf("us/%02d", i))
			s.Localities = append(s.Localities, isobar.ServiceLocality{
				Locality: at, MaxRate: 1000, Concurrency: 20, Endpoints: endpoints(fmt.Sprintf("10.%d.%d.1:80", k, i)),
			})
			l.Sources = append(l.Sources, load.SourceLoad{Source: at, Demand: 500, Raw: 500, Nodes: 3})
		}
		top.Services, snapshot.Services = append(top.Services, s), append(snapshot.Services, l)
	}
	top.Normalize()
	return top, snapshot
}
