package health_test

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar"
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
