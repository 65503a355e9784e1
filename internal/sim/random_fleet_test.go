//go:build !race

package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/plan"
)

// bounds of random fleets.
type bounds struct {
	services, localities, endpoints, clients int
	length                                   time.Duration
}

var (
	small = bounds{services: 3, localities: 6, endpoints: 4, clients: 4, length: 10 * time.Minute}
	large = bounds{services: 6, localities: 16, endpoints: 12, clients: 10, length: 10 * time.Minute}
)

// randomFleet makes a fleet, and what happens to it, from a seed.
func randomFleet(seed uint64, b bounds) *Scenario {
	r := rand.New(rand.NewPCG(seed, 0))
	const interval = 5 * time.Second
	delay := func() Delay {
		return Delay{Base: time.Duration(r.IntN(4)) * interval / time.Duration(1+r.IntN(10)), Jitter: time.Duration(r.Int64N(int64(interval)))}
	}
	sc := &Scenario{
		Seed: seed, Length: b.length, Tick: interval, Interval: interval, Step: interval / 10,
		ReportDelay: delay(), PushDelay: delay(), HealthDelay: time.Duration(r.Int64N(int64(30 * time.Second))),
		UtilizationNoise: 0.2 * r.Float64(),
	}
	places := make([]isobar.Locality, 1+r.IntN(b.localities))
	for i := range places {
		places[i] = isobar.Locality{Region: fmt.Sprintf("r%d", r.IntN(3)), Zone: fmt.Sprintf("z%d", i)}
	}
	network, err := isobar.NewNetwork([]isobar.LatencyRule{
		{From: isobar.Locality{Region: "r0"}, To: isobar.Locality{Region: "r1"}, MS: 5 + 100*r.Float64()},
		{From: isobar.Locality{Region: "r0"}, To: isobar.Locality{Region: "r2"}, MS: 5 + 100*r.Float64()},
	})
	if err != nil {
		panic(err) // a mistake in this file
	}
	sc.Topology = &isobar.Topology{Revision: 1, Network: network}
	for i := range 1 + r.IntN(b.services) {
		sc.Topology.Services = append(sc.Topology.Services, randomService(r, i, b, places))
	}
	services := sc.Topology.Services
	for i := range len(services) - 1 {
		if r.IntN(4) == 0 {
			services[i].Calls = []isobar.Call{{Service: services[i+1].Name, PerRequest: 0.2 + r.Float64()}}
		}
	}
	for i := range services {
		services[i].CapacityTrust = isobar.CapacityTrusts()[rand.New(rand.NewPCG(seed, uint64(3000+i))).IntN(2)]
		randomRules(rand.New(rand.NewPCG(seed, uint64(1+i))), &services[i])
	}
	sc.Topology.Normalize()
	for i := range services {
		sc.Sources = append(sc.Sources, randomSources(r, &services[i], b, places)...)
	}
	randomClasses(rand.New(rand.NewPCG(seed, 2000)), sc)
	randomTrouble(r, sc, places)
	randomLosses(rand.New(rand.NewPCG(seed, 1000)), sc, places)
	return sc
}

func randomService(r *rand.Rand, index int, b bounds, places []isobar.Locality) isobar.Service {
	s := isobar.Service{Name: fmt.Sprintf("s%d", index), ORCA: isobar.ORCA{On: r.IntN(2) == 0}, ServiceTimeMS: 1 + 50*r.Float64()}
	switch r.IntN(6) {
	case 0:
		s.Mode = isobar.ModeObserve
	case 1:
		s.Mode, s.MaxShift = isobar.ModeBounded, 5+50*r.Float64()
	}
	if r.IntN(4) == 0 {
		s.MaxShed = 0.5 * r.Float64()
	}
	for i, p := range places {
		if i > 0 && r.IntN(4) == 0 {
			continue
		}
		n := 1 + r.IntN(b.endpoints)
		sl := isobar.ServiceLocality{Locality: p, MaxRate: float64(n) * (20 + 200*r.Float64()), Ceiling: 0.5 + 0.5*r.Float64()}
		sl.Concurrency = sl.MaxRate * s.ServiceTimeMS / 1000
		for j := range n {
			sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:80", index, i, j+1)})
		}
		s.Localities = append(s.Localities, sl)
	}
	return s
}

// randomRules gives a third of the services other rules than those of least latency.
func randomRules(r *rand.Rand, s *isobar.Service) {
	if r.IntN(3) > 0 {
		return
	}
	s.Policy = isobar.Policy(r.IntN(len(isobar.PolicyNames())))
	s.Isolation = isobar.Isolation(r.IntN(len(isobar.IsolationNames())))
	s.FailoverThreshold = r.Float64()
	prefers := r.IntN(3) == 0
	for i := range s.Localities {
		s.Localities[i].Preferred = prefers && r.IntN(2) == 0
		if s.Policy == isobar.PolicyFixed {
			s.Localities[i].Weight = float64(r.IntN(4))
		}
	}
	if r.IntN(4) == 0 {
		from, _ := isobar.ParseLocalityGlob("r0")
		allow, _ := isobar.ParseLocalityGlob("r*/z0")
		s.Residency = []isobar.Residency{{From: from, Allow: []isobar.LocalityGlob{from, allow}}}
	}
}

// randomSources sends a service between a fifth and a third more than it has.
func randomSources(r *rand.Rand, s *isobar.Service, b bounds, places []isobar.Locality) []Source {
	capacity := 0.0
	for i := range s.Localities {
		capacity += s.Localities[i].MaxRate
	}
	level := 0.2 + 1.1*r.Float64()*r.Float64()
	var out []Source
	for _, p := range places {
		if r.IntN(5) == 0 {
			continue
		}
		n := 1 + r.IntN(b.clients)
		src := Source{
			Service: s.Name, From: p, Noise: 0.1 * r.Float64(), Clients: n, Kind: dataplane.Kind(r.IntN(2)),
			Demand: Times(Constant(level*capacity*2*r.Float64()/float64(len(places))), randomShape(r, b.length)),
		}
		if r.IntN(8) == 0 {
			src.Silent = r.IntN(n)
		}
		if r.IntN(16) == 0 {
			src.Liars, src.Lie, src.LieFrom = n-src.Silent, 20*r.Float64(), b.length/4
		}
		out = append(out, src)
	}
	return out
}

// randomClasses lets half of the services that shed do so by class.
func randomClasses(r *rand.Rand, sc *Scenario) {
	names := []string{"payments", "web", "batch-a", "batch-b"}
	for i := range sc.Sources {
		sc.Sources[i].Client = names[r.IntN(len(names))]
	}
	services := sc.Topology.Services
	for i := range services {
		if services[i].MaxShed == 0 || r.IntN(2) == 0 {
			continue
		}
		c := &isobar.Criticality{Clients: []isobar.ClientClass{
			{Client: "payments", Class: isobar.ClassCriticalPlus},
			{Client: "batch-*", Class: isobar.ClassSheddable},
			{Client: "batch-b", Class: isobar.ClassSheddablePlus},
		}}
		most := 1.0
		for k := isobar.Classes - 1; k >= 0; k-- {
			c.MaxShed[k] = most
			most *= r.Float64()
		}
		services[i].Criticality = c
	}
}

func randomShape(r *rand.Rand, length time.Duration) Shape {
	at := time.Duration(r.Int64N(int64(length)))
	switch r.IntN(8) {
	case 0:
		return Step(at, 2.5*r.Float64())
	case 1:
		return Flash(at, time.Minute, 3*r.Float64())
	case 2:
		return Square(time.Duration(2+r.IntN(20))*time.Second, 0, r.Float64(), 2*r.Float64())
	case 3:
		return Wave(length/2, at, r.Float64())
	case 4:
		return Ramp(at, at+length/4, 2*r.Float64())
	default:
		return Constant(1)
	}
}

// randomLosses takes inputs away from every third fleet, for so long that the
// shares of some go towards a split by capacity.
func randomLosses(r *rand.Rand, sc *Scenario, places []isobar.Locality) {
	if r.IntN(3) > 0 {
		return
	}
	for _, kind := range append(plan.Inputs(), Pushes) {
		if r.IntN(2) == 0 {
			continue
		}
		from := time.Duration(r.Int64N(int64(sc.Length)))
		x := Loss{Input: kind, From: from, To: from + time.Duration(r.Int64N(int64(sc.Length)))}
		if r.IntN(2) == 0 {
			x.Scope = places[r.IntN(len(places))]
		}
		sc.Losses = append(sc.Losses, x)
	}
	sc.Degradation = plan.Degradation{Reports: plan.Steps{Decay: time.Minute}, Health: plan.Steps{Hold: time.Minute, Decay: 2 * time.Minute}}
}

func randomTrouble(r *rand.Rand, sc *Scenario, places []isobar.Locality) {
	for range r.IntN(3) {
		from := time.Duration(r.Int64N(int64(sc.Length)))
		o := Outage{Locality: places[r.IntN(len(places))], From: from, To: from + time.Duration(r.Int64N(int64(sc.Length/2))), Unnoticed: r.IntN(4) == 0}
		switch r.IntN(4) {
		case 0:
			o.Locality = isobar.Locality{Region: o.Locality.Region}
		case 1:
			o.Share = r.Float64()
		case 2:
			o.Period = time.Duration(5+r.IntN(60)) * time.Second
		}
		sc.Outages = append(sc.Outages, o)
	}
	for range r.IntN(3) {
		sc.Capacities = append(sc.Capacities, Capacity{
			Locality: places[r.IntN(len(places))],
			Factor:   Times(Constant(0.5+r.Float64()), randomShape(r, sc.Length)),
		})
	}
}
