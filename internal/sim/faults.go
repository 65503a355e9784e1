package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

// Fault is what is wrong with a random fleet.
type Fault string

// The faults.
const (
	FaultNone       Fault = "declared rightly"
	FaultWrong      Fault = "declared wrongly"
	FaultMissing    Fault = "nothing declared"
	FaultBrownout   Fault = "brown-out"
	FaultSlow       Fault = "slow dependency"
	FaultBadPods    Fault = "pods that fail in part"
	FaultShedding   Fault = "declared wrongly, servers shed"
	FaultSilent     Fault = "declared wrongly, silent clients"
	FaultLiar       Fault = "declared wrongly, a liar"
	FaultInProgress Fault = "declared wrongly, a liar about requests in progress"
	FaultBursts     Fault = "bursts"
)

// Faults lists them all.
func Faults() []Fault {
	return []Fault{
		FaultNone, FaultWrong, FaultMissing, FaultBrownout, FaultSlow, FaultBadPods, FaultShedding, FaultSilent, FaultLiar, FaultInProgress, FaultBursts,
	}
}

// FaultAt is when faults and steps of demand begin in a random fleet: nothing is
// measured in the 20 ticks after.
const FaultAt = 3 * time.Minute

// FaultyFleet makes a random fleet of one service in 4 localities, with single
// requests and one fault, from a seed. Demand of one locality grows at [FaultAt];
// all of it fits into the service.
func FaultyFleet(seed uint64, fault Fault) *Scenario {
	r := rand.New(rand.NewPCG(seed, 2100)) //nolint:gosec // a simulation
	const tick = 5 * time.Second
	sc := &Scenario{
		Seed: seed, Length: FaultAt + 60*tick, Warmup: FaultAt + 20*tick, Tick: tick, Interval: tick,
		ReportDelay: Delay{Base: 50 * time.Millisecond, Jitter: 100 * time.Millisecond},
		PushDelay:   Delay{Base: 50 * time.Millisecond, Jitter: 100 * time.Millisecond},
		Requests:    true, Timeout: []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}[r.IntN(3)],
		Serving: []Serving{{Variation: []float64{0.1, 0.25, 0.5, 1, 2}[r.IntN(5)]}},
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
	sc.breakIt(fault, r, places[hot])
	sc.Topology.Normalize()
	sc.load(r, places, capacities, hot)
	if fault == FaultSilent || fault == FaultLiar || fault == FaultInProgress {
		sc.mislead(fault, r, hot)
	}
	if fault == FaultBursts {
		sc.Sources[hot].Demand = Times(sc.Sources[hot].Demand, Square(40*time.Second, 0, 0.7, 1.3))
	}
	return sc
}

// breakIt adds the fault to the locality that gets more.
func (sc *Scenario) breakIt(fault Fault, r *rand.Rand, hot isobar.Locality) {
	wrong := func() {
		for i := range sc.Topology.Services[0].Localities {
			l := sc.Topology.Services[0].Localities[i].Locality
			by := math.Exp2(0.6 * r.NormFloat64())
			if l == hot {
				by = 1.3 + 1.2*r.Float64()
			}
			sc.Declared = append(sc.Declared, Capacity{Locality: l, Factor: Constant(min(3, max(0.4, by)))})
		}
	}
	switch fault {
	case FaultWrong, FaultSilent, FaultLiar, FaultInProgress:
		wrong()
	case FaultShedding:
		wrong()
		sc.Serving[0].Waiting = 1 + r.IntN(6)
	case FaultMissing:
		sc.Undeclared = true
	case FaultBrownout:
		sc.Capacities = append(sc.Capacities, Capacity{Locality: hot, Factor: Step(FaultAt, 0.4+0.3*r.Float64())})
	case FaultSlow:
		sc.Troubles = append(sc.Troubles, Trouble{Locality: hot, From: FaultAt, To: sc.Length, SlowMS: 20 + 150*r.Float64()})
	case FaultBadPods:
		sc.Troubles = append(sc.Troubles, Trouble{Locality: hot, Share: 0.5, From: FaultAt, To: sc.Length, Failing: 0.2 + 0.4*r.Float64()})
	case FaultNone, FaultBursts:
	}
}

// load makes clients that use about half of the service at first, and then more in
// one locality.
func (sc *Scenario) load(r *rand.Rand, places []isobar.Locality, capacities []float64, hot int) {
	all := 0.0
	for i, p := range places {
		used := 0.35 + 0.25*r.Float64()
		kind := dataplane.Kind(r.IntN(2)) //nolint:gosec // below 2
		src := Source{Service: "web", From: p, Clients: 6 + r.IntN(7), Kind: kind, Demand: Constant(used * capacities[i])}
		all += capacities[i]
		sc.Sources = append(sc.Sources, src)
	}
	for _, c := range sc.Capacities { // what is left of it
		if i := hot; c.Locality == places[i] {
			all -= capacities[i] * (1 - c.Factor(FaultAt))
		}
	}
	sum := 0.0
	for i := range sc.Sources {
		sum += sc.Sources[i].Demand(0)
	}
	// The step leaves the service at most 75% full.
	now := sc.Sources[hot].Demand(0)
	most := max(1, (0.75*all-(sum-now))/now)
	sc.Sources[hot].Demand = Times(sc.Sources[hot].Demand, Step(FaultAt, min(most, 1.5+r.Float64())))
}

// mislead lets some clients of the hottest locality say nothing, or lie.
func (sc *Scenario) mislead(fault Fault, r *rand.Rand, hot int) {
	src := &sc.Sources[hot]
	src.Clients = 12
	switch fault {
	case FaultSilent:
		src.Silent = 2
	case FaultLiar:
		src.Liars, src.Lie = 1, []float64{0, 10, 1000}[r.IntN(3)]
	default:
		factor := []float64{0, 10, 1000}[r.IntN(3)]
		src.Liars, src.Lie, src.LieInProgress = 1, 1, &factor
	}
}
