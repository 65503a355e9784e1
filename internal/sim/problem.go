package sim

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/policy"
	"github.com/isobar-xds/isobar/solver"
)

// problem states what there is to decide about a service; demand is in the
// order of its groups.
func (s *service) problem(demand []float64, sites []solver.Locality) policy.Problem {
	p := policy.Problem{Service: solver.Service{Demand: demand, Localities: sites, MaxShed: s.spec.MaxShed}}
	for _, g := range s.groups {
		p.Sources = append(p.Sources, g.source)
		p.Latency = append(p.Latency, g.latency)
	}
	for i := range s.sites {
		p.Places = append(p.Places, s.sites[i].locality)
	}
	return p
}

// declared returns the capacity of each site as declared and by known health,
// requests/s, with the requests that its usable endpoints work on at once.
func (s *service) declared() []solver.Locality {
	out := make([]solver.Locality, len(s.sites))
	for i := range s.sites {
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if x := &s.endpoints[e]; x.usable {
				out[i].Capacity += x.declared
				out[i].Servers += x.servers
				out[i].Queues++
			}
		}
	}
	return s.settings(out)
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

func (s *service) settings(sites []solver.Locality) []solver.Locality {
	for i := range sites {
		if sites[i].Capacity < leastCapacity {
			sites[i] = solver.Locality{}
		}
		sites[i].Queues = max(1, sites[i].Queues)
		sites[i].Ceiling = s.sites[i].ceiling
		sites[i].Unmanaged = s.spec.Localities[i].UnmanagedLoad
	}
	return sites
}

// leastCapacity is what counts as none, requests/s, as it does for the solver.
const leastCapacity = 1e-6

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

// classRates is what each class of clients sends, requests/s.
func (s *service) classRates() (rates isobar.ClassFractions, sum float64) {
	for _, g := range s.groups {
		for _, p := range g.populations {
			rates[p.class] += p.rate
			sum += p.rate
		}
	}
	return rates, sum
}

// mayShed is the most of its demand that the service may drop, as far as the
// classes of its clients allow.
func (s *service) mayShed() float64 {
	rates, sum := s.classRates()
	if s.spec.Criticality == nil || sum <= 0 {
		return s.spec.MaxShed
	}
	may := 0.0
	for c, rate := range rates {
		may += rate * s.spec.Criticality.MaxShed[c]
	}
	return min(s.spec.MaxShed, may/sum)
}

// classShed divides what is dropped, by group: those that matter least first.
func (s *service) classShed(shed []float64) (drops isobar.ClassFractions) {
	rates, _ := s.classRates()
	left := 0.0
	for _, x := range shed {
		left += x
	}
	for c := isobar.Classes - 1; c >= 0; c-- {
		if rates[c] > 0 {
			drops[c] = max(0, min(s.spec.Criticality.MaxShed[c], left/rates[c]))
			left -= drops[c] * rates[c]
		}
	}
	return drops
}
