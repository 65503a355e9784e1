package sim_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
)

// With capacities that are declared rightly, plans that use estimates from requests settle
// after a step as those do that know the capacities, but for a few delays.
func TestStepSettlesByRequests(t *testing.T) {
	settled, all := 0, 0
	for _, step := range steps {
		for delay := range 4 {
			sc := stepScenario(t, step.after, step.other, time.Duration(delay)*interval, time.Duration(3-delay)*interval)
			sc.Timeout = time.Second
			sc.Topology.Services[0].CapacityTrust = isobar.TrustObserved
			at, limit, overshoot := settling(sc, run(t, sc))
			all++
			if at >= 0 && at <= limit {
				settled++
			}
			if overshoot > 5 {
				t.Errorf("%s, reports %d: overshoot of %.1f points", step.name, delay, overshoot)
			}
		}
	}
	if settled < all-2 {
		t.Errorf("%d of %d settle in time", settled, all)
	}
}
