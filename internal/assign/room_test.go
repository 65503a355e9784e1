package assign_test

import (
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

// What two sources lose at once is not put twice into the same room: the nearer
// one fills it, and what of the other no longer fits goes on to the next.
func TestRoomIsTakenOnce(t *testing.T) {
	fromEast, fromAsia := []float64{0, 1, 80}, []float64{5, 6, 90}
	in := input([]assign.Site{site(east, 1000), site(eastB, 150), site(west, 1000)},
		source(asia, 100, fromAsia, 1, 0, 0), source(east, 100, fromEast, 1, 0, 0))
	out := decide(t, in)
	in = then(in, out)
	in.Trigger = assign.Rebase
	in.Sites = []assign.Site{site(east, 1000, isobar.Unhealthy, isobar.Unhealthy), in.Sites[1], in.Sites[2]}
	out = decide(t, in)
	wantShares(t, out, 1, 0, 100, 0)
	wantShares(t, out, 0, 0, 20, 80) // eastB takes 120 requests/s
}

// The means to send where a source must not is as bad as sending there: clients
// fail over by themselves.
func TestCheckSeesForbiddenTiers(t *testing.T) {
	in := input([]assign.Site{site(east, 1000), site(eastB, 1000), site(west, 1000)}, source(east, 400, []float64{0, 1, 80}, 1, 0, 0))
	in.Sources[0].Forbidden = []bool{false, false, true}
	good := decide(t, in)
	wantTiers(t, good.Sources[0].Assignment, []isobar.Locality{east}, []isobar.Locality{eastB})
	bad := copied(good)
	a := bad.Sources[0].Assignment
	a.Priorities = append(a.Priorities, []isobar.LocalityWeight{{EndpointGroup: bad.Groups[2], Weight: 1}})
	found := invariant.Check(good, bad, checkInput(in))
	if len(found) != 1 || found[0].Rule != invariant.RuleForbidden {
		t.Errorf("found %v", found)
	}
}
