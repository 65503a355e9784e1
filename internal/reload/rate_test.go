package reload

import (
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestRateCountsWhatIsSentAgainstTheShares: clients that ignore their shares have no
// demand that the plan can move, and lose a service that is removed nevertheless.
func TestRateCountsWhatIsSentAgainstTheShares(t *testing.T) {
	p := &plan.Plan{Services: []*plan.Service{{
		Spec:   &isobar.Service{Name: "a"},
		Load:   &load.ServiceLoad{Name: "a", Sources: []load.SourceLoad{{Demand: 20}, {Demand: 1}}},
		Result: &assign.Result{Sources: []assign.SourceResult{{Demand: 0.5}}},
	}}}
	c := &Configuration{plan: func() *plan.Plan { return p }}
	if got := c.rateOf("a"); got != 21 {
		t.Errorf("clients send 21 requests/s, the rate is %g", got)
	}
}
