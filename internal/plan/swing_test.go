package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// swung plans one tick in which the demand of the first source swings by half.
func swung(t *testing.T, top *isobar.Topology, l *load.Snapshot) *plan.Plan {
	t.Helper()
	l.Services[0].Sources[0].Swing = 0.5
	p, err := plan.Next(plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Version: 1, Load: l})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Violations) > 0 {
		t.Fatalf("violations: %+v", p.Violations)
	}
	return p
}

// TestSharesAreMadeForASwing: more goes to the next zone than of steady demand, and
// the plan says why. Where nothing fits anyway, it says nothing of the kind.
func TestSharesAreMadeForASwing(t *testing.T) {
	top := threeZones(t)
	for _, tt := range []struct {
		rate float64
		want float64 // swing that is planned for
	}{{700, 0.5}, {5000, 0}, {0, 0}} {
		rates := map[string]float64{"us/a": tt.rate}
		p := swung(t, top, demand(t0, "checkout", rates))
		s, _ := p.Service("checkout")
		if got := s.Swing(); got != tt.want {
			t.Errorf("of %v requests/s a swing of %v is planned for, want %v", tt.rate, got, tt.want)
		}
		e, err := p.Explain("checkout", loc("us/a"))
		if err != nil {
			t.Fatal(err)
		}
		told := slices.ContainsFunc(e.Reasons, func(r assign.Reason) bool {
			return r.Code == assign.ReasonSwing && strings.Contains(r.Text, "planned for 350 and 1050 requests/s")
		})
		if told != (tt.want > 0) || e.Demand.Swing != tt.want {
			t.Errorf("of %v requests/s a swing of %v is told, because of %+v", tt.rate, e.Demand.Swing, e.Reasons)
		}
		if tt.want > 0 {
			steady, is := share(t, ticks(t, top, 1, rates), "us/a", "us/b"), share(t, p, "us/a", "us/b")
			if is <= steady {
				t.Errorf("us/b gets %v of what swings, %v of what does not", is, steady)
			}
		}
	}
}

// TestSwingsOfManyZonesAreNotPlannedFor: the loop would wait for the solver.
func TestSwingsOfManyZonesAreNotPlannedFor(t *testing.T) {
	for zones, want := range map[int]float64{8: 0.5, 51: 0} {
		network, err := isobar.NewNetwork(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := isobar.Service{Name: "checkout"}
		l := load.ServiceLoad{Name: "checkout", Coverage: 1, Covered: true}
		for i := range zones {
			at := loc(fmt.Sprintf("us/%02d", i))
			s.Localities = append(s.Localities, isobar.ServiceLocality{
				Locality: at, MaxRate: 1000, Concurrency: 20, Endpoints: endpoints(fmt.Sprintf("10.0.%d.1:80", i)),
			})
			l.Sources = append(l.Sources, load.SourceLoad{Source: at, Demand: 500, Raw: 500, Nodes: 3})
		}
		top := &isobar.Topology{Network: network, Revision: 1, Services: []isobar.Service{s}}
		top.Normalize()
		p := swung(t, top, &load.Snapshot{At: t0, Services: []load.ServiceLoad{l}})
		if got, _ := p.Service("checkout"); got.Swing() != want {
			t.Errorf("%d zones: a swing of %v is planned for, want %v", zones, got.Swing(), want)
		}
	}
}
