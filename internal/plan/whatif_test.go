package plan_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestWhatIfProperties: whatever is supposed of whatever fleet, it is played to
// numbers that are numbers, in bounded time, the same each time, and leaves what
// it began with as it was.
func TestWhatIfProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range rapid.IntRange(1, 4).Draw(t, "plans") {
			p, err := plan.Next(w.input(w.happen(t)))
			if err != nil {
				t.Fatal(err)
			}
			w.plan = p
		}
		scope := rapid.SampledFrom([]string{"r0", "r1", "r0/z0", "r2/z1", "r9"})
		what := &plan.WhatIf{}
		if rapid.Bool().Draw(t, "lose") {
			what.Lose = append(what.Lose, loc(scope.Draw(t, "lost")))
		}
		if rapid.Bool().Draw(t, "drain") {
			what.Drain = append(what.Drain, plan.Drain{Service: "checkout", Locality: loc(scope.Draw(t, "drained"))})
		}
		if rapid.Bool().Draw(t, "grow") {
			what.Demand = append(what.Demand, plan.Growth{Factor: rapid.SampledFrom([]float64{0, 0.5, 1, 3, plan.MaxGrowth}).Draw(t, "factor")})
		}
		turn := func() *plan.Turn {
			return &plan.Turn{Now: w.now, Interval: interval, Topology: w.topology, Health: w.table, Previous: w.plan, Version: w.plan.Version + 1}
		}
		before := fmt.Sprintf("%+v", w.plan.Services[0].Result)
		play := func() (plan.Difference, error) {
			p, err := plan.NewWhatIf(turn(), interval, what)
			for more := true; more && err == nil; {
				more, err = p.Step()
			}
			if err != nil {
				return plan.Difference{}, err
			}
			return p.Difference(), nil
		}
		a, err := play()
		if err != nil {
			if !errors.Is(err, isobar.ErrNotFound) {
				t.Fatal(err)
			}
			return
		}
		b, err := play()
		if err != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("played twice:\n%+v\n%+v %v", a, b, err)
		}
		for _, v := range []float64{a.Latency.Before, a.Latency.Settled, a.Shed.Before, a.Shed.Settled} {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				t.Fatalf("%+v", a)
			}
		}
		if a.Moved < 0 || a.Moved > 1+1e-9 {
			t.Fatalf("%v of the requests move", a.Moved)
		}
		if fmt.Sprintf("%+v", w.plan.Services[0].Result) != before {
			t.Fatal("the plan it began with has changed")
		}
	})
}

// chain is web, which calls api, and a third service beside them; each has 100
// requests/s of capacity in zones a, b and c.
func chain(t *testing.T, demand float64) *plan.Turn {
	t.Helper()
	var services []isobar.Service
	for n, name := range []string{"api", "lone", "web"} {
		s := isobar.Service{Name: name}
		for i, z := range []string{"us/a", "us/b", "us/c"} {
			s.Localities = append(s.Localities, isobar.ServiceLocality{
				Locality: loc(z), MaxRate: 100, Concurrency: 10, Endpoints: []isobar.Endpoint{{Address: fmt.Sprintf("10.0.%d.%d:80", n, i)}},
			})
		}
		services = append(services, s)
	}
	services[2].Calls = []isobar.Call{{Service: "api", PerRequest: 1}}
	network, err := isobar.NewNetwork(nil)
	if err != nil {
		t.Fatal(err)
	}
	topology := &isobar.Topology{Services: services, Network: network, Revision: 1}
	snapshot := &load.Snapshot{At: t0}
	for _, name := range []string{"lone", "web"} {
		s := load.ServiceLoad{Name: name, Coverage: 1, Covered: true}
		for _, z := range []string{"us/a", "us/b", "us/c"} {
			s.Sources = append(s.Sources, load.SourceLoad{Source: loc(z), Demand: demand, Nodes: 1})
		}
		snapshot.Services = append(snapshot.Services, s)
	}
	p, err := plan.Next(plan.Input{Now: t0, Trigger: assign.Tick, Topology: topology, Health: health.NewTable(nil), Load: snapshot, Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &plan.Turn{Now: t0, Interval: interval, Topology: topology, Health: health.NewTable(nil), Previous: p, Version: 2}
}

// TestWhatIfFollowsCalls: what a caller loses or gains, its callee does too; the
// service beside them is left out.
func TestWhatIfFollowsCalls(t *testing.T) {
	p, err := plan.NewWhatIf(chain(t, 40), interval, &plan.WhatIf{Demand: []plan.Growth{{Service: "web", Factor: 1.5}}})
	for more := true; more && err == nil; {
		more, err = p.Step()
	}
	if err != nil {
		t.Fatal(err)
	}
	d := p.Difference()
	if len(d.Services) != 2 || d.Same != 1 {
		t.Fatalf("%+v", d)
	}
	for _, s := range d.Services {
		for _, l := range s.Localities {
			if math.Abs(l.Utilization.Before-0.4) > 0.01 || math.Abs(l.Utilization.Settled-0.6) > 0.01 {
				t.Errorf("%s in %s: %+v", s.Service, l.Locality, l.Utilization)
			}
		}
	}
}

// TestWhatIfDrainsAllServices: a drain without a service concerns all that have endpoints
// there, and ends in what a drain of each would.
func TestWhatIfDrainsAllServices(t *testing.T) {
	play := func(drains ...plan.Drain) plan.Difference {
		t.Helper()
		p, err := plan.NewWhatIf(chain(t, 40), interval, &plan.WhatIf{Drain: drains})
		for more := true; more && err == nil; {
			more, err = p.Step()
		}
		if err != nil {
			t.Fatal(err)
		}
		return p.Difference()
	}
	at := loc("us/b")
	all := play(plan.Drain{Locality: at})
	each := play(plan.Drain{Service: "api", Locality: at}, plan.Drain{Service: "lone", Locality: at}, plan.Drain{Service: "web", Locality: at})
	if len(all.Services) != 3 || !reflect.DeepEqual(all, each) {
		t.Errorf("drained without a service: %+v\nby service: %+v", all, each)
	}
	for _, s := range all.Services {
		for _, l := range s.Localities {
			if l.Locality == at && l.Utilization.Settled > 0.001 {
				t.Errorf("%s in %s: %+v", s.Service, l.Locality, l.Utilization)
			}
		}
	}
	for name, tt := range map[string]struct {
		drain plan.Drain
		want  error
	}{
		"no place":           {plan.Drain{}, isobar.ErrInvalid},
		"an address":         {plan.Drain{Address: "10.0.0.1:80"}, isobar.ErrInvalid},
		"nothing is there":   {plan.Drain{Locality: loc("mars")}, isobar.ErrNotFound},
		"an unknown service": {plan.Drain{Service: "none", Locality: at}, isobar.ErrNotFound},
	} {
		if _, err := plan.NewWhatIf(chain(t, 40), interval, &plan.WhatIf{Drain: []plan.Drain{tt.drain}}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// TestRepeatedWhatIf: a list that names the same thing 1,000 times takes no more memory than one
// that names it once.
func TestRepeatedWhatIf(t *testing.T) {
	turn := chain(t, 40)
	wide := *turn.Topology
	wide.Services = slices.Clone(wide.Services)
	for i := range wide.Services {
		wide.Services[i].Localities = slices.Clone(wide.Services[i].Localities)
		for j := range wide.Services[i].Localities {
			l := &wide.Services[i].Localities[j]
			l.Endpoints = slices.Clone(l.Endpoints)
			for k := range 2_000 {
				l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:80", 100+10*i+j, k>>8, k&255), MaxRate: 1})
			}
		}
	}
	turn.Topology = &wide
	taken := func(w plan.WhatIf) uint64 {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := plan.NewWhatIf(turn, interval, &w); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	at := loc("us/b")
	for name, w := range map[string]func(times int) plan.WhatIf{
		"lose": func(times int) plan.WhatIf { return plan.WhatIf{Lose: slices.Repeat([]isobar.Locality{at}, times)} },
		"drain": func(times int) plan.WhatIf {
			return plan.WhatIf{Drain: slices.Repeat([]plan.Drain{{Locality: at}}, times)}
		},
		"restore": func(times int) plan.WhatIf {
			return plan.WhatIf{Restore: slices.Repeat([]plan.Drain{{Locality: at}}, times)}
		},
		"capacity": func(times int) plan.WhatIf {
			return plan.WhatIf{Capacity: slices.Repeat([]plan.Scaling{{Service: "web", Factor: 1}}, times)}
		},
	} {
		if once, often := taken(w(1)), taken(w(1_000)); often > once+64<<20 {
			t.Errorf("%s: 1,000 times take %d bytes, once takes %d", name, often, once)
		}
	}
}

// TestSurvey: each service is held against its worst zone, callees with their
// callers.
func TestSurvey(t *testing.T) {
	for _, row := range []struct {
		demand float64
		stands bool
	}{{40, true}, {70, false}} {
		s := plan.NewSurvey(chain(t, row.demand), interval)
		steps := 0
		for more := true; more; steps++ {
			var err error
			if more, err = s.Step(); err != nil {
				t.Fatal(err)
			}
		}
		var names []string
		for _, r := range s.Reserves() {
			names = append(names, r.Service)
			if want := 1 - 3*row.demand/160; r.Stands() != row.stands || math.Abs(r.Headroom-want) > 0.02 {
				t.Errorf("at %v requests/s: %+v, want headroom %.2f", row.demand, r, want)
			}
			fill := fmt.Sprintf("%s at %.1f%% of its capacity", r.Fullest, 80*r.Utilization)
			if !row.stands {
				fill += ", above its ceiling of 80.0%"
			}
			if r.Ceiling != 0.8 || r.Fill() != fill {
				t.Errorf("at %v requests/s: ceiling %v, %q, want %q", row.demand, r.Ceiling, r.Fill(), fill)
			}
		}
		// Every zone that serves is told of, not only the worst of each service.
		losses := s.Losses()
		if len(losses) != 3 {
			t.Errorf("at %v requests/s: losses %+v", row.demand, losses)
		}
		for _, z := range losses {
			if want := 3; z.Services != want || z.Alone != 0 || z.Failing != len(z.Worst) || (z.Failing == 0) != row.stands {
				t.Errorf("at %v requests/s: %+v", row.demand, z)
			}
			if f := z.Fullest; (f != nil) != row.stands || f != nil && (f.Lost != z.Zone || f.Utilization <= 0 || f.Utilization > 1) {
				t.Errorf("at %v requests/s the fullest is %+v", row.demand, f)
			}
		}
		if got := strings.Join(names, " "); got != "api lone web" || steps != 7 { // two groups of three zones, and the end
			t.Errorf("%s after %d steps", got, steps)
		}
	}
}

// surveyed plays all losses at so many requests/s from each zone, after a round that found last.
func surveyed(t *testing.T, demand float64, last plan.Failed) *plan.Survey {
	t.Helper()
	s := plan.NewSurvey(chain(t, demand), interval)
	if last != nil {
		s.After(last)
	}
	for more := true; more; {
		var err error
		if more, err = s.Step(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestSurveyAtTheLimit: demand that is a little above what fits does not change the answer of the
// round before, whichever that was; what is far above it fails, and what fits stands.
func TestSurveyAtTheLimit(t *testing.T) {
	const fits, hardly, little, far = 50.0, 53.76, 54.4, 60.0 // 94%, 100.8%, 102% and 113% of the ceilings that are left
	for _, row := range []struct {
		name            string
		before          []float64
		demand          float64
		stands, atLimit bool
	}{
		{"above by what may be rounding, at once", nil, hardly, true, true},
		{"a little above, at once", nil, little, false, false},
		{"a little above, after it stood", []float64{fits}, little, true, true},
		{"a little above, and again", []float64{fits, little}, little, true, true},
		{"a little above, after it failed", []float64{far}, little, false, false},
		{"a little above, after it failed and was a little above", []float64{far, little}, little, false, false},
		{"far above, after it stood", []float64{fits, little}, far, false, false},
		{"it fits, after it failed", []float64{far}, fits, true, false},
	} {
		var last plan.Failed
		for _, demand := range row.before {
			last = surveyed(t, demand, last).Failed()
		}
		s := surveyed(t, row.demand, last)
		for _, r := range s.Reserves() {
			if r.Stands() != row.stands || r.AtLimit != row.atLimit {
				t.Errorf("%s: %+v", row.name, r)
			}
		}
		for _, z := range s.Losses() {
			if (z.Failing == 0) != row.stands || (z.AtLimit > 0) != row.atLimit || len(z.Worst) != z.Failing+z.AtLimit {
				t.Errorf("%s: %+v", row.name, z)
			}
		}
	}
}

// TestSurveyAndWhatIfAgree: a zone whose loss a what-if finds to be too much is at its limit at
// least in a round of the same moment.
func TestSurveyAndWhatIfAgree(t *testing.T) {
	for demand := 52.0; demand < 56; demand += 0.25 {
		s := surveyed(t, demand, plan.Failed{})
		for _, z := range s.Losses() {
			p, err := plan.NewWhatIf(chain(t, demand), interval, &plan.WhatIf{Lose: []isobar.Locality{z.Zone}})
			for more := true; more && err == nil; {
				more, err = p.Step()
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := p.Difference(); len(d.Risks) > 0 && z.Failing+z.AtLimit == 0 {
				t.Errorf("at %v requests/s the loss of %s is a plain yes, and a what-if has %+v", demand, z.Zone, d.Risks)
			}
		}
	}
}

// TestTheWorstIsNamedFirst: whatever the order of names, and by names where figures look equal.
func TestTheWorstIsNamedFirst(t *testing.T) {
	full := func(name string, used float64) plan.LocalityDifference {
		return plan.LocalityDifference{Locality: loc(name), Utilization: plan.Three{Before: 0.5, First: used, Settled: used}, Ceiling: 0.8, Declared: true}
	}
	d := plan.Difference{Services: []plan.ServiceDifference{
		{Service: "cart", Localities: []plan.LocalityDifference{full("us/a", 0.85), full("us/b", 0.7)}},
		{Service: "checkout", Drop: plan.Three{Settled: 0.02}, Localities: []plan.LocalityDifference{full("us/a", 0.90001), full("us/b", 0.9), full("us/c", 1.3)}},
		{Service: "search", Drop: plan.Three{Settled: 0.3}},
		{Service: "web", Dead: true, Localities: []plan.LocalityDifference{full("us/a", 0)}},
	}}
	const above = "% of its capacity, above its ceiling of 80.0%"
	want := []string{
		"web: no endpoint is left: clients try all of them", "search: clients drop 30.0% of the requests", "checkout: clients drop 2.0% of the requests",
		"checkout: us/c at 130.0" + above, "checkout: us/a at 90.0" + above, "checkout: us/b at 90.0" + above, "cart: us/a at 85.0" + above,
	}
	if got := d.Breaches(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := d.Services[1].Breaches(); len(got) != 4 || got[0] != "clients drop 2.0% of the requests" {
		t.Errorf("of one service: %q", got)
	}
	// Of losses: what fails comes before what is at its limit, drops before ceilings.
	order := []plan.Reserve{
		{Drop: 0.2}, {Drop: 0.1, Utilization: 2}, {Utilization: 1.5}, {Utilization: 1.2}, {Utilization: 1.3, AtLimit: true}, {Utilization: 0.9},
	}
	for i := range order[1:] {
		if order[i].Worse(&order[i+1]) <= 0 || order[i+1].Worse(&order[i]) >= 0 {
			t.Errorf("%+v is worse than %+v", order[i], order[i+1])
		}
	}
	if (&plan.Reserve{Utilization: 1.20001}).Worse(&plan.Reserve{Utilization: 1.2}) != 0 {
		t.Error("what looks equal is worse")
	}
}

// previewed is a fleet of services, of which some call others, that has settled,
// and a change of some.
func previewed(t *rapid.T) (before *plan.Plan, changed *isobar.Topology) {
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("r0"), To: loc("r1"), MS: 40}})
	if err != nil {
		t.Fatal(err)
	}
	zones := []isobar.Locality{loc("r0/z0"), loc("r0/z1"), loc("r1/z0")}
	top := &isobar.Topology{Network: network, Revision: 1}
	snap := &load.Snapshot{At: t0}
	for s := range 5 {
		svc := isobar.Service{Name: fmt.Sprintf("s%d", s)}
		for l, z := range zones {
			address := fmt.Sprintf("10.%d.%d.1:80", s, l)
			svc.Localities = append(svc.Localities, isobar.ServiceLocality{Locality: z, MaxRate: 1000, Concurrency: 20, Endpoints: []isobar.Endpoint{{Address: address}}})
		}
		if s < 2 && rapid.Bool().Draw(t, "calls") { // callers have the lower numbers: no circles
			svc.Calls = []isobar.Call{{Service: fmt.Sprintf("s%d", rapid.IntRange(2, 4).Draw(t, "callee")), PerRequest: 0.5}}
		}
		top.Services = append(top.Services, svc)
		sl := load.ServiceLoad{Name: svc.Name, Coverage: 1, Covered: true}
		for _, z := range zones {
			rate := rapid.SampledFrom([]float64{0, 100, 400, 700}).Draw(t, "rate")
			sl.Sources = append(sl.Sources, load.SourceLoad{Source: z, Demand: rate, Raw: rate, Nodes: 3})
		}
		snap.Services = append(snap.Services, sl)
	}
	top.Normalize()
	for tick := range 40 {
		in := plan.Input{Now: t0.Add(time.Duration(tick) * 5 * time.Second), Trigger: assign.Tick, Topology: top, Load: snap, Previous: before, Version: uint64(tick + 1)}
		if before, err = plan.Next(in); err != nil {
			t.Fatal(err)
		}
	}
	changed = &isobar.Topology{Network: network, Revision: 2}
	for s := range top.Services {
		svc := top.Services[s]
		if rapid.IntRange(0, 2).Draw(t, "changes") == 0 {
			svc.Localities = slices.Clone(svc.Localities)
			svc.Localities[rapid.IntRange(0, 2).Draw(t, "where")].MaxRate = rapid.SampledFrom([]float64{200, 600, 3000}).Draw(t, "max_rate")
		}
		changed.Services = append(changed.Services, svc)
	}
	return before, changed
}

// TestPreviewPlaysWhatMatters: leaving out what does not move any more changes
// nothing of what would come. The dumb twin plays everything to the end.
func TestPreviewPlaysWhatMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, changed := previewed(t)
		p, err := plan.NewPreview(&plan.Turn{Now: t0.Add(time.Hour), Previous: before, Version: before.Version + 1, Topology: changed}, 5*time.Second)
		for more := true; more && err == nil; {
			more, err = p.Step()
		}
		if err != nil {
			t.Fatal(err)
		}
		twin, first := before, before
		for tick := range p.Ticks + 1 {
			trigger := assign.Tick
			if tick == 0 {
				trigger = assign.Reapply
			}
			twin, err = plan.Next(plan.Input{
				Now: t0.Add(time.Hour + time.Duration(tick)*5*time.Second), Trigger: trigger, Topology: changed,
				Previous: twin, Version: before.Version + 1 + uint64(tick),
			})
			if err != nil {
				t.Fatal(err)
			}
			if tick < 2 {
				first = twin
			}
		}
		same := func(name string, got, want *plan.Plan) {
			a, _ := got.Service(name)
			b, _ := want.Service(name)
			for i := range b.Result.Sources {
				if !slices.Equal(a.Result.Sources[i].Shares, b.Result.Sources[i].Shares) {
					t.Fatalf("%s from %s: %v, want %v", name, b.Result.Sources[i].Source, a.Result.Sources[i].Shares, b.Result.Sources[i].Shares)
				}
			}
		}
		for i := range changed.Services {
			same(changed.Services[i].Name, p.First, first)
			same(changed.Services[i].Name, p.Settled, twin)
		}
	})
}

// TestPreviewOfNothing ends at once, and says that all stays.
func TestPreviewOfNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, _ := previewed(t)
		p, err := plan.NewPreview(&plan.Turn{Now: t0.Add(time.Hour), Previous: before, Version: before.Version + 1, Topology: before.Topology}, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		more, err := p.Step()
		if d := p.Difference(); more || err != nil || !d.Settled || d.Same != 5 || d.Ticks != 0 || p.Ticks != 0 {
			t.Fatalf("%v %+v, %v", more, d, err)
		}
	})
}
