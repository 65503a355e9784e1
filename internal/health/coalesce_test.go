package health_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

const tick = 5 * time.Second

func TestCoalescer(t *testing.T) {
	const s = time.Second
	c := health.NewCoalescer(tick)
	for _, row := range []struct {
		at      time.Duration
		service string
		push    bool
		next    time.Duration // 0: nothing waits
	}{
		{0, "web", true, 0},
		{1 * s, "web", true, 0},
		{2 * s, "web", true, 0},
		{3 * s, "web", false, 7 * s},
		{3 * s, "api", true, 7 * s}, // another service is pushed nevertheless
		{4 * s, "web", false, 7 * s},
		{7 * s, "web", true, 0},
		{8 * s, "web", false, 12 * s},
		// Pushed by Ready at 12 s, with a change until 12 s.
		{13 * s, "web", false, 17 * s},
		// Pushed at 17 s; quiet since 13 s, that is 3 ticks at 28 s.
		{29 * s, "web", true, 0},
		{29500 * time.Millisecond, "web", true, 0},
		{30 * s, "web", true, 0},
		{31 * s, "web", false, 35 * s},
	} {
		for {
			next, waits := c.Next()
			if !waits || next.After(start.Add(row.at)) || next.Equal(start.Add(row.at)) {
				break
			}
			if early := c.Ready(next.Add(-1)); len(early) != 0 {
				t.Errorf("%v is ready before its time", early)
			}
			if got := c.Ready(next); len(got) != 1 || got[0] != "web" {
				t.Errorf("ready at %s: %v", next.Sub(start), got)
			}
		}
		if got := c.Due(start.Add(row.at), row.service); got != row.push {
			t.Errorf("at %s: pushed %v, want %v", row.at, got, row.push)
		}
		next, waits := c.Next()
		if waits != (row.next > 0) || (waits && !next.Equal(start.Add(row.next))) {
			t.Errorf("at %s: next %s, %v; want %s", row.at, next.Sub(start), waits, row.next)
		}
	}
}

// TestCoalescerIsBounded: after three pushes within a tick no two are less than
// a tick apart, and no change waits longer than a tick.
func TestCoalescerIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := health.NewCoalescer(tick)
		var pushed []time.Time
		var waiting time.Time
		now, last := start, start
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
			for {
				next, waits := c.Next()
				if !waits || next.After(now) {
					break
				}
				if len(c.Ready(next)) != 1 || next.Sub(waiting) > tick {
					t.Fatalf("a change waits since %s at %s", waiting, next)
				}
				pushed, waiting = append(pushed, next), time.Time{}
			}
			if rapid.IntRange(0, 30).Draw(t, "quiet") == 0 {
				now = now.Add(4 * tick)
			}
			switch {
			case c.Due(now, "web"):
				pushed, waiting = append(pushed, now), time.Time{}
			case waiting.IsZero():
				waiting = now
			}
			if quiet := now.Sub(last) >= 3*tick; quiet {
				pushed = pushed[max(0, len(pushed)-1):]
			}
			last = now
			if n := len(pushed); n > 3 && pushed[n-1].Sub(pushed[n-4]) < tick {
				t.Fatalf("four pushes within a tick: %v", pushed[n-4:])
			}
		}
	})
}

// TestFlapping lets half of 10,000 endpoints change once per second for two
// minutes, as three honest checkers see them.
func TestFlapping(t *testing.T) {
	var services []isobar.Service
	for i := range 10 {
		services = append(services, service(fmt.Sprintf("s%d", i), 250, zoneA, zoneB, zoneC, zoneF))
	}
	w := newWorld(t, topology(services...), checkersIn(1, zoneA, zoneB, zoneC))
	w.run(2 * interval)
	w.settled = true
	round := 0
	flaps := map[health.Key]bool{}
	for i, k := range w.placement.Of("eu/a-0") {
		flaps[k] = i%2 == 0
	}
	w.says = func(_ string, k health.Key) isobar.HealthStatus {
		if flaps[k] && round%2 == 0 {
			return isobar.Unhealthy
		}
		return isobar.Healthy
	}
	c := health.NewCoalescer(tick)
	var drains health.Drains
	pushes := map[string][]time.Time{}
	published := w.table.Verdicts()
	push := func(names []string) {
		for _, s := range names {
			pushes[s] = append(pushes[s], w.now)
		}
		published = published.Adopt(w.table.Verdicts(), names...)
		drains.Observe(w.now, w.topology, health.Table{}.WithVerdicts(published))
		for i := range services {
			if n := len(drains.Current().Of(services[i].Name)); n > 2 {
				t.Fatalf("%d of 4 localities of %s are drained", n, services[i].Name)
			}
		}
	}
	for ; round < 60; round++ {
		w.now = w.now.Add(-interval + time.Second)
		changed := w.step()
		if len(changed) != 10 {
			t.Fatalf("round %d: changes of %d services, want 10", round, len(changed))
		}
		var now []string
		for _, s := range changed {
			if c.Due(w.now, s) {
				now = append(now, s)
			}
		}
		push(append(now, c.Ready(w.now)...))
	}
	for s, at := range pushes {
		if len(at) < 10 || len(at) > 15 {
			t.Errorf("%s: %d pushes in 60 s, want 3 and then one per tick", s, len(at))
		}
		for i := 3; i < len(at); i++ {
			if at[i].Sub(at[i-1]) < tick {
				t.Errorf("%s: pushes %d and %d are %s apart", s, i-1, i, at[i].Sub(at[i-1]))
			}
		}
	}
}
