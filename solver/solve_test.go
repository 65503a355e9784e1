package solver_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

// two is a service with two sources beside two localities, 10 ms apart.
func two(demand ...float64) solver.Service {
	return solver.Service{
		Demand:     demand,
		Localities: []solver.Locality{{Capacity: 100}, {Capacity: 100}},
		Latency:    [][]float64{{0, 10}, {10, 0}},
	}
}

func TestInvalid(t *testing.T) {
	tests := []struct {
		name   string
		change func(*solver.Service)
		place  string
	}{
		{"negative demand", func(s *solver.Service) { s.Demand[1] = -1 }, "services[0].demand[1]"},
		{"demand not a number", func(s *solver.Service) { s.Demand[0] = math.NaN() }, "services[0].demand[0]"},
		{"infinite demand", func(s *solver.Service) { s.Demand[0] = math.Inf(1) }, "services[0].demand[0]"},
		{"demand of no fleet", func(s *solver.Service) { s.Demand[0] = 1e15 }, "services[0].demand[0]"},
		{"negative capacity", func(s *solver.Service) { s.Localities[1].Capacity = -5 }, "services[0].localities[1].capacity"},
		{"capacity not a number", func(s *solver.Service) { s.Localities[1].Capacity = math.NaN() }, "services[0].localities[1].capacity"},
		{"negative servers", func(s *solver.Service) { s.Localities[0].Servers = -1 }, "services[0].localities[0].servers"},
		{"half a queue", func(s *solver.Service) { s.Localities[0].Queues = 0.5 }, "services[0].localities[0].queues"},
		{"ceiling above 1", func(s *solver.Service) { s.Localities[0].Ceiling = 1.1 }, "services[0].localities[0].ceiling"},
		{"negative ceiling", func(s *solver.Service) { s.Localities[0].Ceiling = -0.1 }, "services[0].localities[0].ceiling"},
		{"infinite unmanaged load", func(s *solver.Service) { s.Localities[0].Unmanaged = math.Inf(1) }, "services[0].localities[0].unmanaged"},
		{"negative latency", func(s *solver.Service) { s.Latency[1][0] = -1 }, "services[0].latency[1][0]"},
		{"missing latency row", func(s *solver.Service) { s.Latency = s.Latency[:1] }, "services[0].latency"},
		{"short latency row", func(s *solver.Service) { s.Latency[1] = s.Latency[1][:1] }, "services[0].latency[1]"},
		{"negative price", func(s *solver.Service) { s.Price = [][]float64{{0, -1}, {0, 0}} }, "services[0].price[0][1]"},
		{"short price", func(s *solver.Service) { s.Price = [][]float64{{0, 0}} }, "services[0].price"},
		{"short allowed", func(s *solver.Service) { s.Allowed = [][]bool{{true, true}} }, "services[0].allowed"},
		{"short allowed row", func(s *solver.Service) { s.Allowed = [][]bool{{true, true}, {true}} }, "services[0].allowed[1]"},
		{"previous of another shape", func(s *solver.Service) { s.Previous = [][]float64{{1, 2}, {3}} }, "services[0].previous[1]"},
		{"negative previous", func(s *solver.Service) { s.Previous = [][]float64{{1, 2}, {3, -4}} }, "services[0].previous[1][1]"},
		{"shed above 1", func(s *solver.Service) { s.MaxShed = 2 }, "services[0].max_shed"},
		{"shed not a number", func(s *solver.Service) { s.MaxShed = math.NaN() }, "services[0].max_shed"},
		{"short warm prices", func(s *solver.Service) { s.WarmPrices = []float64{1} }, "services[0].warm_prices"},
		{"warm price not a number", func(s *solver.Service) { s.WarmPrices = []float64{1, math.NaN()} }, "services[0].warm_prices[1]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := two(10, 20)
			test.change(&s)
			_, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
			if !errors.Is(err, solver.ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			if !strings.Contains(err.Error(), test.place+":") {
				t.Errorf("%q does not name %s", err, test.place)
			}
		})
	}
}

func TestNothingToSolve(t *testing.T) {
	for name, p := range map[string]solver.Problem{
		"no service":    {},
		"no demand":     {Services: []solver.Service{two(0, 0)}},
		"no source":     {Services: []solver.Service{{Localities: []solver.Locality{{Capacity: 1, Servers: 1}}}}},
		"empty service": {Services: []solver.Service{{}}},
	} {
		sol, err := solver.Solve(p)
		if err != nil || sol.Objective != 0 || sol.Gap != 0 || sol.ExcessMS != 0 {
			t.Errorf("%s: %+v, %v", name, sol, err)
		}
	}
}

func TestByHand(t *testing.T) {
	tests := []struct {
		name        string
		service     solver.Service
		flows       [][]float64
		scale       float64
		shed        []float64
		unreachable []float64
		objective   float64
	}{
		{name: "at home", service: two(40, 50), flows: [][]float64{{40, 0}, {0, 50}}, scale: 1},
		{name: "spill over the ceiling", service: two(100, 20), flows: [][]float64{{80, 20}, {0, 20}}, scale: 1, objective: 200},
		{name: "exactly full", service: two(80, 80), flows: [][]float64{{80, 0}, {0, 80}}, scale: 1},
		{name: "equal overflow", service: two(120, 120), flows: [][]float64{{120, 0}, {0, 120}}, scale: 1.5},
		{
			name: "overflow with unmanaged load",
			service: func() solver.Service {
				s := two(100, 40)
				s.Localities[1].Unmanaged = 60 // 1.25 x 80 = 100 = 0 + 100 = 60 + 40
				return s
			}(),
			flows: [][]float64{{100, 0}, {0, 40}}, scale: 1.25,
		},
		{
			name: "unmanaged load above the ceiling leaves nothing",
			service: func() solver.Service {
				s := two(30, 40)
				s.Localities[1].Unmanaged = 90
				return s
			}(),
			flows: [][]float64{{30, 0}, {40, 0}}, scale: 1, objective: 400,
		},
		{
			name: "a removed locality",
			service: func() solver.Service {
				s := two(30, 40)
				s.Localities[1].Capacity = 0
				return s
			}(),
			flows: [][]float64{{30, 0}, {40, 0}}, scale: 1, objective: 400,
		},
		{
			name: "isolation raises one side only",
			service: func() solver.Service {
				s := two(120, 40)
				s.Allowed = [][]bool{{true, false}, {false, true}}
				return s
			}(),
			flows: [][]float64{{120, 0}, {0, 40}}, scale: 1.5,
		},
		{
			name: "unreachable",
			service: func() solver.Service {
				s := two(30, 40)
				s.Allowed = [][]bool{{true, true}, {false, false}}
				return s
			}(),
			flows: [][]float64{{30, 0}, {0, 0}}, scale: 1, unreachable: []float64{0, 40},
		},
		{
			name: "shed what does not fit",
			service: func() solver.Service {
				s := two(100, 100)
				s.MaxShed = 0.5
				return s
			}(),
			flows: [][]float64{{80, 0}, {0, 80}}, scale: 1, shed: []float64{20, 20},
		},
		{
			name: "shed up to the limit, then overflow",
			service: func() solver.Service {
				s := two(200, 200)
				s.MaxShed = 0.1
				return s
			}(),
			flows: [][]float64{{180, 0}, {0, 180}}, scale: 2.25, shed: []float64{20, 20},
		},
		{
			name: "price counts like latency",
			service: func() solver.Service {
				s := two(30, 40)
				s.Price = [][]float64{{11, 0}, {0, 0}}
				return s
			}(),
			flows: [][]float64{{0, 30}, {0, 40}}, scale: 1, objective: 300,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			sol := solveOne(t, test.service)
			if err := solver.Check(test.service, sol); err != nil {
				t.Error(err)
			}
			for i, row := range test.flows {
				equal(t, "flows", sol.Flows[i], row)
			}
			if math.Abs(sol.CeilingScale-test.scale) > 2e-9*test.scale {
				t.Errorf("ceiling scale %v, want %v", sol.CeilingScale, test.scale)
			}
			equal(t, "shed", sol.Shed, test.shed)
			equal(t, "unreachable", sol.Unreachable, test.unreachable)
			if math.Abs(sol.Objective-test.objective) > 1e-4 {
				t.Errorf("objective %v, want %v", sol.Objective, test.objective)
			}
			if sol.Gap > 1e-6 || sol.ExcessMS > 1e-6 {
				t.Errorf("gap %v, excess %v ms", sol.Gap, sol.ExcessMS)
			}
		})
	}
}

// equal compares with nil standing for zeros.
func equal(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i, v := range got {
		w := 0.0
		if want != nil {
			w = want[i]
		}
		if math.Abs(v-w) > 1e-5 {
			t.Errorf("%s %v, want %v", what, got, want)
			return
		}
	}
}

// The cost by hand: 60 requests/s on 4 servers of 25 requests/s each, one
// queue, 20 of them unmanaged.
func TestObjectiveByHand(t *testing.T) {
	s := solver.Service{
		Demand:     []float64{40},
		Localities: []solver.Locality{{Capacity: 100, Servers: 4, Unmanaged: 20}},
		Latency:    [][]float64{{3}},
	}
	queue := 1000 * math.Pow(0.6, math.Sqrt(10)) / 0.4
	want := 40*3 + 40*40 + queue
	sol := solveOne(t, s)
	if math.Abs(sol.Objective-want) > 1e-9*want || math.Abs(sol.Utilization[0]-0.6) > 1e-12 {
		t.Errorf("objective %v, want %v; utilization %v", sol.Objective, want, sol.Utilization)
	}
	// M/M/1 is exact: 0.6^2/0.4 requests wait on average.
	s.Localities[0].Servers = 1
	if got, want := solver.Objective(s, [][]float64{{40}}), 40*3+40*10+1000*0.36/0.4; math.Abs(got-want) > 1e-9*want {
		t.Errorf("M/M/1: objective %v, want %v", got, want)
	}
}

// Prices tell where a request of a source without demand would go best.
func TestPricesWithoutFlow(t *testing.T) {
	s := solver.Service{
		Demand: []float64{90, 0},
		Localities: []solver.Locality{
			{Capacity: 100}, {Capacity: 100, Servers: 1}, {Capacity: 100, Servers: 1}, {Capacity: 0}, {Capacity: 100, Unmanaged: 90},
		},
		Latency: [][]float64{{0, 5, 50, 1, 1}, {5, 5, 0, 5, 5}},
	}
	sol := solveOne(t, s)
	marginal := func(y float64) float64 { // of M/M/1: d/dy 1000 u^2/(1-u), u = y/100, and 10 ms of service
		u := y / 100
		return 10 + 10*(2*u-u*u)/((1-u)*(1-u))
	}
	spilled := marginal(10)
	want := []float64{5 + spilled, spilled, marginal(0), 5 + spilled - 1, 5 + spilled - 1}
	for l := range want {
		if math.Abs(sol.Prices[l]-want[l]) > 1e-3 {
			t.Errorf("prices %v, want %v", sol.Prices, want)
			break
		}
	}
}

// Everywhere full means full to the same degree.
func TestOverflowIsEqual(t *testing.T) {
	s := solver.Service{
		Demand: []float64{500, 100},
		Localities: []solver.Locality{
			{Capacity: 100, Servers: 10}, {Capacity: 300, Servers: 5, Ceiling: 0.5}, {Capacity: 200, Unmanaged: 20},
		},
		Latency: [][]float64{{0, 20, 80}, {30, 0, 5}},
	}
	sol := solveOne(t, s)
	for l, ceiling := range []float64{0.8, 0.5, 0.8} {
		if got := sol.Utilization[l] / ceiling; math.Abs(got-sol.CeilingScale) > 1e-6 {
			t.Errorf("locality %d is at %v of its ceiling, others at %v", l, got, sol.CeilingScale)
		}
	}
	if want := 620.0 / (80 + 150 + 160); math.Abs(sol.CeilingScale-want) > 1e-6 {
		t.Errorf("ceiling scale %v, want %v", sol.CeilingScale, want)
	}
}

func TestCheckFindsViolations(t *testing.T) {
	tests := []struct {
		name   string
		change func(*solver.Service, *solver.ServiceSolution)
	}{
		{"negative flow", func(_ *solver.Service, sol *solver.ServiceSolution) { sol.Flows[0][0], sol.Flows[0][1] = -1, 41 }},
		{"lost demand", func(_ *solver.Service, sol *solver.ServiceSolution) { sol.Flows[0][0] -= 1e-3 }},
		{"not allowed", func(s *solver.Service, _ *solver.ServiceSolution) { s.Allowed = [][]bool{{false, true}, {true, true}} }},
		{"above the ceiling", func(s *solver.Service, _ *solver.ServiceSolution) { s.Localities[0].Capacity = 40 }},
		{"shed beyond the limit", func(_ *solver.Service, sol *solver.ServiceSolution) { sol.Flows[0][0], sol.Shed[0] = 30, 10 }},
		{"missing row", func(_ *solver.Service, sol *solver.ServiceSolution) { sol.Flows = sol.Flows[:1] }},
		{"short row", func(_ *solver.Service, sol *solver.ServiceSolution) { sol.Flows[0] = sol.Flows[0][:1] }},
		{"negative shed", func(_ *solver.Service, sol *solver.ServiceSolution) { sol.Flows[0][0], sol.Shed[0] = 41, -1 }},
		{"lowered ceiling", func(_ *solver.Service, sol *solver.ServiceSolution) { sol.Scale[0] = 0.9 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := two(40, 50)
			sol := solveOne(t, s)
			test.change(&s, &sol)
			if solver.Check(s, sol) == nil {
				t.Error("not found")
			}
		})
	}
}
