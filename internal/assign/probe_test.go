package assign_test

import (
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

// A site that nobody reaches keeps a probe from each source that would see it
// come back, and from nobody else.
func TestUnreachableSitesKeepAProbe(t *testing.T) {
	sites := []assign.Site{site(east, 1000), site(eastB, 1000), site(west, 1000)}
	in := input(sites,
		source(east, 500, []float64{0, 1, 80}, 0.5, 0.5, 0), // has a stake
		source(eastB, 5, []float64{1, 0, 80}, 0, 1, 0),      // is barred: see below
		source(west, 300, []float64{80, 80, 0}, 0, 0, 1))    // never went there
	out := decide(t, in)
	in.Sites[0].Unreachable, in.Sites[0].Capacity = true, 0
	in.Sources[0].Target = []float64{0, 1, 0}
	in.Sources[1].Barred = []bool{true, false, false}
	for _, trigger := range []assign.Trigger{assign.Reapply, assign.Tick, assign.Tick, assign.Reapply, assign.Tick} {
		in := then(in, out)
		in.Trigger = trigger
		out = decide(t, in)
		wantShares(t, out, 0, 1, 99, 0)
		wantShares(t, out, 2, 0, 0, 100)
	}
	wantShares(t, out, 1, 1, 99, 0)
	wantReason(t, out, 0, assign.ReasonBarred)
	wantTiers(t, out.Sources[0].Assignment, []isobar.Locality{east, eastB}, []isobar.Locality{west})
	wantTiers(t, out.Sources[2].Assignment, []isobar.Locality{west}, []isobar.Locality{eastB}, []isobar.Locality{east})
	// Without a healthy endpoint there is nothing to find out.
	in.Sites[0] = site(east, 1000, isobar.Unhealthy)
	in.Sites[0].Unreachable = true
	wantShares(t, decide(t, then(in, out)), 0, 0, 100, 0)
	// When it is reachable again it is paced in.
	in.Sites[0] = site(east, 1000)
	in.Sources[0].Target, in.Sources[1].Barred = []float64{0.5, 0.5, 0}, nil
	wantShares(t, decide(t, then(in, out)), 0, 11, 89, 0)
}

// Probes are the only traffic that may go to where nobody arrives.
func TestCheckSeesMoreThanAProbe(t *testing.T) {
	in := input([]assign.Site{site(east, 1000), site(eastB, 1000), site(west, 1000)},
		source(east, 500, []float64{0, 1, 80}, 0.5, 0.5, 0), source(west, 300, []float64{80, 80, 0}, 0, 0, 1))
	prev := decide(t, in)
	in.Sites[0].Unreachable, in.Sites[0].Capacity = true, 0
	in.Sources[0].Target = []float64{0, 1, 0}
	good := decide(t, then(in, prev))
	for _, row := range []struct {
		source, from int
		units        uint32
	}{{0, 1, 100}, {1, 2, 50}} {
		bad := copied(good)
		if row.source == 1 {
			p := bad.Sources[1].Assignment.Priorities
			p[0] = append([]isobar.LocalityWeight{{EndpointGroup: bad.Groups[0]}}, p[0]...)
			bad.Sources[1].Assignment.Priorities = p[:2]
		}
		move(bad, row.source, row.from, 0, row.units)
		found := invariant.Check(prev, bad, checkInput(in))
		if len(found) != 1 || found[0].Rule != invariant.RuleUnhealthy {
			t.Errorf("%d units of source %d: found %v", row.units, row.source, found)
		}
	}
}

// Many sites that are out of reach do not get more than a tenth together.
func TestManyProbesAreSmaller(t *testing.T) {
	var sites []assign.Site
	for i := range 42 {
		sites = append(sites, site(isobar.Locality{Region: "r", Zone: string(rune('A' + i))}, 1000))
	}
	in := input(sites, source(east, 500, make([]float64, 42)))
	out := decide(t, in)
	in.Sources[0].Barred = make([]bool, 42)
	for i := range 20 {
		in.Sites[i].Unreachable, in.Sites[i].Capacity = true, 0
		in.Sources[0].Barred[i+20] = true
	}
	out = decide(t, then(in, out))
	for i, v := range out.Sources[0].Shares[:40] {
		if v != 0.0025 {
			t.Errorf("site %d gets a share of %v, want 0.0025", i, v)
		}
	}
}

func TestBarredSitesGetAProbe(t *testing.T) {
	in := input(twoSites(), source(east, 500, []float64{0, 80}, 1, 0))
	out := decide(t, in)
	in.Sources[0].Barred = []bool{true, false}
	in.Sources[0].Target = []float64{0, 1}
	for range 2 {
		out = decide(t, then(in, out))
		wantShares(t, out, 0, 1, 99)
		wantReason(t, out, 0, assign.ReasonBarred)
	}
	// Bars that leave nothing do not count.
	in.Sources[0].Barred = []bool{true, true}
	in.Sources[0].Target = []float64{1, 0}
	wantShares(t, decide(t, then(in, out)), 0, 11, 89)
}

func TestSeveralProbes(t *testing.T) {
	in := input([]assign.Site{site(east, 1000), site(eastB, 500), site(west, 1000)}, source(east, 500, []float64{0, 1, 80}, 0, 0, 1))
	in.Sources[0].Barred = []bool{true, true, false}
	wantShares(t, decide(t, in), 0, 1, 1, 98)
}

// A site that has no headroom for a probe, because of what is there that does not
// obey, gets it nevertheless; and whatever becomes of it, it keeps nobody else
// from relieving another site.
func TestAProbeWithoutHeadroomHoldsUpNobody(t *testing.T) {
	for _, unmanaged := range []float64{0, 78, 100} { // of 100, with a ceiling of 80
		full := site(asia, 100)
		full.Unmanaged = unmanaged
		in := input([]assign.Site{site(east, 1000), site(west, 1000), full},
			source(east, 600, []float64{0, 1, 1}, 1, 0, 0), source(west, 300, []float64{1, 0, 1}, 0, 1, 0))
		out := decide(t, in)
		in.Sources[0].Barred = []bool{false, false, true}
		in.Sources[1].Demand, in.Sources[1].Target = 900, []float64{0.12, 0.88, 0}
		out = decide(t, then(in, out))
		wantShares(t, out, 0, 99, 0, 1)
		wantShares(t, out, 1, 12, 88, 0)
	}
}

// What others send to a site that is full makes headroom for a probe, and they move
// on as fast as ever.
func TestAProbeTakesItsPlaceAmongOthers(t *testing.T) {
	sites := []assign.Site{site(east, 1000), site(west, 1000), site(asia, 10)}
	in := input(sites, source(east, 600, []float64{0, 1, 1}, 1, 0, 0), source(west, 100, []float64{1, 0, 1}, 0, 0.92, 0.08))
	out := decide(t, in)
	in.Sources[0].Barred = []bool{false, false, true}
	for range 6 {
		out = decide(t, then(in, out))
	}
	wantShares(t, out, 0, 99, 0, 1)
	wantShares(t, out, 1, 0, 98, 2)
}

// Where some may only use a site that nobody reaches, the probes of others come
// on top of what these send there.
func TestProbesComeOnTopOfWhatMayNotLeave(t *testing.T) {
	sites := []assign.Site{site(east, 1000), site(eastB, 1000), site(west, 1000)}
	in := input(sites, source(east, 100, []float64{0, 1, 80}, 1, 0, 0), source(west, 300, []float64{80, 80, 0}, 0, 0, 1))
	in.Sources[1].Forbidden = []bool{true, true, false}
	out := decide(t, in)
	in.Sites[2].Unreachable, in.Sites[2].Capacity = true, 0
	in.Sources[0].Barred, in.Sources[1].Target = []bool{false, false, true}, nil
	out = decide(t, then(in, out))
	wantShares(t, out, 0, 99, 0, 1)
	wantShares(t, out, 1, 0, 0, 100)
}

// Who wants to go where there is no headroom, because somebody else has no choice
// but to stay, waits alone.
func TestWhoCanNotMoveHoldsUpNobodyElse(t *testing.T) {
	in := input([]assign.Site{site(east, 1000), site(eastB, 1000), site(west, 100)},
		source(asia, 100, []float64{9, 10, 11}, 1, 0, 0), // all the way from one site to another
		source(east, 100, []float64{0, 1, 80}, 1, 0, 0),  // to where there is no headroom
		source(west, 60, []float64{80, 80, 0}, 0, 0, 1))  // may not go elsewhere
	in.Sources[2].Forbidden = []bool{true, true, false}
	out := decide(t, in)
	in.Sources[0].Target, in.Sources[1].Target = []float64{0, 1, 0}, []float64{0.6, 0, 0.4}
	for range 10 {
		out = decide(t, then(in, out))
	}
	wantShares(t, out, 0, 0, 100, 0)
	wantShares(t, out, 1, 80, 0, 20)
}
