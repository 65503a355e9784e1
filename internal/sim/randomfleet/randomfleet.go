// Package randomfleet makes random fleets with one fault each, from a seed, for tests and
// benchmarks of the simulator. Commands of the product do not use it.
package randomfleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/sim"
)

// Fault is what is wrong with a random fleet.
type Fault string

// The faults.
const (
	None       Fault = "declared correctly"
	Wrong      Fault = "declared wrongly"
	Missing    Fault = "nothing declared"
	Brownout   Fault = "brown-out"
	Slow       Fault = "slow dependency"
	BadPods    Fault = "pods that fail in part"
	Shedding   Fault = "declared wrongly, servers shed"
	Silent     Fault = "declared wrongly, silent clients"
	Liar       Fault = "declared wrongly, a liar"
	InProgress Fault = "declared wrongly, a liar about requests in progress"
	Bursts     Fault = "bursts"
)

// Faults lists them all.
func Faults() []Fault {
	return []Fault{
		None, Wrong, Missing, Brownout, Slow, BadPods, Shedding, Silent, Liar, InProgress, Bursts,
	}
}

// FaultAt is when faults and steps of demand begin in a random fleet: nothing is
// measured in the 20 ticks after.
const FaultAt = 3 * time.Minute

// New returns a random fleet of one service in 4 localities, with single
// requests and one fault, from a seed. Demand of one locality grows at [FaultAt];
// all of it fits into the service.
func New(seed uint64, fault Fault) *sim.Scenario {
	r := rand.New(rand.NewPCG(seed, 2100)) //nolint:gosec // a simulation
	const tick = 5 * time.Second
	sc := &sim.Scenario{
		Seed: seed, Length: FaultAt + 60*tick, Warmup: FaultAt + 20*tick, Tick: tick, Interval: tick,
		ReportDelay: sim.Delay{Base: 50 * time.Millisecond, Jitter: 100 * time.Millisecond},
		PushDelay:   sim.Delay{Base: 50 * time.Millisecond, Jitter: 100 * time.Millisecond},
		Requests:    true, Timeout: []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}[r.IntN(3)],
		Serving: []sim.Serving{{Variation: []float64{0.1, 0.25, 0.5, 1, 2}[r.IntN(5)]}},
	}
	service := 0.01 * math.Exp2(2.5*r.Float64())
	workers, pods := 1+r.IntN(4), 2+r.IntN(4)
	places := make([]isobar.Locality, 4)
	// Failed requests are measured with the timeout, so they count with it in decisions, too.
	s := isobar.Service{Name: "web", ErrorCostMS: float64(sc.Timeout) / float64(time.Millisecond)}
	for i := range places {
		places[i] = isobar.Locality{Region: "us", Zone: string(rune('a' + i))}
		if i == 3 && r.IntN(2) == 0 {
			places[i].Region = "eu"
		}
		n := max(1, int(float64(pods)*(0.7+0.6*r.Float64())))
		sl := isobar.ServiceLocality{
			Locality: places[i], MaxRate: float64(n*workers) / service, Concurrency: float64(n * workers),
		}
		for j := range n {
			sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i, j+1)})
		}
		s.Localities = append(s.Localities, sl)
	}
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: isobar.Locality{Region: "us"}, To: isobar.Locality{Region: "eu"}, MS: 20 + 60*r.Float64()}})
	if err != nil {
		panic(err) // a mistake in this file
	}
	sc.Topology = &isobar.Topology{Revision: 1, Network: network, Services: []isobar.Service{s}}
	capacities := make([]float64, len(places))
	for i := range s.Localities {
		capacities[i] = s.Localities[i].MaxRate
	}
	hot := r.IntN(len(places))
	addFault(sc, fault, r, places[hot])
	sc.Topology.Normalize()
	addClients(sc, r, places, capacities, hot)
	if fault == Silent || fault == Liar || fault == InProgress {
		mislead(sc, fault, r, hot)
	}
	if fault == Bursts {
		sc.Sources[hot].Demand = sim.Times(sc.Sources[hot].Demand, sim.Square(40*time.Second, 0, 0.7, 1.3))
	}
	return sc
}

// addFault adds the fault to the locality that gets more.
func addFault(sc *sim.Scenario, fault Fault, r *rand.Rand, hot isobar.Locality) {
	wrong := func() {
		for i := range sc.Topology.Services[0].Localities {
			l := sc.Topology.Services[0].Localities[i].Locality
			by := math.Exp2(0.6 * r.NormFloat64())
			if l == hot {
				by = 1.3 + 1.2*r.Float64()
			}
			sc.Declared = append(sc.Declared, sim.Capacity{Locality: l, Factor: sim.Constant(min(3, max(0.4, by)))})
		}
	}
	switch fault {
	case Wrong, Silent, Liar, InProgress:
		wrong()
	case Shedding:
		wrong()
		sc.Serving[0].Waiting = 1 + r.IntN(6)
	case Missing:
		sc.Undeclared = true
	case Brownout:
		sc.Capacities = append(sc.Capacities, sim.Capacity{Locality: hot, Factor: sim.Step(FaultAt, 0.4+0.3*r.Float64())})
	case Slow:
		sc.Troubles = append(sc.Troubles, sim.Trouble{Locality: hot, From: FaultAt, To: sc.Length, SlowMS: 20 + 150*r.Float64()})
	case BadPods:
		sc.Troubles = append(sc.Troubles, sim.Trouble{Locality: hot, Share: 0.5, From: FaultAt, To: sc.Length, Failing: 0.2 + 0.4*r.Float64()})
	case None, Bursts:
	}
}

// addClients adds clients that use about half of the service at first, and then more in
// one locality.
func addClients(sc *sim.Scenario, r *rand.Rand, places []isobar.Locality, capacities []float64, hot int) {
	all := 0.0
	for i, p := range places {
		used := 0.35 + 0.25*r.Float64()
		kind := dataplane.Kind(r.IntN(2)) //nolint:gosec // below 2
		src := sim.Source{Service: "web", From: p, Clients: 6 + r.IntN(7), Kind: kind, Demand: sim.Constant(used * capacities[i])}
		all += capacities[i]
		sc.Sources = append(sc.Sources, src)
	}
	for _, c := range sc.Capacities { // less what the fault takes
		if c.Locality == places[hot] {
			all -= capacities[hot] * (1 - c.Factor(FaultAt))
		}
	}
	sum := 0.0
	for i := range sc.Sources {
		sum += sc.Sources[i].Demand(0)
	}
	// The step leaves the service at most 75% full.
	now := sc.Sources[hot].Demand(0)
	most := max(1, (0.75*all-(sum-now))/now)
	sc.Sources[hot].Demand = sim.Times(sc.Sources[hot].Demand, sim.Step(FaultAt, min(most, 1.5+r.Float64())))
}

// mislead lets some clients of the hottest locality say nothing, or lie.
func mislead(sc *sim.Scenario, fault Fault, r *rand.Rand, hot int) {
	src := &sc.Sources[hot]
	src.Clients = 12
	switch fault {
	case Silent:
		src.Silent = 2
	case Liar:
		src.Liars, src.Lie = 1, []float64{0, 10, 1000}[r.IntN(3)]
	default:
		factor := []float64{0, 10, 1000}[r.IntN(3)]
		src.Liars, src.Lie, src.LieInProgress = 1, 1, &factor
	}
}
