package health_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// fresh gives addresses that no service has yet.
func fresh(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("10.9.0.%d:80", i))
	}
	return out
}

func TestGrowingALocalityDoesNotDrainIt(t *testing.T) {
	o := atRest(t, 1, 1, zoneA, zoneB, zoneC)
	o.add(0, fresh(4)...)
	o.look()
	if got := o.told("10.9.0.0:80"); got.Usable() || o.last.Table.Drained("web", zoneA) || o.told(first) != isobar.Healthy {
		t.Errorf("new: %s, old: %s, drained %v; want the new ones to wait and nothing drained", got, o.told(first), o.keeper.Drained("web"))
	}
	for range 40 {
		if o.step(interval); o.last.Table.Drained("web", zoneA) {
			t.Fatalf("drained at %s", o.now.Sub(start))
		}
	}
	// Once they are known to be down they do count.
	o.add(0, "10.9.1.0:80", "10.9.1.1:80")
	o.dead(append(fresh(4), "10.9.1.0:80", "10.9.1.1:80")...)
	o.run(30 * interval)
	if !o.last.Table.Drained("web", zoneA) {
		t.Error("one of 7 is healthy, but the locality is not drained")
	}
}

func TestAddedEndpointsAreNeverLetInByCoalescing(t *testing.T) {
	o := atRest(t, 2, 1, zoneA, zoneB, zoneC)
	for i, address := range fresh(6) {
		o.add(0, address)
		o.now = o.now.Add(300 * time.Millisecond)
		if o.look(); o.told(address).Usable() {
			t.Errorf("added endpoint %d is %s before any verdict", i, o.told(address))
		}
	}
	// Nor do they use up what is free for failures.
	o.dead(append(fresh(6), second)...)
	if r := o.step(300 * time.Millisecond); !r.Publish || o.told(second) != isobar.Unhealthy {
		t.Errorf("a failure is told as %s, published %v; want unhealthy at once", o.told(second), r.Publish)
	}
}

func TestFlappingIsGathered(t *testing.T) {
	o := atRest(t, 2, 1, zoneA, zoneB, zoneC)
	o.step(2 * tick)
	published := 0
	for i := range 50 {
		if o.dead(); i%2 == 0 {
			o.dead(first)
		}
		published += count(o.step(100 * time.Millisecond).Publish)
	}
	if published > 4 { // 3 at once and one after a tick
		t.Errorf("%d pushes in 5 s of flapping", published)
	}
	o.dead(first)
	for range 50 {
		o.step(100 * time.Millisecond)
	}
	if got := o.told(first); got != isobar.Unhealthy {
		t.Errorf("%s after a tick, want what was gathered", got)
	}
}

// While something is held, events in which nothing happens cost next to
// nothing: they come for each report of each checker.
func TestEventsAreCheapWhileMuchIsHeld(t *testing.T) {
	services := []isobar.Service{service("web", 100, zoneA, zoneB)}
	for i := range 100 {
		services = append(services, service(fmt.Sprintf("s%d", i), 10, zoneC))
	}
	o := newOffice(t, topology(services...), checkersIn(1, zoneA, zoneB, zoneC))
	o.run(10 * time.Second)
	o.says = downWhere(func(health.Key) bool { return true })
	o.run(5 * interval)
	if n := o.keeper.Book().Summary("web").Held; n != 200 {
		t.Fatalf("%d held, want all", n)
	}
	if got := testing.AllocsPerRun(100, func() {
		o.now = o.now.Add(time.Millisecond)
		o.look()
	}); got > 100 {
		t.Errorf("%g allocations by an event", got)
	}
}
