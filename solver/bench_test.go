package solver_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

func benchmarkSolve(b *testing.B, services, sources, localities int) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	p := solver.Problem{}
	for range services {
		p.Services = append(p.Services, randomService(rng, sources, localities, 0.3+0.9*rng.Float64()))
	}
	var sol solver.Solution
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if sol, err = solver.Solve(p); err != nil {
			b.Fatal(err)
		}
	}
	worst, iterations := 0.0, 0
	for _, s := range sol.Services {
		worst = max(worst, s.Gap)
		iterations += s.Iterations
	}
	b.ReportMetric(sol.Gap, "gap")
	b.ReportMetric(worst, "worst-gap")
	b.ReportMetric(float64(iterations)/float64(services), "iterations/service")
}

// resolved is a service whose demand has changed by up to noise since it was
// solved, with what it was solved to.
func resolved(tb testing.TB, rng *rand.Rand, n int, load, noise float64) solver.Service {
	tb.Helper()
	s := randomService(rng, n, n, load)
	sol, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
	if err != nil {
		tb.Fatal(err)
	}
	was := sol.Services[0]
	s.Previous, s.Last, s.WarmPrices = was.Flows, was.Flows, was.Prices
	s.Demand = slices.Clone(s.Demand)
	for i := range s.Demand {
		s.Demand[i] *= 1 + noise*(2*rng.Float64()-1)
	}
	return s
}

// What it costs to solve a service again whose demand has changed by 3%.
func BenchmarkSolveAgain100x100(b *testing.B) {
	s := resolved(b, rand.New(rand.NewPCG(1, 2)), 100, 0.7, 0.03)
	var sol solver.Solution
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if sol, err = solver.Solve(solver.Problem{Services: []solver.Service{s}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(sol.Gap, "gap")
	b.ReportMetric(float64(sol.Services[0].Iterations), "iterations")
}

func BenchmarkSolve1000x10x10(b *testing.B) { benchmarkSolve(b, 1000, 10, 10) }

func BenchmarkSolve100x100(b *testing.B) { benchmarkSolve(b, 1, 100, 100) }

func BenchmarkSolve200x200(b *testing.B) { benchmarkSolve(b, 1, 200, 200) }

func benchmarkCalls(b *testing.B, services, localities int) {
	b.Helper()
	p := randomCalls(rand.New(rand.NewPCG(1, 3)), services, localities, func() float64 { return 0.85 }, false)
	var sol solver.Solution
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if sol, err = solver.Solve(p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(sol.Gap, "gap")
	b.ReportMetric(float64(sol.Services[0].Iterations), "iterations")
}

func BenchmarkCalls5x30(b *testing.B) { benchmarkCalls(b, 5, 30) }

func BenchmarkCalls40x10(b *testing.B) { benchmarkCalls(b, 40, 10) }

// The cost of variable demand: time per pair of a source and a locality.
func benchmarkVariable(b *testing.B, n int, load float64) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 4))
	p := solver.Problem{}
	for range 20 {
		s := randomService(rng, n, n, load)
		s.Variability = make([]float64, n)
		for i := range s.Variability {
			s.Variability[i] = 0.1 + 0.4*rng.Float64()
		}
		p.Services = append(p.Services, s)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := solver.Solve(p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(p.Services)*n*n), "ns/pair")
}

func BenchmarkVariable10x10(b *testing.B) { benchmarkVariable(b, 10, 0.7) }

func BenchmarkVariableFull10x10(b *testing.B) { benchmarkVariable(b, 10, 0.95) }

func BenchmarkVariable30x30(b *testing.B) { benchmarkVariable(b, 30, 0.7) }
