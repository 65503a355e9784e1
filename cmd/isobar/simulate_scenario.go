package main

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/sim"
)

// simScenario turns what a file says into what is run.
func simScenario(f *config.Scenario) *sim.Scenario {
	s := &sim.Scenario{
		Seed:     f.Seed,
		Topology: &isobar.Topology{Revision: 1, Services: f.Services, Network: f.Network},
		Length:   f.Length, Warmup: f.Warmup, Tick: f.Tick, Interval: f.ReportInterval,
		ReportDelay: sim.Delay(f.ReportDelay), PushDelay: sim.Delay(f.PushDelay),
		HealthDelay: f.HealthDelay, Timeout: f.Timeout,
		Undeclared: f.Undeclared, UtilizationNoise: f.UtilizationNoise, Price: sim.Price{CrossZone: f.CrossZone, CrossRegion: f.CrossRegion},
		Marks: marks(f), Degradation: f.Degradation.Plan(),
	}
	for i := range f.Demand {
		d := &f.Demand[i]
		src := sim.Source{
			Service: d.Service, From: d.From, Client: d.Client, Demand: shape(d.Rate, d.Shape), Noise: d.Noise,
			Clients: d.Clients, Silent: d.Silent, Liars: d.Liars, Lie: d.Lie, LieFrom: d.LieFrom,
		}
		if d.GRPC {
			src.Kind = dataplane.GRPC
		}
		s.Sources = append(s.Sources, src)
	}
	for _, c := range f.Capacity {
		s.Capacities = append(s.Capacities, sim.Capacity{Service: c.Service, Locality: c.Locality, Factor: shape(c.Factor, c.Shape)})
	}
	for _, m := range f.Metrics {
		s.Metrics = append(s.Metrics, sim.Metric(m))
	}
	for _, o := range f.Outages {
		s.Outages = append(s.Outages, sim.Outage(o))
	}
	for _, x := range f.Losses {
		s.Losses = append(s.Losses, sim.Loss{Input: plan.InputKind(x.What), Scope: x.Locality, From: x.From, To: x.To})
	}
	return s
}

// shape multiplies a quantity by factors that change.
func shape(v float64, factors []config.ScenarioShape) sim.Shape {
	all := []sim.Shape{sim.Constant(v)}
	for _, f := range factors {
		switch f.Kind {
		case "step":
			all = append(all, sim.Step(f.At, f.Factor))
		case "flash":
			all = append(all, sim.Flash(f.At, f.For, f.Factor))
		case "square":
			all = append(all, sim.Square(f.Period, f.At, f.Low, f.High))
		case "wave":
			all = append(all, sim.Wave(f.Period, f.At, f.Amplitude))
		case "ramp":
			all = append(all, sim.Ramp(f.From, f.To, f.Factor))
		}
	}
	return sim.Times(all...)
}

// marks are the moments at which something changes at once and for good.
func marks(f *config.Scenario) []time.Duration {
	var out []time.Duration
	add := func(at time.Duration) {
		if at > 0 && at < f.Length {
			out = append(out, at)
		}
	}
	shapes := func(list []config.ScenarioShape) {
		for _, s := range list {
			switch s.Kind {
			case "step":
				add(s.At)
			case "flash":
				add(s.At)
				add(s.At + s.For)
			}
		}
	}
	for i := range f.Demand {
		shapes(f.Demand[i].Shape)
	}
	for i := range f.Capacity {
		shapes(f.Capacity[i].Shape)
	}
	for _, o := range f.Outages {
		if o.Period == 0 {
			add(o.From)
			add(o.To)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
