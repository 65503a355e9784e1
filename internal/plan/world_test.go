package plan_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// world is a fleet to which things happen between plans.
type world struct {
	topology   *isobar.Topology
	network    *isobar.Network
	service    isobar.Service
	table      health.Table
	rates      map[string]float64 // per source, requests/s
	watches    map[string]bool
	clients    map[string][]load.ClientLoad
	deviations load.Deviations
	covered    bool
	ages       []plan.InputAge
	age        load.Age // of reports
	now        time.Time
	plan       *plan.Plan
}

// worldSources are who may send: clients without a locality, those at home in a
// locality of the service or beside it, and those of a region without any.
var worldSources = []string{"", "r0/z0", "r0/z1", "r1/z0", "r1/z2", "r2/z1", "r9/z0"}

func drawWorld(t *rapid.T) *world {
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("r0"), To: loc("r1"), MS: 80}, {From: loc("r0"), To: loc("r2"), MS: 30}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{network: network, now: t0, covered: true, rates: map[string]float64{}, watches: map[string]bool{}, clients: map[string][]load.ClientLoad{}}
	w.deviations.Service = "checkout"
	w.drawTopology(t)
	w.drawRates(t)
	return w
}

func (w *world) drawTopology(t *rapid.T) {
	s := isobar.Service{
		Name:      "checkout",
		Mode:      rapid.SampledFrom([]isobar.Mode{isobar.ModeFull, isobar.ModeFull, isobar.ModeFull, isobar.ModeBounded, isobar.ModeObserve}).Draw(t, "mode"),
		Policy:    isobar.Policy(max(0, rapid.IntRange(-4, int(isobar.PolicyFixed)).Draw(t, "policy"))),
		Isolation: isobar.Isolation(max(0, rapid.IntRange(-3, int(isobar.IsolationStrict)).Draw(t, "isolation"))),
		MaxShed:   rapid.SampledFrom([]float64{0, 0, 0.25}).Draw(t, "max_shed"),
	}
	if s.MaxShed > 0 && rapid.Bool().Draw(t, "classes") {
		s.Criticality = &isobar.Criticality{
			Clients: []isobar.ClientClass{{Client: "batch-*", Class: isobar.ClassSheddable}, {Client: "pay", Class: isobar.ClassCriticalPlus}},
			MaxShed: isobar.ClassFractions{0, 0.1, 0.1, rapid.SampledFrom([]float64{0.1, 0.6, 1}).Draw(t, "max_shed of batch")},
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "resident") == 0 {
		s.Residency = []isobar.Residency{{From: glob("r0"), Allow: []isobar.LocalityGlob{glob("r0/z0"), glob("r1")}}, {From: glob("*/z1"), Allow: []isobar.LocalityGlob{glob("r1")}}}
	}
	prefers := rapid.IntRange(0, 3).Draw(t, "prefers") == 0
	declared := rapid.SampledFrom([]string{"all", "none", "some"}).Draw(t, "declared")
	for i := range 9 {
		if rapid.IntRange(0, 2).Draw(t, "there") > 0 {
			continue
		}
		sl := isobar.ServiceLocality{Locality: loc(fmt.Sprintf("r%d/z%d", i/3, i%3))}
		rates := declared == "all" || (declared == "some" && rapid.Bool().Draw(t, "rated"))
		if rates && rapid.IntRange(0, 3).Draw(t, "rate") > 0 {
			sl.MaxRate = rapid.SampledFrom([]float64{60, 250, 1100}).Draw(t, "max_rate")
		}
		for e := range rapid.IntRange(0, 4).Draw(t, "endpoints") {
			ep := isobar.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i, e)}
			if rapid.IntRange(0, 5).Draw(t, "weighted") == 0 {
				ep.Weight = uint32(rapid.IntRange(1, 5).Draw(t, "weight"))
			}
			if rates && rapid.IntRange(0, 2).Draw(t, "own") == 0 { // also more than the locality's
				ep.MaxRate = rapid.Float64Range(50, 450).Draw(t, "own max_rate")
			}
			sl.Endpoints = append(sl.Endpoints, ep)
		}
		if s.Policy == isobar.PolicyFixed {
			sl.Weight = rapid.SampledFrom([]float64{0, 1, 1, 5, 300}).Draw(t, "share")
		}
		sl.Preferred = prefers && rapid.Bool().Draw(t, "preferred")
		sl.UnmanagedLoad = rapid.SampledFrom([]float64{0, 0, 0, 60}).Draw(t, "unmanaged load")
		sl.CapacityScaler = rapid.SampledFrom([]float64{0, 0, 0, 0.5, 1.4}).Draw(t, "scaler")
		s.Localities = append(s.Localities, sl)
	}
	w.service = s
	w.topology = &isobar.Topology{Network: w.network, Revision: uint64(w.now.Unix()), Services: []isobar.Service{s}}
	w.topology.Normalize()
}

func (w *world) drawRates(t *rapid.T) {
	clear(w.rates)
	for _, n := range worldSources {
		switch rapid.IntRange(0, 3).Draw(t, "source "+n) {
		case 0:
		case 1:
			w.rates[n] = 0
		default:
			w.rates[n] = rapid.Float64Range(0, 600).Draw(t, "rate of "+n)
		}
		w.clients[n] = nil
		for _, name := range []string{"batch-1", "pay", "web"} {
			if part := rapid.Float64Range(0, 0.3).Draw(t, name); part > 0.1 {
				w.clients[n] = append(w.clients[n], load.ClientLoad{Name: name, Rate: part * w.rates[n]})
			}
		}
		w.watches[n] = rapid.IntRange(0, 8).Draw(t, "watches") > 0
	}
}

func (w *world) drawHealth(t *rapid.T) {
	var states []health.Override
	for _, sl := range w.service.Localities {
		for _, e := range sl.Endpoints {
			if rapid.IntRange(0, 2).Draw(t, "changed") == 0 {
				status := rapid.SampledFrom([]isobar.HealthStatus{isobar.Healthy, isobar.Unhealthy, isobar.Unhealthy, isobar.Draining, isobar.Degraded}).Draw(t, "health")
				states = append(states, health.Override{Key: health.Key{Service: "checkout", Address: e.Address}, Status: status})
			}
		}
	}
	w.table = health.NewTable(states)
}

func (w *world) drawDeviations(t *rapid.T) {
	f := load.Deviations{Service: "checkout"}
	sometimes := func() bool { return rapid.IntRange(0, 7).Draw(t, "found") == 0 }
	for _, n := range worldSources {
		for _, sl := range w.service.Localities {
			if sometimes() {
				f.Barred = append(f.Barred, load.Barred{Source: sourceOf(n), Locality: sl.Locality})
			}
			if sometimes() {
				f.Unmanaged = append(f.Unmanaged, load.Landing{Source: sourceOf(n), Locality: sl.Locality, Rate: rapid.Float64Range(0, 100).Draw(t, "beyond plan")})
			}
		}
	}
	for _, sl := range w.service.Localities {
		if sometimes() {
			f.Unreachable = append(f.Unreachable, sl.Locality)
			f.Outages = append(f.Outages, load.Outage{Locality: sl.Locality, Attempts: 92})
		} else if sometimes() {
			open := rapid.SampledFrom([]float64{0.25, 0.5, 1}).Draw(t, "open")
			f.Outages = append(f.Outages, load.Outage{Locality: sl.Locality, Attempts: 92, Succeeded: 90, Open: open})
			for _, n := range worldSources {
				f.Opening = append(f.Opening, load.Opening{Source: sourceOf(n), Locality: sl.Locality, Open: open})
			}
		}
		if sometimes() {
			f.Rising = append(f.Rising, sl.Locality)
		}
		if sometimes() {
			f.Unreported = append(f.Unreported, load.Landing{Locality: sl.Locality, Rate: rapid.Float64Range(0, 100).Draw(t, "unreported")})
		}
	}
	w.deviations = f
}

func glob(s string) isobar.LocalityGlob {
	g, err := isobar.ParseLocalityGlob(s)
	if err != nil {
		panic(err)
	}
	return g
}

func sourceOf(name string) isobar.Locality {
	if name == "" {
		return isobar.Locality{}
	}
	return loc(name)
}

// drawAges lets inputs grow old, or come back.
func (w *world) drawAges(t *rapid.T) {
	age := func(name string) time.Duration {
		return rapid.SampledFrom([]time.Duration{0, 0, 0, 10 * time.Second, time.Minute, time.Hour}).Draw(t, name)
	}
	if rapid.IntRange(0, 5).Draw(t, "aging") > 0 {
		return
	}
	w.age.Most = age("age of most reports")
	w.age.Some = max(w.age.Most, age("age of reports"))
	w.ages = w.ages[:0:0]
	for _, kind := range []plan.InputKind{plan.InputHealth, plan.InputTopology} {
		a := age("age of " + string(kind))
		w.ages = append(w.ages, plan.InputAge{Service: "checkout", Kind: kind, Age: load.Age{Some: a, Most: a}})
	}
}

// happen lets something happen and tells what kind of plan follows.
func (w *world) happen(t *rapid.T) assign.Trigger {
	trigger := assign.Tick
	w.covered = true
	w.drawAges(t)
	switch rapid.IntRange(0, 9).Draw(t, "event") {
	case 0:
		w.drawTopology(t)
		trigger = assign.Reapply
	case 1, 2:
		w.drawHealth(t)
		trigger = assign.Reapply
	case 3:
		w.drawHealth(t)
	case 4, 5:
		w.drawRates(t)
	case 6:
		w.drawDeviations(t)
	case 7:
		w.covered = false
	default: // nothing
	}
	return trigger
}

// input is what the next plan is made from.
func (w *world) input(trigger assign.Trigger) plan.Input {
	w.now = w.now.Add(5 * time.Second)
	in := plan.Input{Now: w.now, Trigger: trigger, Topology: w.topology, Health: w.table, Previous: w.plan, Version: 1}
	if w.plan != nil {
		in.Version = w.plan.Version + 1
	}
	for _, n := range worldSources {
		if w.watches[n] {
			in.Subscribed = append(in.Subscribed, load.Subscription{Service: "checkout", Source: sourceOf(n)})
		}
	}
	if trigger == assign.Reapply {
		return in
	}
	s := load.ServiceLoad{Name: "checkout", Coverage: 1, Covered: w.covered, Age: w.age}
	for _, n := range worldSources {
		if r, ok := w.rates[n]; ok {
			s.Sources = append(s.Sources, load.SourceLoad{Source: sourceOf(n), Demand: r, Raw: r, Nodes: 3, Clients: w.clients[n]})
		}
	}
	slices.SortFunc(s.Sources, func(a, b load.SourceLoad) int { return a.Source.Compare(b.Source) })
	in.Load = &load.Snapshot{At: w.now, Services: []load.ServiceLoad{s}}
	in.Deviations = []load.Deviations{w.deviations}
	in.Ages, in.Degradation = w.ages, plan.Degradation{Health: plan.Steps{Hold: time.Minute, Decay: time.Hour}}.Complete(5*time.Second)
	return in
}
