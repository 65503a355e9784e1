package health_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

func ids(list []health.Checker) (out []string) {
	for _, c := range list {
		out = append(out, c.ID)
	}
	return out
}

func TestRoster(t *testing.T) {
	const s = time.Second
	a, b := checker("a", zoneA), checker("b", zoneB)
	moved := checker("b", zoneC)
	again := b
	again.Since = start.Add(time.Hour)
	r := health.NewRoster(2*s, []health.Checker{checker("old", zoneA), a}, start)
	for _, row := range []struct {
		at        time.Duration
		connected []health.Checker
		want      []string
		place     bool
	}{
		{0, nil, []string{"a", "old"}, false},
		{1 * s, []health.Checker{b, a, a}, []string{"a", "b", "old"}, true}, // b is new
		{2 * s, []health.Checker{a, b}, []string{"a", "b", "old"}, false},
		{3 * s, []health.Checker{a}, []string{"a", "b", "old"}, false}, // b is waited for
		{4 * s, []health.Checker{a, again}, []string{"a", "b", "old"}, false},
		{5 * s, []health.Checker{a, moved}, []string{"a", "b", "old"}, true},
		{6 * s, []health.Checker{a}, []string{"a", "b", "old"}, false},
		{8 * s, []health.Checker{a}, []string{"a", "old"}, true}, // in vain
		{15 * s, []health.Checker{a}, []string{"a"}, true},       // old did not come back
		{29 * s, []health.Checker{a}, []string{"a"}, false},
		{30 * s, []health.Checker{a}, []string{"a"}, true}, // time to balance
		{60 * s, []health.Checker{a}, []string{"a"}, false},
	} {
		if got := r.Observe(start.Add(row.at), row.connected); got != row.place {
			t.Errorf("after %s: place %v, want %v", row.at, got, row.place)
		}
		if got := ids(r.Checkers()); !slices.Equal(got, row.want) {
			t.Errorf("after %s: %v, want %v", row.at, got, row.want)
		}
		if next, waits := r.Next(); waits && !next.After(start.Add(row.at)) {
			t.Errorf("after %s: next at %s", row.at, next)
		}
	}
	if _, waits := r.Next(); waits {
		t.Error("waits for nothing")
	}
}

// work counts what a checker is designated to.
func (o *monitorWorld) work(id string) int {
	p := o.monitor.Placement()
	return len(p.Of(id))
}

func TestSilentCheckersAreReplaced(t *testing.T) {
	k := health.Key{Service: "web", Address: first}
	for name, row := range map[string]struct {
		silent int // of the endpoint's three checkers
		mute   bool
	}{
		"one": {1, false}, "two": {2, false}, "two that send empty reports": {2, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := atRest(t, 2, 2, zoneA, zoneB, zoneC)
			p := o.monitor.Placement()
			var want []string
			for _, id := range designated(&p, k)[:row.silent] {
				o.silent[id], o.mute[id] = !row.mute, row.mute
				want = append(want, id)
			}
			o.dead(first)
			o.run(4 * interval) // 3 until they are missed
			if got := ids(o.monitor.Silent()); !slices.Equal(got, want) {
				t.Fatalf("silent: %v, want %v", got, want)
			}
			o.look()
			if p = o.monitor.Placement(); len(designated(&p, k)) != 3 || o.work(want[0]) != 0 {
				t.Errorf("designated to %v, want three others than %v", designated(&p, k), want)
			}
			o.run(22 * time.Second) // who is new to it needs 18 s
			if got := o.told(first); got != isobar.Unhealthy {
				t.Errorf("%s, want unhealthy: %s", got, o.verdict(first).Why)
			}
		})
	}
}

func TestASilentCheckerIsTriedAgain(t *testing.T) {
	o := atRest(t, 2, 2, zoneA, zoneB, zoneC)
	const id = "eu/a-0"
	o.silent[id] = true
	o.run(10 * interval)
	if o.work(id) != 0 {
		t.Fatal("a silent checker has work")
	}
	o.run(time.Minute)
	if o.work(id) != 0 {
		t.Error("it has work again, and has sent nothing")
	}
	delete(o.silent, id)
	o.run(30 * interval)
	if o.work(id) == 0 || len(o.monitor.Silent()) != 0 {
		t.Error("it does its work again, but has none")
	}
	// One that sends reports in which nothing stands is tried ever more rarely.
	o.mute[id] = true
	tries, had := 0, true
	for range 300 {
		o.step(interval)
		has := o.work(id) != 0
		tries += count(has && !had)
		had = has
	}
	if tries == 0 || tries > 6 {
		t.Errorf("tried again %d times in 10 minutes", tries)
	}
	// A new stream begins again.
	delete(o.mute, id)
	for i := range o.connected {
		if o.connected[i].ID == id {
			o.connected[i].Since = o.now
		}
	}
	o.run(20 * interval)
	if o.work(id) == 0 {
		t.Error("it came back, but has no work")
	}
}

func TestSilenceOfAllMovesNothing(t *testing.T) {
	o := atRest(t, 2, 2, zoneA, zoneB, zoneC)
	before := o.monitor.Placement()
	for i := range o.connected {
		o.silent[o.connected[i].ID] = true
	}
	o.run(5 * time.Minute)
	if after := o.monitor.Placement(); !after.Equal(&before) || o.told(first) != isobar.Healthy {
		t.Errorf("%d silent, first %s; want everything as it was", len(o.monitor.Silent()), o.told(first))
	}
	// Two of six go on: it takes longer, but they get the work.
	delete(o.silent, "eu/a-0")
	delete(o.silent, "eu/b-0")
	o.run(20 * interval)
	if o.work("eu/a-0") != 6 || o.work("eu/b-0") != 6 {
		t.Errorf("%d and %d endpoints, want all 6 each", o.work("eu/a-0"), o.work("eu/b-0"))
	}
}

func TestAPauseOfOursIsNoSilence(t *testing.T) {
	o := atRest(t, 2, 2, zoneA, zoneB, zoneC)
	before := o.monitor.Placement()
	o.now = o.now.Add(time.Hour) // suspended
	for range 3 {
		o.look()
	}
	o.run(10 * interval)
	if after := o.monitor.Placement(); !after.Equal(&before) || len(o.monitor.Silent()) != 0 {
		t.Errorf("%d silent", len(o.monitor.Silent()))
	}
}
