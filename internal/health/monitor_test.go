package health_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// TestMonitor goes through the life of a monitor: nobody is there, checkers come
// and vote, endpoints fail and come back, the process is replaced, checkers go.
func TestMonitor(t *testing.T) {
	o := newMonitorWorld(t, topology(service("web", 10, zoneA, zoneB, zoneC)), nil)
	if r := o.last; !r.Publish || !r.Designate || r.Next.After(start.Add(interval)) {
		t.Errorf("first look: %+v, want everything told", r)
	}
	p := o.monitor.Placement()
	if o.told(first) != isobar.Unknown || len(p.Shortfalls) != 30 {
		t.Errorf("nobody is there: %s, %d shortfalls; want the configured status, and 30", o.told(first), len(p.Shortfalls))
	}

	o.connected = checkersIn(2, zoneA, zoneB, zoneC)
	if r := o.look(); !r.Designate || r.Publish {
		t.Errorf("checkers came: %+v, want them designated and nothing published", r)
	}
	if r := o.look(); r.Designate || r.Publish || r.Ignored != 0 {
		t.Errorf("nothing happened: %+v", r)
	}
	p = o.monitor.Placement()
	if len(p.Shortfalls) != 0 || len(designated(&p, health.Key{Service: "web", Address: first})) != 3 {
		t.Errorf("%d shortfalls", len(p.Shortfalls))
	}

	if r := o.step(interval); !r.Publish || o.told(first) != isobar.Healthy {
		t.Errorf("all vote: published %v, %s; want healthy", r.Publish, o.told(first))
	}
	o.run(2 * tick)
	o.dead(first)
	if r := o.step(interval); !r.Publish || o.told(first) != isobar.Unhealthy || o.told(second) != isobar.Healthy {
		t.Errorf("one fails: published %v, %s; want unhealthy at once", r.Publish, o.told(first))
	}
	if r := o.step(interval); r.Publish {
		t.Error("published what is known")
	}

	monitorDrains(t, o)
	monitorRestarts(t, o)
	monitorLoses(t, o)
}

// monitorDrains lets most of a locality fail and come back.
func monitorDrains(t *testing.T, o *monitorWorld) {
	t.Helper()
	o.says = downWhere(func(k health.Key) bool { return k.Address < "10.0.0.8" })
	if r := o.step(interval); !r.Publish || !slices.Equal(o.monitor.Drained("web"), []isobar.Locality{zoneA}) || !r.Table.Drained("web", zoneA) {
		t.Errorf("8 of 10 fail: published %v, drained %v; want %v", r.Publish, o.monitor.Drained("web"), zoneA)
	}
	o.dead()
	o.run(30 * time.Second)
	if !o.last.Table.Drained("web", zoneA) || o.told(first) != isobar.Healthy {
		t.Error("used again too early")
	}
	o.run(40 * time.Second)
	if o.last.Table.Drained("web", zoneA) {
		t.Error("not used again after a minute")
	}
}

// monitorRestarts replaces the monitor while endpoints are down.
func monitorRestarts(t *testing.T, o *monitorWorld) {
	t.Helper()
	o.says = downWhere(func(k health.Key) bool { return k.Address < "10.0.0.8" })
	o.run(2 * interval)
	before, back := o.monitor.Placement(), o.connected
	o.restart(nil)
	o.connected = nil
	if r := o.look(); !r.Publish || o.told(first) != isobar.Unhealthy || o.told(second) != isobar.Healthy || !r.Table.Drained("web", zoneA) {
		t.Errorf("after a restart: published %v, %s, %s, drained %v; want what was known",
			r.Publish, o.told(first), o.told(second), o.monitor.Drained("web"))
	}
	o.now = o.now.Add(time.Second)
	for i := range back {
		back[i].Since = o.now
	}
	o.connected = back
	o.run(20 * interval)
	if after := o.monitor.Placement(); !after.Equal(&before) {
		t.Error("a restart moved designations")
	}
	if v := o.verdict(first); v.Frozen || v.Status != isobar.Unhealthy {
		t.Errorf("%+v, want it confirmed", v)
	}
}

// monitorLoses takes the checkers away, one and then all.
func monitorLoses(t *testing.T, o *monitorWorld) {
	t.Helper()
	lost := o.connected[0].ID
	began := o.now
	o.connected = o.connected[1:]
	for o.work(lost) > 0 && o.now.Sub(began) < time.Minute {
		if o.step(interval); o.last.Publish {
			t.Error("the loss of a checker changed a verdict")
		}
	}
	p := o.monitor.Placement()
	if took := o.now.Sub(began); took > 2*interval || len(p.Shortfalls) != 0 {
		t.Errorf("designated again after %s, %d shortfalls; want two report intervals and none", took, len(p.Shortfalls))
	}
	o.connected = nil
	o.run(time.Minute)
	if v := o.verdict(second); v.Status != isobar.Healthy || !v.Frozen || o.told(first) != isobar.Unhealthy {
		t.Errorf("%+v, want it frozen without checkers", v)
	}
}

// What is gathered is due when the reaction says so.
func TestMonitorSaysWhenToLookAgain(t *testing.T) {
	o := atRest(t, 2, 1, zoneA, zoneB, zoneC)
	o.run(4 * tick)
	for i := range 4 {
		if o.dead(); i%2 == 0 {
			o.dead(first)
		}
		o.step(10 * time.Millisecond)
	}
	if o.last.Publish || o.told(first) == isobar.Healthy {
		t.Fatalf("the fourth change in 40 ms was told")
	}
	for range 10 {
		o.now = o.last.Next
		if o.look(); o.last.Publish {
			break
		}
	}
	if got := o.told(first); got != isobar.Healthy || o.now.Sub(start) > 10*time.Second+5*tick+time.Second {
		t.Errorf("%s at %s, want what was gathered a tick after the third push", got, o.now.Sub(start))
	}
}

// fresh returns addresses that no service has yet.
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
		t.Errorf("new: %s, old: %s, drained %v; want the new ones to wait and nothing drained", got, o.told(first), o.monitor.Drained("web"))
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
	o := newMonitorWorld(t, topology(services...), checkersIn(1, zoneA, zoneB, zoneC))
	o.run(10 * time.Second)
	o.says = downWhere(func(health.Key) bool { return true })
	o.run(5 * interval)
	if n := o.monitor.VerdictTable().Summary("web").Held; n != 200 {
		t.Fatalf("%d held, want all", n)
	}
	if got := testing.AllocsPerRun(100, func() {
		o.now = o.now.Add(time.Millisecond)
		o.look()
	}); got > 100 {
		t.Errorf("%g allocations by an event", got)
	}
}

// A monitor keeps no services without health checks: these change while the others stay, and a
// topology that nothing else needs any more would stay in memory.
func TestMonitorKeepsNoUncheckedServices(t *testing.T) {
	plain := service("plain", 10, zoneA)
	plain.HealthChecks = nil
	web := service("web", 10, zoneA)
	o := newMonitorWorld(t, topology(plain, web), nil)
	if got := o.last.Topology.Services; len(got) != 1 || got[0].Name != "web" {
		t.Errorf("%d services are kept, want the one with health checks", len(got))
	}
	o.topology = topology(web)
	if r := o.look(); r.Designate {
		t.Error("designated anew because a service without health checks left")
	}
}
