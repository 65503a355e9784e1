package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// Limits within which the simulator is true: how far a real result may be outside of
// what the simulator finds, of the mean latency and of the part of the requests that fails.
const (
	trueMean   = 0.15
	trueFailed = 0.01
)

// repetitions is how often each scenario is simulated, with other arrivals and service
// times: with some policies, the result depends on them more than on anything else.
const repetitions = 9

// simulation is what the simulator finds, once.
type simulation struct {
	MeanMS float64 `json:"mean_ms"`
	Failed float64 `json:"failed"` // part of the requests
}

// simulations are the repetitions of a scenario under a policy.
type simulations []simulation

// spread returns the lowest, the median and the highest of a figure.
func (s simulations) spread(of func(simulation) float64) (low, median, high float64) {
	sorted := make([]float64, len(s))
	for i := range s {
		sorted[i] = of(s[i])
	}
	slices.Sort(sorted)
	return sorted[0], sorted[len(sorted)/2], sorted[len(sorted)-1]
}

func meanOf(s simulation) float64 { return s.MeanMS }

func failedOf(s simulation) float64 { return s.Failed }

// ejection is the outlier detection of the clusters that Isobar does not make, as
// [envoyloop.Ejection] says it.
var ejection = sim.Ejection{Consecutive: 5, Interval: 2 * time.Second, Base: 10 * time.Second}

// startedWithin is the time in which the Envoys of a fleet start. The logs of their outlier detection
// have the ends of ejections, which come at intervals from the start, within 0.2 s of each other.
const startedWithin = 200 * time.Millisecond

// simulate plays the scenario under the policies in the simulator, request by request,
// repetitions times. It returns what it finds by the simulator's names of policies.
func simulate(ctx context.Context, o *settings, s *scenario) (map[string]simulations, error) {
	sc, err := simulated(o, s)
	if err != nil {
		return nil, err
	}
	var chosen []sim.Policy
	for _, p := range append(sim.Policies(), sim.StaticMean()) {
		if slices.ContainsFunc(policies, func(d policy) bool { return d.simulated == p.Name }) {
			chosen = append(chosen, p)
		}
	}
	out := map[string]simulations{}
	for range repetitions {
		results, err := sim.Compare(ctx, sc, chosen, nil)
		if err != nil {
			return nil, fmt.Errorf("simulate %s: %w", s.Name, err)
		}
		for _, r := range results {
			out[r.Policy] = append(out[r.Policy], simulation{r.MeanMS, r.Failed})
		}
		sc.Seed++
	}
	return out, nil
}

// simulated is the same fleet for the simulator.
func simulated(o *settings, s *scenario) (*sim.Scenario, error) {
	var rules []isobar.LatencyRule
	for from := range zones {
		for to := range from {
			rules = append(rules, isobar.LatencyRule{From: zones[from], To: zones[to], MS: milliseconds(latency(from, to))})
		}
	}
	network, err := isobar.NewNetwork(rules)
	if err != nil {
		return nil, err
	}
	shop := isobar.Service{Name: service, ErrorCostMS: milliseconds(timeout)}
	shop.RequestTimeout = isobar.RequestTimeout(timeout)
	sc := &sim.Scenario{
		Seed: o.seed, Length: o.warm + o.length, Warmup: o.warm, Step: 100 * time.Millisecond, Tick: o.tick, Interval: o.tick, Timeout: timeout,
		ReportDelay: sim.Delay{Base: 5 * time.Millisecond}, PushDelay: sim.Delay{Base: 5 * time.Millisecond, Jitter: 5 * time.Millisecond},
		Requests: true, Served: true, StartedWithin: startedWithin,
		Serving: []sim.Serving{{Variation: 1.0 / 12}}, // times are uniform from a half to one and a half
	}
	if o.eject {
		sc.Ejection = ejection
	}
	for z, zone := range zones {
		l := isobar.ServiceLocality{Locality: zone, MaxRate: capacity, Concurrency: backendsPerZone * concurrency}
		for i := range backendsPerZone {
			l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", z, i+1)})
		}
		shop.Localities = append(shop.Localities, l)
		sc.Sources = append(sc.Sources, sim.Source{
			Service: service, From: zone, Clients: o.proxies,
			Demand: func(at time.Duration) float64 { return s.demand(z, at-o.warm) },
		})
	}
	if s.Declared > 0 {
		sc.Declared = append(sc.Declared, sim.Capacity{Locality: zones[0], Factor: sim.Constant(s.Declared)})
	}
	if s.Slow > 0 {
		sc.Capacities = append(sc.Capacities, sim.Capacity{Locality: zones[0], Factor: sim.Step(o.warm, 1/s.Slow)})
	}
	if s.Lost {
		sc.Outages = append(sc.Outages, sim.Outage{Locality: zones[0], From: o.warm, To: o.warm + o.length, Unnoticed: true})
	}
	sc.Topology = &isobar.Topology{Revision: 1, Network: network, Services: []isobar.Service{shop}}
	sc.Topology.Normalize()
	return sc, nil
}
