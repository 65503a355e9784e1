package solver_test

import (
	"fmt"

	"github.com/isobar-xds/isobar/solver"
)

// A busy zone and a quiet one, 2 ms apart: the busy zone keeps what it can carry
// well, the rest goes to the other one.
func ExampleSolve() {
	zone := solver.Locality{Capacity: 1000, Servers: 10} // requests/s, requests at once
	solution, err := solver.Solve(solver.Problem{Services: []solver.Service{{
		Demand:     []float64{1200, 100}, // requests/s
		Localities: []solver.Locality{zone, zone},
		Latency:    [][]float64{{0, 2}, {2, 0}}, // ms
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := solution.Services[0]
	for source, flows := range s.Flows {
		fmt.Printf("source %d sends %.0f and %.0f requests/s\n", source, flows[0], flows[1])
	}
	fmt.Printf("utilization %.2f and %.2f\n", s.Utilization[0], s.Utilization[1])
	fmt.Printf("proven optimal within 0.5%%: %t\n", solution.Gap <= 0.005)
	// Output:
	// source 0 sends 676 and 524 requests/s
	// source 1 sends 0 and 100 requests/s
	// utilization 0.68 and 0.62
	// proven optimal within 0.5%: true
}

// What does not fit is shed as far as that is allowed, and no error.
func ExampleSolve_overload() {
	solution, err := solver.Solve(solver.Problem{Services: []solver.Service{{
		Demand:     []float64{1000},
		Localities: []solver.Locality{{Capacity: 1000, Ceiling: 0.8}},
		Latency:    [][]float64{{0}},
		MaxShed:    0.1,
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := solution.Services[0]
	fmt.Printf("%.0f requests/s are shed, the ceiling is raised %.3f times\n", s.Shed[0], s.CeilingScale)
	// Output:
	// 100 requests/s are shed, the ceiling is raised 1.125 times
}

// A solution proves itself. CheckAll and TotalBound follow from the problem alone: they need no
// trust in the method that found the solution, or in the program that it comes from.
func ExampleTotalBound() {
	zone := solver.Locality{Capacity: 1000, Servers: 10}
	problem := solver.Problem{Services: []solver.Service{{
		Demand:     []float64{1200, 100},
		Localities: []solver.Locality{zone, zone},
		Latency:    [][]float64{{0, 2}, {2, 0}},
	}}}
	solution, err := solver.Solve(problem)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := solver.CheckAll(problem, solution); err != nil { // all demand, no load above its ceiling
		fmt.Println(err)
		return
	}
	cost := solver.Objective(problem.Services[0], solution.Services[0].Flows)
	bound, err := solver.TotalBound(problem, solution.Services) // no flows cost less
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("within 0.5%% of the optimum: %t\n", cost <= 1.005*bound)
	// Output:
	// within 0.5% of the optimum: true
}
