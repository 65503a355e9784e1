package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestRollbackReturnsToWhatWas: whatever was decided since, the shares of every
// version that is kept come back, also from a history that was written and
// read; versions go on.
func TestRollbackReturnsToWhatWas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	l := &loop{t: t, top: threeZones(t), now: t0, decider: plan.NewDecider(interval, nil, t0)}
	h := plan.NewHistory(nil, &plan.Saved{})
	pages := map[uint64]plan.Page{}
	was := map[uint64][]float64{} // the dumb twin: the shares of every version
	note := func(before *plan.Plan, o plan.Origin) {
		if c, ok := plan.Changed(before, l.plan, o); ok {
			p := h.Add(c)
			pages[p.Number] = p
		}
		s, _ := l.plan.Service("checkout")
		was[l.plan.Version] = slices.Clone(s.Result.Source(loc("us/a")).Shares)
	}
	l.turn(l.decider.Reapply)
	note(nil, plan.Origin{Trigger: plan.TriggerRestart})
	for range 60 {
		before := l.plan
		l.tick(200+float64(random.IntN(5))*500, false)
		note(before, plan.Origin{})
	}
	for _, history := range []*plan.History{h, reread(t, pages, l.plan)} {
		for version, want := range was {
			p, err := l.decider.Rollback(&plan.Turn{
				Now: l.now, Interval: interval, Topology: l.top, Previous: l.plan, Version: l.plan.Version + 1, Force: true,
			}, history, version, "")
			if errors.Is(err, plan.ErrUnchanged) && slices.Equal(want, was[l.plan.Version]) {
				continue
			}
			if err != nil {
				t.Fatalf("version %d: %v", version, err)
			}
			s, _ := p.Service("checkout")
			if got := s.Result.Source(loc("us/a")).Shares; !slices.Equal(got, want) {
				t.Errorf("version %d: %v, want %v", version, got, want)
			}
			if p.Version != l.plan.Version+1 || len(p.Violations) > 0 {
				t.Errorf("version %d after %d, violations %v", p.Version, l.plan.Version, p.Violations)
			}
			if a := s.Result.Source(loc("us/a")).Assignment; a.Share(loc("us/a")) != shareAt(s, loc("us/a")) {
				t.Errorf("version %d: clients get %v", version, a.Priorities[0])
			}
		}
	}
}

// TestRollbackIntoOverload: weights of quiet times are refused where the demand of now
// puts a locality above its ceiling, unless it is forced.
func TestRollbackIntoOverload(t *testing.T) {
	l := &loop{t: t, top: threeZones(t), now: t0, decider: plan.NewDecider(interval, nil, t0)}
	h := plan.NewHistory(nil, &plan.Saved{})
	l.turn(l.decider.Reapply)
	first, _ := plan.Changed(nil, l.plan, plan.Origin{Trigger: plan.TriggerRestart})
	h.Add(first)
	step := func(rate float64) {
		before := l.plan
		l.tick(rate, false)
		if c, ok := plan.Changed(before, l.plan, plan.Origin{}); ok {
			h.Add(c)
		}
	}
	for range 10 {
		step(100)
	}
	quiet := l.plan.Version
	for range 40 {
		step(450)
	}
	turn := &plan.Turn{Now: l.now, Interval: interval, Topology: l.top, Previous: l.plan, Version: l.plan.Version + 1}
	_, err := l.decider.Rollback(turn, h, quiet, "")
	var tooMuch *plan.TooMuchError
	if !errors.As(err, &tooMuch) || len(tooMuch.Breaches) != 1 || !strings.Contains(tooMuch.Breaches[0], "us/a at 134.9% of its capacity, above its ceiling of 80.0%") {
		t.Fatalf("%v", err)
	}
	turn.Force = true
	if _, err := l.decider.Rollback(turn, h, quiet, ""); err != nil {
		t.Errorf("forced: %v", err)
	}
	l.plan.MakeProvisional()
	if p, err := l.decider.Rollback(turn, h, quiet, ""); err != nil || !p.Provisional {
		t.Errorf("a rollback ends a plan that waits for clients: %v", err)
	}
}

func shareAt(s *plan.Service, l isobar.Locality) float64 {
	for i := range s.Sites {
		if s.Sites[i].Group.Locality == l {
			return s.Result.Source(loc("us/a")).Shares[i]
		}
	}
	return 0
}

func reread(t *testing.T, pages map[uint64]plan.Page, p *plan.Plan) *plan.History {
	t.Helper()
	var read []plan.Page
	for _, page := range pages {
		data, err := json.Marshal(page)
		if err != nil {
			t.Fatal(err)
		}
		var again plan.Page
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatal(err)
		}
		read = append(read, again)
	}
	return plan.NewHistory(read, &plan.Saved{Version: p.Version})
}

func TestRollbackRefuses(t *testing.T) {
	l := &loop{t: t, top: threeZones(t), now: t0, decider: plan.NewDecider(interval, nil, t0)}
	l.turn(l.decider.Reapply)
	first := l.plan
	l.tick(900, false)
	l.tick(900, false)
	h := plan.NewHistory(nil, &plan.Saved{})
	h.Add(plan.Change{Version: 1, Trigger: plan.TriggerRestart})
	c, _ := plan.Changed(first, l.plan, plan.Origin{Trigger: plan.TriggerRestart})
	c.Version, c.Previous = 3, 1 // version 2 was published by a process that died
	h.Add(c)
	turn := &plan.Turn{Now: l.now, Interval: interval, Topology: l.top, Previous: l.plan, Version: 10}
	for _, tt := range []struct {
		version       uint64
		service, want string
	}{
		{2, "", "before version 3 the server restarted, and 1 was the last that it had saved"},
		{99, "", "the plan in force is 3"},
		{1, "cart", `service "cart"`},
	} {
		_, err := l.decider.Rollback(turn, h, tt.version, tt.service)
		if !errors.Is(err, isobar.ErrNotFound) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("version %d of %q: %v, want %q", tt.version, tt.service, err, tt.want)
		}
	}
	_, err := l.decider.Rollback(turn, plan.NewHistory(nil, &plan.Saved{}), 3, "")
	if !errors.Is(err, isobar.ErrNotFound) {
		t.Errorf("from no history: %v", err)
	}
}

// TestRollbackBeforeTheService: where a service had no weights at a version, there
// is nothing to return to, and it is not said that it was done.
func TestRollbackBeforeTheService(t *testing.T) {
	l := &loop{t: t, top: threeZones(t), now: t0, decider: plan.NewDecider(interval, nil, t0)}
	l.turn(l.decider.Reapply)
	l.tick(900, false)
	h := plan.NewHistory(nil, &plan.Saved{})
	h.Add(plan.Change{Version: 1, Trigger: plan.TriggerRestart})
	came, _ := plan.Changed(nil, l.plan, plan.Origin{Trigger: plan.TriggerTopology})
	came.Previous = 1
	h.Add(came)
	turn := &plan.Turn{Now: l.now, Interval: interval, Topology: l.top, Previous: l.plan, Version: 10}
	_, err := l.decider.Rollback(turn, h, 1, "checkout")
	if want := `service "checkout" at version 1: not found: it had no weights yet`; !errors.Is(err, isobar.ErrNotFound) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for _, tt := range []struct {
		version uint64
		service string
	}{{l.plan.Version, "checkout"}, {l.plan.Version, ""}, {1, ""}} {
		if _, err := l.decider.Rollback(turn, h, tt.version, tt.service); !errors.Is(err, plan.ErrUnchanged) {
			t.Errorf("version %d of %q: %v, want that nothing would change", tt.version, tt.service, err)
		}
	}
}

// some makes a change of one service with n sources.
func some(version uint64, sources int) plan.Change {
	s := plan.ServiceChange{Service: "checkout", Sites: []isobar.Locality{loc("eu/a"), loc("us/a")}}
	for i := range sources {
		s.Sources = append(s.Sources, plan.SourceChange{
			Source: isobar.Locality{Region: "us", Zone: fmt.Sprintf("z%05d", i)}, Before: []uint16{0, 10_000}, After: []uint16{5000, 5000},
		})
	}
	return plan.Change{Version: version, Previous: version - 1, Trigger: plan.TriggerTick, Services: []plan.ServiceChange{s}}
}

// TestHistoryIsBounded: the last thousand changes are kept, or fewer where they
// are large, on a bounded number of pages.
func TestHistoryIsBounded(t *testing.T) {
	h := plan.NewHistory(nil, &plan.Saved{})
	pages := map[uint64]plan.Page{}
	for v := range uint64(5000) {
		p := h.Add(some(v+1, 3))
		pages[p.Number%plan.MaxPages] = p
	}
	all := h.Changes("")
	if len(all) != plan.MaxChanges || all[0].Version != 5000 || all[999].Version != 4001 {
		t.Errorf("%d changes, from %d", len(all), all[0].Version)
	}
	if len(pages) != plan.MaxPages {
		t.Errorf("%d pages", len(pages))
	}
	if got := h.Changes("cart"); len(got) != 0 {
		t.Errorf("%d changes of another service", len(got))
	}
	for v := range uint64(200) {
		h.Add(some(v+6000, 5000))
	}
	if n := len(h.Changes("")); n < 20 || n > 60 {
		t.Errorf("%d changes of 50,000 numbers each are kept", n)
	}
}

// TestHistoryAfterARestart: a page that is missing or damaged ends the past; a
// history that does not lead up to the saved plan has none.
func TestHistoryAfterARestart(t *testing.T) {
	h := plan.NewHistory(nil, &plan.Saved{})
	pages := map[uint64]plan.Page{}
	for v := range uint64(200) {
		p := h.Add(some(v+1, 1))
		pages[p.Number] = p
	}
	list := func(without ...uint64) (out []plan.Page) {
		for n, p := range pages {
			if !slices.Contains(without, n) {
				out = append(out, p)
			}
		}
		return out
	}
	damaged := list()
	for i := range damaged {
		if damaged[i].Number == 2 {
			damaged[i].Changes = slices.Clone(damaged[i].Changes)
			damaged[i].Changes[7] = plan.Change{Version: 5}
		}
	}
	for name, tt := range map[string]struct {
		pages []plan.Page
		saved plan.Saved
		want  int
	}{
		"whole":               {list(), plan.Saved{Version: 200, LastChange: 200}, 200},
		"ahead of the plan":   {list(), plan.Saved{Version: 120, LastChange: 110}, 120},
		"behind the plan":     {list(), plan.Saved{Version: 300, LastChange: 201}, 0},
		"a page missing":      {list(1), plan.Saved{Version: 200, LastChange: 200}, 100},
		"the newest missing":  {list(3), plan.Saved{Version: 200, LastChange: 200}, 0},
		"a page damaged":      {damaged, plan.Saved{Version: 200, LastChange: 200}, 50},
		"nothing was written": {nil, plan.Saved{Version: 200, LastChange: 200}, 0},
	} {
		h := plan.NewHistory(tt.pages, &tt.saved)
		if got := len(h.Changes("")); got != tt.want {
			t.Errorf("%s: %d changes, want %d", name, got, tt.want)
		}
		next := h.Add(some(1000, 1))
		for _, p := range tt.pages {
			if tt.want == 0 && next.Number <= p.Number {
				t.Errorf("%s: page %d again", name, next.Number)
			}
		}
	}
}

// TestPauses keep their order, and tell what they are about.
func TestPauses(t *testing.T) {
	p := plan.Pauses{}.With(plan.Pause{Service: "b", Who: "ann", Since: t0}, plan.Pause{Service: "a"}, plan.Pause{Service: "b", Who: "bob", Reason: "canary", Since: t0})
	if got, ok := p.For("b"); !ok || got.String() != "paused by bob since 2030-01-01T00:00:00Z: canary" || len(p) != 2 {
		t.Errorf("%v %v", got, ok)
	}
	if _, ok := p.For("c"); ok {
		t.Error("c is paused")
	}
	all := p.With(plan.Pause{Since: t0.Add(time.Hour)})
	if got, _ := all.For("c"); got.Since != t0.Add(time.Hour) {
		t.Errorf("of all: %v", got)
	}
	if _, _, err := all.Without("c"); !errors.Is(err, plan.ErrAllPaused) {
		t.Errorf("one of all: %v", err)
	}
	if _, _, err := p.Without("c"); !errors.Is(err, isobar.ErrNotFound) {
		t.Errorf("none: %v", err)
	}
	if back, left, err := p.Without("b"); err != nil || len(back) != 1 || back[0].Who != "bob" || len(left) != 1 || len(p) != 2 {
		t.Errorf("without b: %v, %v, %v", back, left, err)
	}
	if back, left, err := all.Without(""); err != nil || len(back) != 3 || len(left) != 0 {
		t.Errorf("without any: %v, %v, %v", back, left, err)
	}
	if back, _, err := (plan.Pauses{}).Without(""); !errors.Is(err, plan.ErrNonePaused) || len(back) != 0 {
		t.Errorf("where none is: %v, %v", back, err)
	}
}

// TestFillsAreOutdated: by more than a tenth of capacity or of utilization, and by other
// services or localities.
func TestFillsAreOutdated(t *testing.T) {
	type site struct {
		at             string
		capacity, load float64
	}
	of := func(service string, sites ...site) *plan.Plan {
		s := &plan.Service{Spec: &isobar.Service{Name: service}, Result: &assign.Result{}}
		for _, x := range sites {
			s.Result.Sites = append(s.Result.Sites, assign.Site{Group: &isobar.EndpointGroup{Locality: isobar.MustLocality(x.at)}, Capacity: x.capacity})
			s.Result.Load = append(s.Result.Load, x.load)
		}
		return &plan.Plan{Services: []*plan.Service{s, {Spec: &isobar.Service{Name: "undecided"}}}}
	}
	then := plan.FillsOf(of("a", site{"eu/a", 1000, 500}, site{"eu/b", 0, 0}))
	for name, tt := range map[string]struct {
		now  *plan.Plan
		want bool
	}{
		"same":               {of("a", site{"eu/a", 1000, 500}, site{"eu/b", 0, 0}), false},
		"a little fuller":    {of("a", site{"eu/a", 1000, 590}, site{"eu/b", 0, 0}), false},
		"fuller":             {of("a", site{"eu/a", 1000, 610}, site{"eu/b", 0, 0}), true},
		"emptier":            {of("a", site{"eu/a", 1000, 390}, site{"eu/b", 0, 0}), true},
		"a little larger":    {of("a", site{"eu/a", 1090, 545}, site{"eu/b", 0, 0}), false},
		"larger":             {of("a", site{"eu/a", 1200, 600}, site{"eu/b", 0, 0}), true},
		"capacity came":      {of("a", site{"eu/a", 1000, 500}, site{"eu/b", 10, 0}), true},
		"a locality is gone": {of("a", site{"eu/a", 1000, 500}), true},
		"another locality":   {of("a", site{"eu/a", 1000, 500}, site{"eu/c", 0, 0}), true},
		"another service":    {of("b", site{"eu/a", 1000, 500}, site{"eu/b", 0, 0}), true},
		"no service":         {&plan.Plan{}, true},
	} {
		if got := then.Outdated(tt.now); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// A plan is made from the one before, and must not hold on to it: a server
// makes one every few seconds for months.
func TestPlansLetGoOfThoseBefore(t *testing.T) {
	top := threeZones(t)
	rates := map[string]float64{"us/a": 900, "us/b": 100}
	var before []weak.Pointer[plan.Service]
	var p *plan.Plan
	for i := range 6 {
		in := plan.Input{Now: t0.Add(time.Duration(i) * interval), Topology: top, Previous: p, Version: uint64(i) + 1}
		if in.Trigger = assign.Reapply; i%3 < 2 {
			in.Trigger, in.Load = assign.Tick, demand(in.Now, "checkout", rates)
		}
		next, err := plan.Next(in)
		if err != nil {
			t.Fatal(err)
		}
		if p != nil && p.Services[0] != next.Services[0] {
			before = append(before, weak.Make(p.Services[0]))
		}
		p = next
	}
	runtime.GC()
	for i, w := range before {
		if w.Value() != nil {
			t.Errorf("the service of plan %d of %d is still there", i+1, len(before)+1)
		}
	}
	runtime.KeepAlive(p)
}
