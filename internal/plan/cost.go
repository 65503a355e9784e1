package plan

import "github.com/isobar-xds/isobar/solver"

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
