package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// crowd is ten clients in us/a that send 20 requests/s each, of which some fall
// silent or lose their load report streams.
type crowd struct {
	*fit

	opened time.Time
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	f := newFit(t, 900)
	return &crowd{fit: f, opened: f.now}
}

func (c *crowd) tick(silent int, closed bool) plan.Explanation {
	c.t.Helper()
	c.now = c.now.Add(interval)
	at := []load.LocalityReport{}
	for _, z := range []string{"us/a", "us/b"} {
		share := 0.5
		if a := c.plan.Assignment("checkout", loc("us/a")); a != nil {
			share = a.Share(loc(z))
		}
		n := uint64(100 * share)
		at = append(at, load.LocalityReport{Locality: new(loc(z)), Issued: n, HasIssued: true, Succeeded: n})
	}
	var windows []load.StreamWindow
	for i := range 10 {
		w := load.StreamWindow{Stream: load.StreamID(i + 1), Opened: c.opened, Node: load.Node{ID: "n", Locality: loc("us/a"), Agent: load.AgentEnvoy}}
		switch {
		case i >= silent:
			w.Reports = []load.Report{{Arrived: c.now, Services: []load.ServiceReport{{
				Service: "checkout", Interval: interval, Localities: at,
			}}}}
		case closed:
			w.Closed = c.now
		}
		windows = append(windows, w)
	}
	c.turn(c.decider.Tick, windows...)
	e, err := c.plan.Explain("checkout", loc("us/a"))
	if err != nil {
		c.t.Fatal(err)
	}
	return e
}

// As reports go missing the service goes down degradation, one level at a time,
// and up again when they come back. Clients that stop reporting, or lose their
// load report streams, are not load that is gone as long as they are there.
func TestDegradationOfReports(t *testing.T) {
	const decay = 120 // ticks
	for _, tc := range []struct {
		name   string
		silent int // of ten clients
		closed bool
		after  map[int]plan.DegradationLevel // ticks without reports
	}{
		{"one in ten", 1, false, map[int]plan.DegradationLevel{1: plan.LevelFresh, 2: plan.LevelFresh, 6: plan.LevelFresh}},
		{"three in ten", 3, false, map[int]plan.DegradationLevel{1: plan.LevelFresh, 2: plan.LevelCautious, 3: plan.LevelCautious}},
		{"six in ten", 6, false, map[int]plan.DegradationLevel{1: plan.LevelFresh, 2: plan.LevelCautious, 4: plan.LevelHeld, decay: plan.LevelHeld, decay + 2: plan.LevelDecaying}},
		{"all", 10, false, map[int]plan.DegradationLevel{1: plan.LevelFresh, 3: plan.LevelCautious, 4: plan.LevelHeld, decay: plan.LevelHeld, decay + 2: plan.LevelDecaying}},
		{"all streams lost", 10, true, map[int]plan.DegradationLevel{4: plan.LevelHeld, decay - 1: plan.LevelHeld, decay + 1: plan.LevelDecaying}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCrowd(t)
			var e plan.Explanation
			for range 6 {
				e = c.tick(0, false)
			}
			if e.DegradationLevel != plan.LevelFresh || e.Hold != "" || len(e.Inputs) != 3 || e.Inputs[0].Share != 0 {
				t.Fatalf("before: %s, hold %q, %+v", e.DegradationLevel, e.Hold, e.Inputs)
			}
			last := 0
			for n := range tc.after {
				last = max(last, n)
			}
			for n := 1; n <= last; n++ {
				e = c.tick(tc.silent, tc.closed)
				if want, ok := tc.after[n]; ok && e.DegradationLevel != want {
					t.Errorf("after %d ticks: %s, %+v; want %s", n, e.DegradationLevel, e.Inputs, want)
				}
				if e.DegradationLevel == plan.LevelHeld && e.Hold == "" || e.DegradationLevel == plan.LevelDecaying && e.Hold != "" {
					t.Errorf("after %d ticks: %s, hold %q", n, e.DegradationLevel, e.Hold)
				}
				if tc.silent > 5 && e.Demand.Rate < 195 {
					t.Fatalf("after %d ticks: demand %.0f, was 200", n, e.Demand.Rate)
				}
			}
			from := e.DegradationLevel
			if tc.closed {
				return // they would come back as new streams
			}
			levels := plan.DegradationLevels()
			for i := slices.Index(levels, from) - 1; i >= 0; i-- {
				if e = c.tick(0, false); e.DegradationLevel != levels[i] {
					t.Errorf("coming back from %s: %s, want %s", from, e.DegradationLevel, levels[i])
				}
			}
			if tc.silent > 5 && e.Demand.Rate < 195 || e.Demand.Rate > 205 {
				t.Errorf("in the end: demand %.0f, was 200", e.Demand.Rate)
			}
		})
	}
}

// When nobody knows where load is for long, shares go towards a split by
// capacity, a point a tick, and the texts say why.
func TestDecayTowardsCapacity(t *testing.T) {
	c := newCrowd(t)
	for range 20 {
		c.tick(0, false)
	}
	near := c.plan.Assignment("checkout", loc("us/a")).Share(loc("us/a"))
	if near < 0.8 {
		t.Fatalf("%.2f goes to the nearest locality before", near)
	}
	share := near
	var e plan.Explanation
	for range 250 {
		before := c.plan
		e = c.tick(10, false)
		next := c.plan.Assignment("checkout", loc("us/a")).Share(loc("us/a"))
		if step := share - next; step > 0.0102 || step < -0.0001 {
			t.Fatalf("%s: a step of %.2f points", e.DegradationLevel, 100*step)
		}
		if next < share {
			change, ok := plan.Changed(before, c.plan, plan.Origin{})
			if !ok || !strings.Contains(change.Services[0].Reason, "split by capacity") {
				t.Fatalf("history says %+v", change.Services)
			}
			if e.Binding.Kind != plan.BindingInput {
				t.Fatalf("explained as %+v", e.Binding)
			}
		}
		share = next
	}
	if share < 0.49 || share > 0.52 {
		t.Errorf("%.2f goes to the nearest of two equal localities in the end", share)
	}
	for _, x := range plan.CountInputs(c.plan.Services) {
		want := 0
		switch {
		case x.Input == plan.InputReports && x.Level == plan.LevelDecaying,
			x.Input == plan.InputHealth && x.Level == plan.LevelAbsent,
			x.Input == plan.InputTopology && x.Level == plan.LevelFresh:
			want = 1
		}
		if x.Services != want {
			t.Errorf("%d services with %s %s, want %d", x.Services, x.Input, x.Level, want)
		}
	}
	pause := plan.Pause{Service: "checkout", Since: c.now}
	p, err := plan.Next(plan.Input{
		Now: c.now.Add(interval), Topology: c.top, Version: c.plan.Version + 1, Previous: c.plan, Paused: plan.Pauses{pause},
		Load: demandOf(200, 1, time.Hour), Degradation: plan.Degradation{}.Complete(interval),
	})
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := p.Service("checkout"); s.Hold != pause.String() {
		t.Errorf("paused, but held because %q", s.Hold)
	}
}

// On old input shares move at half the pace, and on older not at all: so for
// each input, as far as its steps say.
func TestMissingInputsSlowDown(t *testing.T) {
	degradation := plan.Degradation{Health: plan.Steps{Hold: time.Hour}}.Complete(interval)
	moved := func(in plan.Input) (points float64, binding string) {
		f := newFit(t, 900)
		p, err := plan.Next(plan.Input{Now: t0, Topology: f.top, Version: 1, Load: demandOf(300, 0, 0), Degradation: degradation})
		if err != nil {
			t.Fatal(err)
		}
		before := p.Assignment("checkout", loc("us/a")).Share(loc("us/a"))
		in.Now, in.Topology, in.Version, in.Previous, in.Degradation = t0.Add(interval), f.top, 2, p, degradation
		if p, err = plan.Next(in); err != nil {
			t.Fatal(err)
		}
		e, err := p.Explain("checkout", loc("us/a"))
		if err != nil {
			t.Fatal(err)
		}
		return before - p.Assignment("checkout", loc("us/a")).Share(loc("us/a")), e.Binding.Text
	}
	fresh, _ := moved(plan.Input{Load: demandOf(700, 0, 0)})
	if fresh < 0.02 {
		t.Fatalf("%.1f points moved on fresh input", 100*fresh)
	}
	aged := func(kind plan.InputKind, age time.Duration) []plan.InputAge {
		return []plan.InputAge{{Service: "checkout", Kind: kind, Age: load.Age{Some: age, Most: age}}}
	}
	for _, tc := range []struct {
		name  string
		in    plan.Input
		level plan.DegradationLevel
		says  string
	}{
		{"a third of the reports", plan.Input{Load: demandOf(700, 0.3, time.Minute)}, plan.LevelCautious, "reports are missing"},
		{"most reports", plan.Input{Load: demandOf(700, 0.6, time.Minute)}, plan.LevelHeld, "reports are missing"},
		{"health", plan.Input{Load: demandOf(700, 0, 0), Ages: aged(plan.InputHealth, time.Minute)}, plan.LevelCautious, "health is old"},
		{"health, for long", plan.Input{Load: demandOf(700, 0, 0), Ages: aged(plan.InputHealth, 2*time.Hour)}, plan.LevelHeld, "health is old"},
		{"topology", plan.Input{Load: demandOf(700, 0, 0), Ages: aged(plan.InputTopology, 200*time.Hour)}, plan.LevelCautious, "the previous endpoints are in use: the other control plane has not listed them for 200h0m0s"},
		{"a little health", plan.Input{Load: demandOf(700, 0, 0), Ages: aged(plan.InputHealth, time.Second)}, plan.LevelFresh, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			points, text := moved(tc.in)
			switch tc.level {
			case plan.LevelCautious:
				if points <= 0 || points > 0.6*fresh {
					t.Errorf("%.1f points moved, %.1f on fresh input", 100*points, 100*fresh)
				}
			case plan.LevelHeld:
				if points != 0 {
					t.Errorf("%.1f points moved", 100*points)
				}
			default:
				if points != fresh {
					t.Errorf("%.1f points moved, %.1f on fresh input", 100*points, 100*fresh)
				}
			}
			if !strings.Contains(text, tc.says) {
				t.Errorf("explained as %q", text)
			}
		})
	}
}

// Degradation levels only ever go down with age, whatever the steps are, and never is never.
func TestDegradationIsMonotone(t *testing.T) {
	age := func(t *rapid.T, name string) time.Duration {
		return time.Duration(rapid.IntRange(0, 40).Draw(t, name)) * time.Second
	}
	depth := func(r plan.DegradationLevel) int { return slices.Index(plan.DegradationLevels(), r) }
	rapid.Check(t, func(t *rapid.T) {
		s := plan.Steps{Cautious: age(t, "cautious"), Hold: age(t, "hold"), Decay: age(t, "decay")}
		a := load.Age{Most: age(t, "most")}
		a.Some = a.Most + age(t, "some")
		b := load.Age{Some: a.Some + age(t, "later"), Most: a.Most + age(t, "later")}
		if depth(s.Level(b)) < depth(s.Level(a)) {
			t.Errorf("%+v: %s at %v, %s at %v", s, s.Level(a), a, s.Level(b), b)
		}
		want := 0
		for i, step := range []struct{ after, age time.Duration }{{s.Cautious, a.Some}, {s.Hold, a.Most}, {s.Decay, a.Most}} {
			if step.after > 0 && step.age >= step.after {
				want = i + 1
			}
		}
		if got := depth(s.Level(a)); got != want {
			t.Errorf("%+v at %v: level %d, want %d", s, a, got, want)
		}
	})
	l := plan.Degradation{Reports: plan.Steps{Hold: plan.Forever}}.Complete(interval)
	if got := fmt.Sprint(l.Reports, l.Health); got != "{5s 0s 10m0s} {30s 0s 0s}" {
		t.Errorf("completed as %s", got)
	}
}

func demandOf(rate, stale float64, age time.Duration) *load.Snapshot {
	s := load.ServiceLoad{
		Name: "checkout", Coverage: 1, Covered: true, Stale: stale,
		Sources: []load.SourceLoad{{Source: isobar.MustLocality("us/a"), Demand: rate, Raw: rate, Nodes: 3}},
	}
	if s.Age.Some = age; stale > 0.5 {
		s.Age.Most = age
	}
	return &load.Snapshot{Services: []load.ServiceLoad{s}}
}
