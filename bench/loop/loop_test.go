package loop

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Sizes of the fleet.
const (
	services  = 1000
	zones     = 10 // each is a source, and has a locality of every service
	endpoints = 10 // of a service in a locality
	interval  = 5 * time.Second

	serviceTime = 0.02 // seconds a request takes
)

func zone(i int) isobar.Locality {
	return isobar.Locality{Region: fmt.Sprintf("region-%d", i/3), Zone: fmt.Sprintf("zone-%d", i)}
}

func topology(b *testing.B, trust isobar.CapacityTrust) *isobar.Topology {
	b.Helper()
	t := &isobar.Topology{Revision: 1}
	for s := range services {
		spec := isobar.Service{Name: fmt.Sprintf("service-%04d", s), CapacityTrust: trust}
		for z := range zones {
			l := isobar.ServiceLocality{Locality: zone(z)}
			for e := range endpoints {
				l.Endpoints = append(l.Endpoints, isobar.Endpoint{
					Address: fmt.Sprintf("10.%d.%d.%d:%d", s/250, s%250, z, 8000+e), MaxRate: 100, Health: isobar.Healthy,
				})
			}
			spec.Localities = append(spec.Localities, l)
		}
		t.Services = append(t.Services, spec)
	}
	var rules []isobar.LatencyRule
	for i := range zones {
		for j := range i {
			if i/3 != j/3 {
				rules = append(rules, isobar.LatencyRule{From: zone(i), To: zone(j), MS: 10 * float64(i/3-j/3)})
			}
		}
	}
	var err error
	if t.Network, err = isobar.NewNetwork(rules); err != nil {
		b.Fatal(err)
	}
	t.Normalize()
	return t
}

// world is a loop that ticks in virtual time.
type world struct {
	b       *testing.B
	now     time.Time
	decider *plan.Decider
	builder *view.Builder
	trust   isobar.CapacityTrust
	turn    plan.Turn
	set     *view.Set
	views   [zones]*view.View
}

func newWorld(b *testing.B, trust isobar.CapacityTrust) *world {
	b.Helper()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &world{b: b, now: start, decider: plan.NewDecider(interval, nil, start), builder: view.NewBuilder(view.Options{}), trust: trust}
	w.turn.Topology, w.turn.Interval = topology(b, trust), interval
	first, err := plan.Restore(&plan.Saved{}, w.turn.Topology, health.Table{}, start, 1)
	if err != nil {
		b.Fatal(err)
	}
	w.turn.Previous = first
	for tick := range 4 { // until weights rest
		w.tick(0, tick)
	}
	return w
}

// windows is what one client in each zone reports: it obeys the plan. The
// demand for the first changing services is other than in the tick before.
func (w *world) windows(changing, tick int) []load.StreamWindow {
	var out []load.StreamWindow
	for z := range zones {
		r := load.Report{Arrived: w.now}
		for s, service := range w.turn.Previous.Services {
			rate := 300 + 200*math.Sin(float64(s+3*z))
			if s < changing {
				rate *= 1 + 0.3*math.Sin(float64(s+tick))
			}
			sr := load.ServiceReport{Service: service.Spec.Name, Interval: interval}
			a := w.turn.Previous.Assignment(service.Spec.Name, zone(z))
			for _, group := range slices.Concat(a.Priorities...) {
				n := uint64(rate * a.Share(group.Locality) * interval.Seconds())
				lr := load.LocalityReport{Locality: &group.Locality, Issued: n, HasIssued: true, Succeeded: n}
				if w.trust == isobar.TrustObserved {
					lr.InProgress = uint32(0.5 + rate*a.Share(group.Locality)*serviceTime)
				}
				sr.Localities = append(sr.Localities, lr)
			}
			r.Services = append(r.Services, sr)
		}
		out = append(out, load.StreamWindow{
			Stream: load.StreamID(z + 1), Opened: w.now.Add(-time.Hour),
			Node:    load.Node{ID: fmt.Sprint(z), Locality: zone(z), Agent: load.AgentEnvoy},
			Reports: []load.Report{r},
		})
	}
	return out
}

// tick is a whole turn of the loop; the timer runs but for what clients do.
func (w *world) tick(changing, tick int) {
	w.b.StopTimer()
	w.now = w.now.Add(interval)
	w.turn.Windows = w.windows(changing, tick)
	w.turn.Now, w.turn.Version = w.now, w.turn.Previous.Version+1
	w.b.StartTimer()
	next, err := w.decider.Tick(&w.turn)
	if err != nil {
		w.b.Fatal(err)
	}
	if len(next.Violations) > 0 {
		w.b.Fatal(next.Violations[0].Text)
	}
	w.turn.Previous = next
	w.set = w.builder.Build(next, w.set)
	for z := range w.views {
		w.views[z] = w.set.View(zone(z), w.views[z], func(string) bool { return true })
		for _, s := range next.Services {
			w.views[z].LookupAs(rpc.As{}, resource.Endpoints, s.Spec.Name)
		}
	}
}

// BenchmarkTick is one turn of the loop for 1,000 services of 10 localities
// and 10 sources: reports of all sources booked, every service solved, assigned
// and checked, and what changed encoded for 10 zones. The share of services
// whose demand changed by up to 30% is in the name, and whether capacities are
// declared, or observed from requests in progress.
func BenchmarkTick(b *testing.B) {
	for _, trust := range isobar.CapacityTrusts() {
		for _, percent := range []int{1, 100} {
			b.Run(fmt.Sprintf("services=%d/changing=%d%%/trust=%s", services, percent, trust), func(b *testing.B) {
				w := newWorld(b, trust)
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					w.tick(services*percent/100, i)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/services, "ns/service")
			})
		}
	}
}
