package plan

import (
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/solver"
)

// Service is one service of a plan: inputs, solution and assignment.
type Service struct {
	Spec       *isobar.Service
	Sites      []assign.Site
	Coverage   float64
	Hold       string            // why weights are held; empty when they are not
	Paused     *Pause            // by an operator; nil when it is not
	Inputs     []InputState      // how fresh what it is decided from is, in the order of [Inputs]
	Load       *load.ServiceLoad // what was measured; nil when nothing was
	Deviations load.Deviations   // observed shares against the plan
	Learned    []load.Capacity   // what reports of utilization tell about capacities, sorted by locality
	// Observed is what requests tell about capacities, sorted by locality.
	Observed []ObservedCapacity
	// Dimensions is what is known of the limits of the service, sorted by locality,
	// then in the order of Spec.Limits; Limited, per site, what they make of it. Both
	// are nil without limits.
	Dimensions []load.Dimension
	Limited    []LimitedSite
	Problem    *solver.Service // what was solved; nil without demand
	Solution   *solver.ServiceSolution
	Solved     []isobar.Locality // sources of Problem and Solution, in their order
	Prices     []float64         // per site, ms, of the last solution, calls included; nil when there was none
	// CallCosts is, per site, the part of Prices that is the cost of the calls of
	// a request served there; nil without calls, or when nothing was solved.
	CallCosts []float64
	Callers   []string // services whose calls make a part of its demand, computed from what they serve
	// Joint says that calls connect the service with others that were solved
	// together with it: PlanGap, and the gap of Solution, are those of all of them.
	Joint   bool
	Alone   bool // calls connect it with too much to solve together: what is measured counts
	PlanGap float64
	Steady  *SteadyDemand // nil while something happens
	// PolicyGap is what the policy costs, before it is paced and rounded, above
	// the bound, as a fraction of its cost; PolicyMS the same against the solution, in
	// milliseconds of mean latency. Both are 0 with policy latency, and where calls
	// connect the service with others.
	PolicyGap, PolicyMS float64
	Result              *assign.Result
	// Scores tells what was predicted against what was then seen; nil before
	// anything was.
	Scores  *Scores
	Damping *Damping // of limit cycles; nil before a decision
	// RequestLimit is how many requests each client may have in progress.
	RequestLimit RequestLimit
	Rollout      *Rollout // step of mode auto; nil with other modes
}

// Mode is what is served of a service: the configured mode, or the one that mode
// auto has come to.
func (s *Service) Mode() isobar.Mode {
	switch {
	case s.Spec.Mode != isobar.ModeAuto:
		return s.Spec.Mode
	case s.Rollout == nil:
		return isobar.ModeObserve
	}
	return s.Rollout.Mode
}

// served is the configuration with the mode that is served.
func (s *Service) served() *isobar.Service {
	if s.Spec.Mode != isobar.ModeAuto {
		return s.Spec
	}
	spec := *s.Spec
	spec.Mode = s.Mode()
	return &spec
}

// cost is what the published shares cost by the solver's objective (network,
// service and queues, requests/s x ms), and the requests/s that are served. Both
// are 0 where nothing was solved.
func (s *Service) cost() (cost, served float64) {
	if s.Problem == nil || s.Result == nil {
		return 0, 0
	}
	flows := make([][]float64, len(s.Solved))
	for i, source := range s.Solved {
		flows[i] = make([]float64, len(s.Sites))
		r := s.Result.Source(source)
		if r == nil {
			return 0, 0
		}
		for l := range flows[i] {
			flows[i][l] = r.Shares[l] * s.Problem.Demand[i] * (1 - s.Result.DropOf(r))
			served += flows[i][l]
		}
	}
	return solver.Objective(*s.Problem, flows), served
}

// latency is the mean of cost, ms; 0 where nothing was solved.
func (s *Service) latency() float64 {
	cost, served := s.cost()
	if served <= 0 {
		return 0
	}
	return cost / served
}

// demand is what all sources want to send, requests/s.
func (s *Service) demand() float64 {
	sum := 0.0
	for i := range s.Result.Sources {
		sum += s.Result.Sources[i].Demand
	}
	return sum
}

// dead reports whether a service has endpoints, and none that takes traffic.
func (s *Service) dead() bool {
	some := false
	for i := range s.Sites {
		if s.Sites[i].Usable() {
			return false
		}
		some = some || len(s.Sites[i].Group.Endpoints) > 0
	}
	return some
}

// Overload is a locality that is planned to get more than it can serve.
type Overload struct {
	Locality isobar.Locality
	Used     float64 // load and unmanaged load over declared capacity; more than 1
}

// Overloads lists the localities that are planned beyond their declared capacity,
// in the order of the sites: because nothing else has headroom, because the mode or a
// pause keeps traffic there, or because shares are on their way.
func (s *Service) Overloads() []Overload {
	if s.Result == nil || len(s.Result.Load) != len(s.Sites) || len(s.Spec.Localities) != len(s.Sites) {
		return nil
	}
	var out []Overload
	for i := range s.Sites {
		site := &s.Sites[i]
		if site.Capacity <= 0 {
			continue
		}
		if used := (s.Result.Load[i] + site.Unmanaged) / site.Capacity; used > 1 && s.Site(i).declared() > 0 {
			out = append(out, Overload{site.Group.Locality, used})
		}
	}
	return out
}

// HasHeadroom reports whether a locality of the service could take more under its
// ceiling, on the health of now.
func (s *Service) HasHeadroom() bool {
	if s.Result == nil || len(s.Result.Load) != len(s.Sites) {
		return false
	}
	for i := range s.Sites {
		if s.Sites[i].Limit() > s.Result.Load[i] {
			return true
		}
	}
	return false
}

// Unused tells how many of the service's endpoints their health keeps out of use.
func (s *Service) Unused() (unused, all int) {
	for i := range s.Sites {
		n := len(s.Sites[i].Group.Endpoints)
		unused, all = unused+n-s.Sites[i].Group.Usable(), all+n
	}
	return unused, all
}

// siteIndex finds a site by its locality; -1 when there is none.
func (s *Service) siteIndex(l isobar.Locality) int {
	return slices.IndexFunc(s.Sites, func(x assign.Site) bool { return x.Group.Locality == l })
}

// utilization is the planned load of a locality over its capacity; 0 without.
func (s *Service) utilization(l isobar.Locality) float64 {
	for i := range s.Sites {
		if site := &s.Sites[i]; site.Group.Locality == l && site.Capacity > 0 {
			return (s.Result.Load[i] + site.Unmanaged) / site.Capacity
		}
	}
	return 0
}

func (s *Service) share(source, l isobar.Locality) float64 {
	r := s.Result.Source(source)
	if r == nil {
		return 0
	}
	for i := range s.Sites {
		if s.Sites[i].Group.Locality == l {
			return r.Shares[i]
		}
	}
	return 0
}

func (s *Service) localities() []isobar.Locality {
	out := make([]isobar.Locality, len(s.Sites))
	for i := range s.Sites {
		out[i] = s.Sites[i].Group.Locality
	}
	return out
}

// Site returns the locality of the service at an index into Sites.
func (s *Service) Site(i int) PlannedSite { return PlannedSite{s, i} }

// learns reports whether plans go by learned capacities where none is declared.
func (s *Service) learns() bool {
	return slices.ContainsFunc(s.Learned, func(k load.Capacity) bool { return k.InUse > 0 })
}
