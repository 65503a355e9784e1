package solver_test

import (
	"math"
	"math/rand/v2"

	"github.com/isobar-xds/isobar/solver"
)

// randomCalls is a problem of some services in an acyclic call graph, all in
// the same plane of regions: chains, diamonds, several callers of one service,
// sources of their own beside callers. Every service but the first is called;
// load is how full each is of what its ceilings allow; restrict isolates some
// sources and lets some services shed.
func randomCalls(rng *rand.Rand, services, localities int, load func() float64, restrict bool) solver.Problem {
	w := newWorld(rng)
	var p solver.Problem
	places := make([][]place, services)
	total := make([]float64, services)
	for i := range services {
		s := solver.Service{}
		var from []place
		var demand []float64
		n := localities
		if rng.IntN(2) == 0 {
			n = 1 + rng.IntN(localities)
		}
		for range n {
			l := solver.Locality{
				Capacity: math.Exp(rng.Float64() * 3),
				Servers:  float64(1 + rng.IntN(100)),
				Ceiling:  []float64{0, 0.6, 0.8, 0.95, 1}[rng.IntN(5)],
			}
			switch rng.IntN(6) {
			case 0:
				l.Queues = math.Max(1, l.Servers/4)
			case 1:
				l.Servers = 0
			case 2:
				l.Unmanaged = rng.Float64() * 0.5 * l.Capacity
			}
			s.Localities = append(s.Localities, l)
			places[i] = append(places[i], w.place(rng))
		}
		if i == 0 || rng.IntN(3) == 0 {
			for range 1 + rng.IntN(localities) {
				from = append(from, w.place(rng))
				demand = append(demand, math.Exp(3+rng.Float64()*4))
			}
		}
		called := 0.0
		for j := range i {
			caller := &p.Services[j]
			// In large graphs a service has a caller or two, as in small ones.
			if rng.IntN(max(3, services/2)) > 0 && (j < i-1 || called > 0) {
				continue
			}
			per := math.Exp(rng.Float64()*3 - 1.5)
			caller.Calls = append(caller.Calls, solver.Call{Service: i, PerRequest: per})
			from = append(from, places[j]...)
			called += per * total[j]
		}
		own := sum(demand)
		if called > 0 && own > 0 {
			demand = times(called*rng.Float64()/own, demand)
		}
		s.Demand = demand
		total[i] = called + sum(demand)
		for _, f := range from {
			var row, price []float64
			for _, t := range places[i] {
				row = append(row, w.latency(f, t))
				price = append(price, float64(rng.IntN(4)/3))
			}
			s.Latency, s.Price = append(s.Latency, row), append(s.Price, price)
		}
		if restrict && rng.IntN(2) == 0 {
			isolate(rng, &s, 0.7*rng.Float64())
			for range len(from) - len(demand) {
				s.Allowed = append(s.Allowed, allTrue(n))
			}
		}
		if restrict && rng.IntN(2) == 0 {
			s.MaxShed = rng.Float64() * 0.2
		}
		// Capacity follows from demand: units are free until here.
		sized := 0.0
		for _, l := range s.Localities {
			sized += headroom(l)
		}
		factor := total[i] / (load() * sized)
		for l := range s.Localities {
			s.Localities[l].Capacity *= factor
			s.Localities[l].Unmanaged *= factor
			// Service times of 1 to 100 ms.
			if s.Localities[l].Servers > 0 {
				s.Localities[l].Servers = s.Localities[l].Capacity * math.Exp(rng.Float64()*4.6) / 1000
			}
			if s.Localities[l].Queues > 0 {
				s.Localities[l].Queues = math.Max(1, s.Localities[l].Servers/4)
			}
		}
		p.Services = append(p.Services, s)
	}
	return p
}

// world is a plane of regions; places in a region are near each other.
type world struct{ x, y []float64 }

type place struct {
	region int
	offset float64
}

func newWorld(rng *rand.Rand) world {
	var w world
	for range 1 + rng.IntN(6) {
		w.x, w.y = append(w.x, rng.Float64()*200), append(w.y, rng.Float64()*100)
	}
	return w
}

func (w world) place(rng *rand.Rand) place { return place{rng.IntN(len(w.x)), rng.Float64() * 2} }

func (w world) latency(a, b place) float64 {
	if a.region == b.region {
		return math.Abs(a.offset - b.offset)
	}
	return 1 + math.Hypot(w.x[a.region]-w.x[b.region], w.y[a.region]-w.y[b.region])
}

func allTrue(n int) []bool {
	row := make([]bool, n)
	for i := range row {
		row[i] = true
	}
	return row
}

// callsProblem is the i-th of a sequence: 1 to 5 services of up to 30
// localities, from light load to overflow.
func callsProblem(i uint64) solver.Problem {
	rng := rand.New(rand.NewPCG(21, i))
	high := 1.05
	if i%5 == 4 {
		high = 1.4
	}
	return randomCalls(rng, 1+rng.IntN(5), 2+rng.IntN(29), func() float64 { return 0.3 + (high-0.3)*rng.Float64() }, i%4 == 3)
}
