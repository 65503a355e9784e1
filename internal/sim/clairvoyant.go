package sim

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar/solver"
)

// clairvoyant solves before every step with what is true in it: demand,
// capacity, failures. Its flows are in force at once, neither paced nor rounded.
type clairvoyant struct {
	idle

	w      *world
	solved []solver.Service // what was solved last, per service
	warm   [][]float64
}

func newClairvoyant(w *world) (balancer, error) {
	return &clairvoyant{w: w, solved: make([]solver.Service, len(w.services)), warm: make([][]float64, len(w.services))}, nil
}

func (b *clairvoyant) step(time.Duration) error {
	b.w.demand()
	if slices.ContainsFunc(b.w.services, func(s *service) bool { return len(s.calls) > 0 }) {
		return b.stepJoint()
	}
	for i, s := range b.w.services {
		demand := make([]float64, len(s.groups))
		for j, g := range s.groups {
			demand[j] = g.rate
		}
		p := s.problem(demand, s.trueSites()).Service
		p.Price = s.troublePrices(b.w.timeout())
		if s.spec.Criticality != nil {
			if err := b.stepClasses(s, p); err != nil {
				return err
			}
			continue
		}
		if slices.Equal(p.Demand, b.solved[i].Demand) && slices.Equal(p.Localities, b.solved[i].Localities) &&
			slices.EqualFunc(p.Price, b.solved[i].Price, slices.Equal[[]float64]) {
			continue
		}
		b.solved[i] = p
		p.WarmPrices = b.warm[i]
		sol, err := solver.Solve(solver.Problem{Services: []solver.Service{p}})
		if err != nil {
			return err
		}
		b.warm[i] = sol.Services[0].Prices
		for j, g := range s.groups {
			g.useAll(s.exactly(sol.Services[0].Flows[j], sol.Services[0].Shed[j]))
		}
	}
	return nil
}

// trueSites is what each site can really serve.
func (s *service) trueSites() []solver.Locality {
	out := make([]solver.Locality, len(s.sites))
	for i := range s.sites {
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if x := &s.endpoints[e]; x.up {
				out[i].Capacity += x.declared * s.sites[i].factor
				out[i].Servers += x.servers
				out[i].Queues++
			}
		}
	}
	return s.settings(out)
}

// troublePrices is what requests cost at each site beside queueing, in ms: what they
// take longer, and the timeout (seconds) for those that fail. It is nil where
// nothing is wrong.
func (s *service) troublePrices(timeout float64) [][]float64 {
	row := make([]float64, len(s.sites))
	some := false
	for i := range s.sites {
		x := &s.sites[i]
		for e := x.first; e < x.end; e++ {
			cost := min(1000*timeout, s.endpoints[e].slow) + 1000*timeout*s.endpoints[e].failing
			row[i] += cost / float64(x.end-x.first)
			some = some || cost > 0
		}
	}
	if !some {
		return nil
	}
	out := make([][]float64, len(s.groups))
	for i := range out {
		out[i] = row
	}
	return out
}

// exactly makes the route that realises flows, evenly over the endpoints that
// are up.
func (s *service) exactly(flows []float64, shed float64) *route {
	sum := shed
	for _, f := range flows {
		sum += f
	}
	r := newRoute(s)
	if sum <= 0 {
		return r
	}
	for i := range s.sites {
		up := 0.0
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if s.endpoints[e].up {
				up++
			}
		}
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if s.endpoints[e].up && flows[i] > 0 {
				r.add(s, e, flows[i]/sum/up)
			}
		}
	}
	r.dropped, r.lost = shed/sum, 0
	return r
}
