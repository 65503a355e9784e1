package sim

import (
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/solver"
)

// static is weights that an operator typed once, as good as they get: what the
// solver finds for demand that is known beforehand, at declared capacity. Health
// is obeyed; nothing else is.
type static struct {
	idle

	w      *world
	shares [][][]float64 // per service, group and site; of any sum
}

func newStatic(demand func(w *world) [][]float64) func(w *world) (balancer, error) {
	return func(w *world) (balancer, error) {
		b := &static{w: w}
		for i, d := range demand(w) {
			s := w.services[i]
			p := s.problem(d, s.declared()).Service
			p.MaxShed = 0
			sol, err := solver.Solve(solver.Problem{Services: []solver.Service{p}})
			if err != nil {
				return nil, err
			}
			b.shares = append(b.shares, sol.Services[0].Flows)
		}
		return b, nil
	}
}

func (b *static) health(time.Duration) error {
	for i, s := range b.w.services {
		for j, g := range s.groups {
			if b.w.ejecting == nil {
				g.useAll(s.spread(b.shares[i][j]))
				continue
			}
			for _, c := range g.clients {
				b.reroute(c)
			}
		}
	}
	return nil
}

func (b *static) outliers(*client) Ejection { return b.w.sc.Ejection }

// reroute follows the ejections of a client, whose proxy has the shares as weights of
// localities. None is 0, so that there is somewhere to go when a locality is lost.
func (b *static) reroute(c *client) {
	g := c.population.group
	s := g.service
	shares := b.shares[s.index][slices.Index(s.groups, g)]
	sum := 0.0
	for _, x := range shares {
		sum += x
	}
	a := &isobar.Assignment{
		Service: s.spec.Name, Source: g.source,
		OverprovisioningFactor: dataplane.DefaultOverprovisioningFactor, Priorities: make([][]isobar.LocalityWeight, 1),
	}
	for i := range s.sites {
		weight := uint32(max(1, math.Round(1000*shares[i]/max(sum, 1e-9))))
		a.Priorities[0] = append(a.Priorities[0], isobar.LocalityWeight{EndpointGroup: s.seenBy(c, i), Weight: weight})
	}
	c.use(predicted(s, a, c.kind))
}

// meanDemand is what each group sends on average over the run, calls included.
func meanDemand(w *world) [][]float64 {
	return foresee(w, func(s Shape) float64 {
		sum, n := 0.0, 0.0
		for at := w.sc.Warmup; at < w.sc.Length; at += w.step {
			sum += s(at)
			n++
		}
		return sum / n
	})
}

// peakDemand is the most that each group sends, as if all did at once.
func peakDemand(w *world) [][]float64 {
	return foresee(w, func(s Shape) float64 {
		most := 0.0
		for at := w.sc.Warmup; at < w.sc.Length; at += w.step {
			most = max(most, s(at))
		}
		return most
	})
}

// foresee condenses the demand of each group. Groups of callers get what
// callers cause that keep to their own locality's share of capacity.
func foresee(w *world, of func(Shape) float64) [][]float64 {
	f := foreseen{services: w.services, of: of, demand: make([][]float64, len(w.services))}
	for i, s := range w.services {
		f.demand[i] = make([]float64, len(s.groups))
	}
	// Calls form no cycle; as many rounds as services carry them to the end.
	for range len(w.services) + 1 {
		f.round()
	}
	return f.demand
}

// foreseen is demand that is known beforehand.
type foreseen struct {
	services []*service
	of       func(Shape) float64 // condenses the demand of a source to one rate
	demand   [][]float64         // per service and group
}

// round computes the demand of each group from what the round before gave its callers.
func (f *foreseen) round() {
	for i, s := range f.services {
		for j, g := range s.groups {
			f.demand[i][j] = 0
			for _, p := range g.populations {
				if p.source != nil {
					f.demand[i][j] += min(mostRate, f.of(p.source.Demand))
				}
			}
			f.demand[i][j] += min(mostRate, f.calledFrom(g))
		}
	}
}

// calledFrom is what callers in a group's locality cause when their service's
// demand is spread over its sites by capacity.
func (f *foreseen) calledFrom(g *group) float64 {
	sum := 0.0
	for i, s := range f.services {
		total, capacity := 0.0, 0.0
		for _, d := range f.demand[i] {
			total += d
		}
		for l := range s.sites {
			capacity += s.sites[l].nominal
		}
		for _, c := range s.calls {
			for l, p := range c.callers {
				if p.group == g && capacity > 0 {
					sum += c.perRequest * total * s.sites[l].nominal / capacity
				}
			}
		}
	}
	return sum
}
