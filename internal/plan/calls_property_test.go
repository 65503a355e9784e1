package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

var callZones = []string{"r0/z0", "r0/z1", "r1/z0", "r2/z0"}

// callWorld is a fleet of services that call each other at random.
type callWorld struct {
	rng  *rand.Rand
	top  *isobar.Topology
	plan *plan.Plan
	now  time.Time
}

func newCallWorld(t *rapid.T) *callWorld {
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("r0"), To: loc("r1"), MS: 80}, {From: loc("r0"), To: loc("r2"), MS: 30}})
	if err != nil {
		t.Fatal(err)
	}
	w := &callWorld{rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3)), now: t0}
	w.top = &isobar.Topology{Network: network, Revision: 1}
	n := rapid.IntRange(2, 5).Draw(t, "services")
	for i := range n {
		s := isobar.Service{Name: fmt.Sprintf("s%d", (i*3)%n), MaxShed: float64(w.rng.IntN(2)) * 0.3}
		if slices.ContainsFunc(w.top.Services, func(o isobar.Service) bool { return o.Name == s.Name }) {
			s.Name = fmt.Sprintf("t%d", i)
		}
		for z, zone := range callZones {
			if w.rng.IntN(3) == 0 && z > 0 {
				continue
			}
			sl := isobar.ServiceLocality{Locality: loc(zone), Endpoints: endpoints(fmt.Sprintf("10.%d.%d.1:80", i, z), fmt.Sprintf("10.%d.%d.2:80", i, z))}
			if w.rng.IntN(4) > 0 {
				sl.MaxRate = 50 + 1000*w.rng.Float64()
			}
			s.Localities = append(s.Localities, sl)
		}
		for j := range w.top.Services {
			if w.rng.IntN(2) == 0 {
				w.top.Services[j].Calls = append(w.top.Services[j].Calls, isobar.Call{Service: s.Name, PerRequest: 0.1 + 2*w.rng.Float64()})
			}
		}
		w.top.Services = append(w.top.Services, s)
	}
	w.top.Normalize()
	return w
}

func (w *callWorld) input(trigger assign.Trigger, rates map[string]float64, table health.Table) plan.Input {
	w.now = w.now.Add(5 * time.Second)
	in := plan.Input{Now: w.now, Trigger: trigger, Topology: w.top, Health: table, Previous: w.plan, Version: 1}
	if w.plan != nil {
		in.Version = w.plan.Version + 1
	}
	if trigger == assign.Rebase {
		return in
	}
	in.Load = &load.Snapshot{At: w.now}
	for i := range w.top.Services {
		s := load.ServiceLoad{Name: w.top.Services[i].Name, Coverage: 1, Covered: true}
		for _, z := range callZones {
			if r := rates[s.Name+z]; r > 0 {
				s.Sources = append(s.Sources, load.SourceLoad{Source: loc(z), Demand: r, Raw: r, Nodes: 3, Clients: []load.ClientLoad{
					{Name: w.top.Services[w.rng.IntN(len(w.top.Services))].Name, Rate: r / 2}, {Name: "others", Rate: r / 2},
				}})
			}
		}
		in.Load.Services = append(in.Load.Services, s)
	}
	return in
}

// TestCallPlansRecover drives fleets of services that call each other through
// changes of demand and health: the same input gives the same plan, everything
// can be explained, and calm follows when nothing changes any more.
func TestCallPlansRecover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newCallWorld(t)
		rates := map[string]float64{}
		table := health.Table{}
		step := func(trigger assign.Trigger) *plan.Plan {
			in := w.input(trigger, rates, table)
			p, err := plan.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			again, err := plan.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := asJSON(t, p.Services), asJSON(t, again.Services); a != b {
				t.Fatalf("the same input gave two plans:\n%s\n%s", a, b)
			}
			if p.LowerBound > p.Objective*(1+1e-9) || p.PlanGap < 0 || p.PlanGap > 1 || p.Gap > 0.01 {
				t.Fatalf("objective %v, bound %v, gap %v, plan gap %v", p.Objective, p.LowerBound, p.Gap, p.PlanGap)
			}
			for _, s := range p.Services {
				for _, z := range callZones {
					if _, err := p.Explain(s.Spec.Name, loc(z)); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.plan = p
			return p
		}
		for range 6 {
			for _, s := range w.top.Services {
				for _, z := range callZones {
					rates[s.Name+z] = max(0, 600*w.rng.Float64()-200)
				}
			}
			step(assign.Tick)
			var states []health.Override
			for _, s := range w.top.Services {
				for _, sl := range s.Localities {
					if w.rng.IntN(4) == 0 {
						states = append(states, health.Override{Key: health.Key{Service: s.Name, Address: sl.Endpoints[0].Address}, Status: isobar.Unhealthy})
					}
				}
			}
			table = health.NewTable(states)
			step(assign.Rebase)
		}
		for calm := range 6 {
			if p := step(assign.Tick); len(p.Violations) > 0 && calm >= 3 {
				t.Fatalf("after %d calm ticks: %+v", calm, p.Violations)
			}
		}
	})
}
