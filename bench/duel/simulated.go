package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// Limits within which the simulator is true: of the mean latency, and of the part of
// the requests that fails.
const (
	trueMean   = 0.15
	trueFailed = 0.01
)

// noticed is how long clients need to leave backends that refuse connections: an
// interval of outlier detection. The simulator knows no outlier detection, only
// health that all know of after this time.
const noticed = 2 * time.Second

// simulate plays the scenario under the policies in the simulator, request by request.
func simulate(ctx context.Context, o *settings, s *scenario) (map[string]*sim.Result, error) {
	sc, err := simulated(o, s)
	if err != nil {
		return nil, err
	}
	var chosen []sim.Policy
	for _, p := range sim.Policies() {
		if slices.ContainsFunc(policies, func(d policy) bool { return d.simulated == p.Name }) {
			chosen = append(chosen, p)
		}
	}
	results, err := sim.Compare(ctx, sc, chosen, nil)
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", s.Name, err)
	}
	out := map[string]*sim.Result{}
	for _, r := range results {
		out[r.Policy] = r
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
	sc := &sim.Scenario{
		Seed: o.seed, Length: o.warm + o.length, Warmup: o.warm, Step: 100 * time.Millisecond, Tick: o.tick, Interval: o.tick, Timeout: timeout,
		ReportDelay: sim.Delay{Base: 5 * time.Millisecond}, PushDelay: sim.Delay{Base: 5 * time.Millisecond, Jitter: 5 * time.Millisecond},
		HealthDelay: noticed, Requests: true,
		Serving: []sim.Serving{{Variation: 1.0 / 12}}, // times are uniform from a half to one and a half
	}
	for z, zone := range zones {
		l := isobar.ServiceLocality{Locality: zone, MaxRate: capacity, Concurrency: stations * concurrency}
		for i := range stations {
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
		sc.Outages = append(sc.Outages, sim.Outage{Locality: zones[0], From: o.warm, To: o.warm + o.length})
	}
	sc.Topology = &isobar.Topology{Revision: 1, Network: network, Services: []isobar.Service{shop}}
	sc.Topology.Normalize()
	return sc, nil
}
