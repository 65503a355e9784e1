package solver_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

// site has headroom for that many requests/s and no queue.
func site(headroom float64) solver.Locality { return solver.Locality{Capacity: headroom, Ceiling: 1} }

// between is a matrix of 0 inside a locality and ms from one to another, for
// callers that run in the same localities one after the other.
func between(ms float64, localities int, sources ...int) [][]float64 {
	var out [][]float64
	for _, s := range sources {
		row := make([]float64, localities)
		for l := range row {
			if l != s {
				row[l] = ms
			}
		}
		out = append(out, row)
	}
	return out
}

// chain is a front service with 100 requests/s from locality 0, which makes so
// many calls per request to a back service with so much headroom in locality 0.
func chain(perRequest, nearHeadroom float64) solver.Problem {
	return solver.Problem{Services: []solver.Service{
		{
			Demand: []float64{100}, Localities: []solver.Locality{site(1000), site(1000)},
			Latency: between(10, 2, 0), Calls: []solver.Call{{Service: 1, PerRequest: perRequest}},
		},
		{Localities: []solver.Locality{site(nearHeadroom), site(1000)}, Latency: between(10, 2, 0, 1)},
	}}
}

func solveAll(t *testing.T, p solver.Problem) solver.Solution {
	t.Helper()
	sol, err := solver.Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := solver.CheckAll(p, sol); err != nil {
		t.Fatal(err)
	}
	if sol.Gap > 1e-5 {
		t.Errorf("gap %v", sol.Gap)
	}
	return sol
}

func about(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-4*math.Max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// Load moves at the hop where it costs least: with two calls per request the
// request goes across once, with half a call the call does.
func TestLoadMovesAtTheCheapestHop(t *testing.T) {
	sol := solveAll(t, chain(2, 80))
	about(t, "front load near", sol.Services[0].Load[0], 40)
	about(t, "calls across", sol.Services[1].Flows[0][1], 0)
	about(t, "objective", sol.Objective, 600)
	about(t, "price near", sol.Services[1].Prices[0], 5)

	sol = solveAll(t, chain(0.5, 20))
	about(t, "front load near", sol.Services[0].Load[0], 100)
	about(t, "calls across", sol.Services[1].Flows[0][1], 30)
	about(t, "objective", sol.Objective, 300)
	about(t, "price near", sol.Services[1].Prices[0], 10)
	about(t, "excess", sol.ExcessMS, 0)
}

// A diamond: both arms call the last service, which has a source of its own.
func TestDiamond(t *testing.T) {
	arm := func() solver.Service {
		return solver.Service{
			Localities: []solver.Locality{site(1000), site(1000)}, Latency: between(10, 2, 0, 1),
			Calls: []solver.Call{{Service: 3, PerRequest: 1}},
		}
	}
	p := solver.Problem{Services: []solver.Service{
		{
			Demand: []float64{100}, Localities: []solver.Locality{site(1000), site(1000)}, Latency: between(10, 2, 0),
			Calls: []solver.Call{{Service: 1, PerRequest: 1}, {Service: 2, PerRequest: 0.5}},
		},
		arm(), arm(),
		{
			Demand: []float64{30}, Localities: []solver.Locality{site(90), site(1000)},
			Latency: append(between(100, 2, 0), between(10, 2, 0, 1, 0, 1)...),
		},
	}}
	if n := p.Sources(3); n != 5 {
		t.Fatalf("%d sources, want its own and two localities of each caller", n)
	}
	sol := solveAll(t, p)
	// Its own source has the longest way and stays. Of 150 calls 60 fit beside it;
	// one request across saves 1.5 of them from going.
	about(t, "own source near", sol.Services[3].Flows[0][0], 30)
	about(t, "front load near", sol.Services[0].Load[0], 40)
	about(t, "objective", sol.Objective, 600)
	about(t, "load of the last service", sol.Services[3].Load[0]+sol.Services[3].Load[1], 180)
}

// What does not fit raises the ceilings of the service that is too small, all
// by the same factor, and of no other.
func TestCallsThatDoNotFit(t *testing.T) {
	p := chain(2, 50)
	p.Services[1].Localities[1] = site(50)
	sol := solveAll(t, p)
	for l := range 2 {
		about(t, "scale", sol.Services[1].Scale[l], 2)
		about(t, "load", sol.Services[1].Load[l], 100)
	}
	about(t, "scale of the caller", sol.Services[0].CeilingScale, 1)

	// A service that may shed gives up calls first, evenly over where they come
	// from; the caller's requests stay.
	p.Services[1].MaxShed = 0.25
	sol = solveAll(t, p)
	about(t, "scale", sol.Services[1].CeilingScale, 1.5)
	about(t, "calls served", sol.Services[0].CallsServed[0], 0.75)
	about(t, "load of the caller", sol.Services[0].Load[0]+sol.Services[0].Load[1], 100)
	for s, y := range sol.Services[0].Load {
		about(t, "shed", sol.Services[1].Shed[s], 0.25*2*y)
	}
}

// Calls that have nowhere to go are unreachable and cause nothing further down.
func TestUnreachableCalls(t *testing.T) {
	p := chain(1, 0)
	p.Services[1].Localities = []solver.Locality{{}, {}}
	p.Services[1].Calls = []solver.Call{{Service: 2, PerRequest: 1}}
	p.Services = append(p.Services, solver.Service{Localities: []solver.Locality{site(1)}, Latency: [][]float64{{1}, {2}}})
	sol := solveAll(t, p)
	about(t, "calls served", sol.Services[0].CallsServed[0], 0)
	about(t, "unreachable", sum(sol.Services[1].Unreachable), 100)
	about(t, "load further down", sum(sol.Services[2].Load), 0)
	about(t, "objective", sol.Objective, 0)
}

func TestCallsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*solver.Problem)
		want   error
		place  string
	}{
		"circle": {func(p *solver.Problem) {
			p.Services[1].Calls = []solver.Call{{Service: 0, PerRequest: 1}}
		}, solver.ErrCycle, "services[0]:"},
		"itself": {func(p *solver.Problem) { p.Services[0].Calls[0].Service = 0 }, solver.ErrCycle, "services[0]:"},
		"nobody": {func(p *solver.Problem) { p.Services[0].Calls[0].Service = 2 }, solver.ErrInvalid, "services[0].calls[0].service:"},
		"minus":  {func(p *solver.Problem) { p.Services[0].Calls[0].Service = -1 }, solver.ErrInvalid, "services[0].calls[0].service:"},
		"twice": {func(p *solver.Problem) {
			p.Services[0].Calls = append(p.Services[0].Calls, p.Services[0].Calls[0])
		}, solver.ErrInvalid, "services[0].calls[1].service:"},
		"none":     {func(p *solver.Problem) { p.Services[0].Calls[0].PerRequest = 0 }, solver.ErrInvalid, "services[0].calls[0].per_request:"},
		"no rate":  {func(p *solver.Problem) { p.Services[0].Calls[0].PerRequest = math.NaN() }, solver.ErrInvalid, "services[0].calls[0].per_request:"},
		"too many": {func(p *solver.Problem) { p.Services[0].Calls[0].PerRequest = 1e7 }, solver.ErrInvalid, "services[0].calls[0].per_request:"},
		"rows":     {func(p *solver.Problem) { p.Services[1].Latency = p.Services[1].Latency[:1] }, solver.ErrInvalid, "services[1].latency:"},
		"isolated": {func(p *solver.Problem) {
			p.Services[1].Allowed = [][]bool{{true, true}, {false, true}}
		}, solver.ErrInvalid, "services[1].allowed[1]:"},
		"too much": {func(p *solver.Problem) {
			p.Services[0].Demand[0] = 1e11
			p.Services[0].Calls[0].PerRequest = 100
		}, solver.ErrInvalid, "services[1]:"},
	} {
		t.Run(name, func(t *testing.T) {
			p := chain(1, 1000)
			test.change(&p)
			_, err := solver.Solve(p)
			if !errors.Is(err, test.want) || !errors.Is(err, solver.ErrInvalid) || !strings.Contains(err.Error(), test.place) {
				t.Errorf("got %v, want %v at %s", err, test.want, test.place)
			}
		})
	}
}

// The last answer comes back as it is when nothing changed, and in part when
// going back to it costs more than a tie.
func TestCallsStayWhereTheyAre(t *testing.T) {
	p := callsProblem(0)
	first := solveAll(t, p)
	for i := range p.Services {
		p.Services[i].Previous = first.Services[i].Flows
	}
	again := solveAll(t, p)
	for i := range p.Services {
		for s, row := range again.Services[i].Flows {
			for l, x := range row {
				if before := first.Services[i].Flows[s][l]; math.Abs(x-before) > 1e-9*(1+before) {
					t.Fatalf("service %d: flow %d to %d was %v and is %v", i, s, l, before, x)
				}
			}
		}
	}
}

// Two localities at the same distance: where calls went before, they stay.
func TestCallTiesFallToThePast(t *testing.T) {
	p := chain(1, 1000)
	p.Services[1].Latency = [][]float64{{5, 5}, {5, 5}}
	p.Services[0].Previous = [][]float64{{10, 0}}
	p.Services[1].Previous = [][]float64{{2, 8}, {0, 0}}
	sol := solveAll(t, p)
	about(t, "calls to the far one", sol.Services[1].Flows[0][1], 80)
}

// TestTotalBoundOfAnotherProblem: a bound of a solution that is not the problem's is an error.
func TestTotalBoundOfAnotherProblem(t *testing.T) {
	s := solver.Service{Demand: []float64{1}, Localities: []solver.Locality{{Capacity: 10}}, Latency: [][]float64{{1}}}
	fits := solver.ServiceSolution{Prices: []float64{1}, Scale: []float64{1}, Shed: []float64{0}}
	bad := s
	bad.Demand = []float64{-1}
	for _, tt := range []struct {
		name     string
		service  solver.Service
		services []solver.ServiceSolution
		invalid  bool // of the problem
	}{
		{"a service too few", s, nil, false},
		{"a service too many", s, []solver.ServiceSolution{fits, fits}, false},
		{"no prices", s, []solver.ServiceSolution{{Scale: fits.Scale, Shed: fits.Shed}}, false},
		{"scales of two localities", s, []solver.ServiceSolution{{Prices: fits.Prices, Scale: []float64{1, 1}, Shed: fits.Shed}}, false},
		{"shed of no source", s, []solver.ServiceSolution{{Prices: fits.Prices, Scale: fits.Scale}}, false},
		{"negative demand", bad, []solver.ServiceSolution{fits}, true},
	} {
		_, err := solver.TotalBound(solver.Problem{Services: []solver.Service{tt.service}}, tt.services)
		if err == nil || errors.Is(err, solver.ErrInvalid) != tt.invalid {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
}
