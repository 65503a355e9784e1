package solver_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar/solver"
)

// randomService is a fleet of localities in a plane of regions: demand and
// capacity of all sizes, load as a fraction of what the ceilings allow.
func randomService(rng *rand.Rand, sources, localities int, load float64) solver.Service {
	s := solver.Service{}
	regions := 1 + rng.IntN(6)
	x, y := make([]float64, regions), make([]float64, regions)
	for i := range x {
		x[i], y[i] = rng.Float64()*200, rng.Float64()*100
	}
	at := func() (int, float64) { return rng.IntN(regions), rng.Float64() * 2 }
	headroom := 0.0
	type place struct {
		region int
		offset float64
	}
	var targets []place
	for range localities {
		l := solver.Locality{
			Capacity: math.Exp(rng.Float64()*5 + 3),
			Servers:  float64(1 + rng.IntN(100)),
			Ceiling:  []float64{0, 0.6, 0.8, 0.95, 1}[rng.IntN(5)],
		}
		switch rng.IntN(4) {
		case 0:
			l.Queues = math.Max(1, l.Servers/4)
		case 1:
			l.Servers = 0
		case 2:
			l.Unmanaged = rng.Float64() * 0.5 * l.Capacity
		}
		ceiling := l.Ceiling
		if ceiling == 0 {
			ceiling = 0.8
		}
		headroom += math.Max(0, ceiling*l.Capacity-l.Unmanaged)
		s.Localities = append(s.Localities, l)
		r, o := at()
		targets = append(targets, place{r, o})
	}
	total := 0.0
	for range sources {
		d := math.Exp(rng.Float64() * 4)
		if rng.IntN(10) == 0 {
			d = 0
		}
		s.Demand = append(s.Demand, d)
		total += d
		r, o := at()
		row, price := make([]float64, localities), make([]float64, localities)
		for l, t := range targets {
			if t.region != r {
				row[l] = 1 + math.Hypot(x[r]-x[t.region], y[r]-y[t.region])
			} else if rng.IntN(3) > 0 {
				row[l] = math.Abs(o - t.offset)
			}
			price[l] = float64(rng.IntN(3))
		}
		s.Latency = append(s.Latency, row)
		if rng.IntN(2) == 0 {
			clear(price)
		}
		s.Price = append(s.Price, price)
	}
	if total == 0 {
		s.Demand[0], total = 1, 1
	}
	for i := range s.Demand {
		s.Demand[i] *= load * headroom / total
	}
	return s
}

// isolate forbids a share of the ways, but leaves every source one.
func isolate(rng *rand.Rand, s *solver.Service, share float64) {
	for range s.Demand {
		row := make([]bool, len(s.Localities))
		for l := range row {
			row[l] = rng.Float64() >= share
		}
		row[rng.IntN(len(row))] = true
		s.Allowed = append(s.Allowed, row)
	}
}

// tieMS is how much mean latency a solution may give away to break ties.
const tieMS = 0.0101

func solveOne(tb testing.TB, s solver.Service) solver.ServiceSolution {
	tb.Helper()
	sol, err := solver.Solve(solver.Problem{Services: []solver.Service{s}})
	if err != nil {
		tb.Fatal(err)
	}
	return sol.Services[0]
}
