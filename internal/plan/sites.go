package plan

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/solver"
)

// site is one locality of a service with everything that is derived from its
// configuration and health.
type site struct {
	assign.Site

	declared bool    // capacity was configured
	servers  float64 // n of the healthy part; 0 = no queue term
	queues   float64 // healthy endpoints
	weight   float64 // healthy endpoint weights, for sites without declared capacity
	learned  bool    // capacity is what reports of utilization told

	nominalWeight float64 // the same of all endpoints
}

// sites are the sites of a service, in the order of its configuration.
type sites []site

// buildSites derives the sites of a service from its configuration and the
// health of its endpoints. Sites without declared capacity get theirs later,
// from demand (see sites.applyDemand). What of the service of the plan before stays as
// it was is shared with it.
func buildSites(spec *isobar.Service, table health.Table, prev *Service) sites {
	out := make(sites, len(spec.Localities))
	for i := range spec.Localities {
		var before *isobar.EndpointGroup
		if prev != nil && i < len(prev.Sites) {
			before = prev.Sites[i].Group
		}
		out[i] = buildSite(spec, &spec.Localities[i], table, before)
	}
	return out
}

func buildSite(spec *isobar.Service, sl *isobar.ServiceLocality, table health.Table, before *isobar.EndpointGroup) site {
	rates, declared := endpointRates(sl)
	weights := sentWeights(sl, rates, declared)
	group := newGroup(sl, before)
	known := table.Of(spec.Name)
	s := site{declared: declared}
	var total, usable float64 // rates of all and of the healthy endpoints
	var allShare, okShare float64
	for i := range sl.Endpoints {
		e := &sl.Endpoints[i]
		status := known.Status(e)
		w := isobar.WeightedEndpoint{Address: e.Address, Weight: weights[i], Health: status}
		if e.Check != nil || e.Details != nil {
			w.Config = e
		}
		group.set(i, w)
		share := float64(max(1, e.Weight))
		total += rates[i]
		allShare += share
		if status.Usable() {
			usable += rates[i]
			okShare += share
			s.queues++
		}
	}
	scaler := orDefault(sl.CapacityScaler, 1)
	healthy := 0.0
	switch {
	case declared && total > 0:
		healthy = usable / total
	case !declared && allShare > 0:
		healthy = okShare / allShare
	}
	s.Site = assign.Site{
		Group:     group.EndpointGroup,
		Nominal:   total * scaler,
		Capacity:  usable * scaler,
		Ceiling:   orDefault(sl.Ceiling, isobar.DefaultCeiling),
		Scale:     1,
		Unmanaged: sl.UnmanagedLoad,
		Preferred: sl.Preferred,
	}
	s.weight, s.nominalWeight = okShare*scaler, allShare*scaler
	if s.Drained = table.Drained(spec.Name, sl.Locality); s.Drained {
		s.Capacity, s.weight, s.queues = 0, 0, 0
	}
	if declared {
		s.servers = servers(spec, sl, s.Capacity) * nonZero(healthy*scaler, declaredConcurrency(sl))
	}
	return s
}

// nonZero scales a declared concurrency by the healthy share; an undeclared
// one comes from the capacity, which is scaled already.
func nonZero(scale, declared float64) float64 {
	if declared > 0 {
		return scale
	}
	return 1
}

// servers is the number of requests that the locality works on at once: the
// declared concurrency of all its endpoints, else n = K t0 / 1000, which
// cancels between localities that share t0.
func servers(spec *isobar.Service, sl *isobar.ServiceLocality, capacity float64) float64 {
	if c := declaredConcurrency(sl); c > 0 {
		return c
	}
	return capacity * orDefault(spec.ServiceTimeMS, isobar.DefaultServiceTimeMS) / 1000
}

// declaredConcurrency sums what the endpoints declare; where only some do, the
// others are taken as their mean. The locality's own figure wins.
func declaredConcurrency(sl *isobar.ServiceLocality) float64 {
	if sl.Concurrency > 0 {
		return sl.Concurrency
	}
	var sum, n float64
	for i := range sl.Endpoints {
		if c := sl.Endpoints[i].Concurrency; c > 0 {
			sum += c
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n * float64(len(sl.Endpoints))
}

// leastRest is what endpoints without a rate of their own can serve at least, as
// a fraction of the mean of those that have one: what is up and listed serves
// something, also where the locality's rate leaves it nothing.
const leastRest = 0.01

// endpointRates returns the capacity of each endpoint, requests/s. Endpoints
// without a rate of their own share what the locality's rate leaves, in
// proportion to their weight, or little where it leaves nothing; without a rate
// of the locality they are taken as the mean of those that have one. declared is
// false when nothing is known.
func endpointRates(sl *isobar.ServiceLocality) (rates []float64, declared bool) {
	rates = make([]float64, len(sl.Endpoints))
	var own, ownCount, restWeight float64
	for i := range sl.Endpoints {
		e := &sl.Endpoints[i]
		if e.MaxRate > 0 {
			own += e.MaxRate
			ownCount++
		} else {
			restWeight += float64(max(1, e.Weight))
		}
	}
	if sl.MaxRate <= 0 && ownCount == 0 {
		return rates, false
	}
	for i := range sl.Endpoints {
		e := &sl.Endpoints[i]
		switch {
		case e.MaxRate > 0:
			rates[i] = e.MaxRate
		case sl.MaxRate > 0:
			rest := sl.MaxRate - own
			if ownCount > 0 {
				rest = max(rest, leastRest*own/ownCount*(float64(len(rates))-ownCount))
			}
			rates[i] = rest * float64(max(1, e.Weight)) / restWeight
		default:
			rates[i] = own / ownCount
		}
	}
	return rates, true
}

// weightScale is the weight of the strongest endpoint where weights follow
// declared rates.
const weightScale = 1000

// sentWeights returns the weights that clients get: the configured ones if any
// endpoint of the locality sets one (others 1), else in proportion to max_rate.
// They do not depend on health, because a change of host weights makes Envoy
// rebuild its balancer.
func sentWeights(sl *isobar.ServiceLocality, rates []float64, declared bool) []uint32 {
	out := make([]uint32, len(sl.Endpoints))
	configured := slices.ContainsFunc(sl.Endpoints, func(e isobar.Endpoint) bool { return e.Weight > 0 })
	top := 0.0
	for _, r := range rates {
		top = max(top, r)
	}
	uniform := !slices.ContainsFunc(rates, func(r float64) bool { return r != top })
	for i := range sl.Endpoints {
		switch {
		case configured:
			out[i] = max(1, sl.Endpoints[i].Weight)
		case !declared || uniform || top <= 0:
			out[i] = 1
		default:
			out[i] = uint32(max(1, math.Round(weightScale*rates[i]/top)))
		}
	}
	return out
}

// show brings out, what a plan shows of the sites, up to date with them.
func (s sites) show(out []assign.Site) {
	for i := range s {
		s[i].bound()
		out[i] = s[i].Site
	}
}

// index finds a site by its locality, or returns -1.
func (s sites) index(l isobar.Locality) int {
	return slices.IndexFunc(s, func(s site) bool { return s.Group.Locality == l })
}

// in returns for each site the index of the same locality in other sites, or -1.
func (s sites) in(other []assign.Site) []int {
	out := make([]int, len(s))
	for l := range s {
		name := s[l].Group.Locality
		if l < len(other) && other[l].Group.Locality == name {
			out[l] = l
			continue
		}
		out[l] = slices.IndexFunc(other, func(s assign.Site) bool { return s.Group.Locality == name })
	}
	return out
}

// same reports whether other sites are of the same localities.
func (s sites) same(other []assign.Site) bool {
	return slices.EqualFunc(s, other, func(a site, b assign.Site) bool { return a.Group.Locality == b.Group.Locality })
}

// capacity is what all sites can serve, requests/s.
func (s sites) capacity() float64 {
	sum := 0.0
	for l := range s {
		sum += s[l].Capacity
	}
	return sum
}

// localities are the sites as the solver sees them.
func (s sites) localities() []solver.Locality {
	out := make([]solver.Locality, len(s))
	for l := range s {
		at := &s[l]
		out[l] = solver.Locality{
			Capacity: at.Capacity, Servers: at.servers, Queues: max(1, at.queues),
			Ceiling: at.Ceiling, Unmanaged: at.Unmanaged,
		}
	}
	return out
}

// bound keeps what configurations and limits make of a site in the solver's
// ranges. What is beyond them is a way to say "as much as you like", or "nothing".
func (s *site) bound() {
	s.Capacity, s.servers = min(s.Capacity, solver.MaxRate), min(s.servers, solver.MaxServers)
	if s.Capacity < solver.MinRate {
		s.Capacity = 0
	}
	s.Ceiling = max(s.Ceiling, solver.MinCeiling)
}

func orDefault(v, def float64) float64 {
	if v > 0 {
		return v
	}
	return def
}

// group is the endpoints of a locality while they are put together: those of
// the plan before as long as nothing differs, because most never change.
type group struct {
	*isobar.EndpointGroup

	shared bool // with the plan before: not to be written to
}

// newGroup begins a group; before may be nil.
func newGroup(sl *isobar.ServiceLocality, before *isobar.EndpointGroup) group {
	if before != nil && before.Locality == sl.Locality && before.Metadata == sl.Metadata && len(before.Endpoints) == len(sl.Endpoints) {
		return group{before, true}
	}
	return group{EndpointGroup: &isobar.EndpointGroup{
		Locality: sl.Locality, Metadata: sl.Metadata, Endpoints: make([]isobar.WeightedEndpoint, len(sl.Endpoints)),
	}}
}

// set sets endpoint i; those before it are set.
func (g *group) set(i int, e isobar.WeightedEndpoint) {
	switch {
	case !g.shared:
		g.Endpoints[i] = e
	case g.Endpoints[i] != e:
		own := *g.EndpointGroup
		own.Endpoints = slices.Clone(own.Endpoints)
		own.Endpoints[i] = e
		*g = group{EndpointGroup: &own}
	}
}
