package assign_test

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

func twoSites() []assign.Site { return []assign.Site{site(east, 1000), site(west, 1000)} }

func TestFirstAnswerIsTheTarget(t *testing.T) {
	in := input(twoSites(), source(east, 800, []float64{0, 80}, 0.6, 0.4))
	out := decide(t, in)
	wantShares(t, out, 0, 60, 40)
	if out.Load[0] != 480 || out.Load[1] != 320 {
		t.Errorf("load %v", out.Load)
	}
	// A source that comes later is answered at once too.
	in.Sources = append(in.Sources, source(west, 100, []float64{80, 0}, 0.1, 0.9))
	wantShares(t, decide(t, then(in, out)), 1, 10, 90)
}

func TestPacing(t *testing.T) {
	in := input(twoSites(), source(east, 500, []float64{0, 80}, 1, 0))
	out := decide(t, in)
	in.Sources[0].Target = []float64{0.625, 0.375}
	for _, east := range []float64{90, 80, 70, 62.5, 62.5} {
		out = decide(t, then(in, out))
		wantShares(t, out, 0, east, 100-east)
		if east == 90 {
			const want = "10.0% of the requests moved toward west/a, of 37.5% that are to move: the next decisions move the rest"
			if got := reason(&out.Sources[0], assign.ReasonPaced); got != want {
				t.Errorf("reason %q, want %q", got, want)
			}
		}
	}
}

// Damping makes steps smaller and keeps nobody out: a site that would get less
// than a point of what moves enters with a point, once nothing else is to be moved.
func TestDampedSharesEnter(t *testing.T) {
	in := input([]assign.Site{site(east, 1000), site(eastB, 1000), site(west, 1000)}, source(east, 500, []float64{0, 1, 80}, 1, 0, 0))
	out := decide(t, in)
	in.Sources[0].Target, in.Gain = []float64{0.95, 0.02, 0.03}, 0.125
	for _, want := range [][]float64{{99, 0, 1}, {98.5, 0, 1.5}, {98.06, 0, 1.94}} {
		out = decide(t, then(in, out))
		wantShares(t, out, 0, want...)
	}
	for range 20 {
		out = decide(t, then(in, out))
	}
	if d := away(out.Sources[0].Shares, in.Sources[0].Target); d > 1 || out.Sources[0].Shares[1] == 0 { // the rest is too little to publish
		t.Errorf("%v after 23 ticks", out.Sources[0].Shares)
	}
	// A step that is bounded to less than that stays so.
	in.Sources[0].Target, in.Gain, in.Pace = []float64{1, 0, 0}, 0, 0.05
	out = decide(t, in)
	in.Sources[0].Target = []float64{0, 0.5, 0.5}
	wantShares(t, decide(t, then(in, out)), 0, 100, 0, 0)
}

func TestReliefMovesFaster(t *testing.T) {
	in := input(twoSites(), source(east, 500, []float64{0, 80}, 1, 0))
	out := decide(t, in)
	in.Sources[0].Demand = 1400 // the limit of a site is 800
	in.Sources[0].Target = []float64{800.0 / 1400, 600.0 / 1400}
	out = decide(t, then(in, out))
	wantShares(t, out, 0, 70, 30)
}

// One source may enter only as another leaves: both go the same fraction of
// their way where their own steps would overload a site.
func TestEnteringWaitsForLeaving(t *testing.T) {
	in := input(twoSites(),
		source(east, 700, []float64{0, 80}, 1, 0),
		source(west, 790, []float64{80, 0}, 0, 1))
	out := decide(t, in)
	in.Sources[0].Target = []float64{0, 1}
	in.Sources[1].Target = []float64{1, 0}
	for range 10 {
		out = decide(t, then(in, out)) // the check watches the ceilings
	}
	wantShares(t, out, 0, 0, 100)
	wantShares(t, out, 1, 100, 0)
}

// One source may enter a site faster than another leaves it: then it goes only as
// far as there is room.
func TestEnteringKeepsTheCeiling(t *testing.T) {
	sites := []assign.Site{site(east, 1000), site(eastB, 5000)}
	in := input(sites, source(east, 800, []float64{0, 1}, 1, 0), source(eastB, 2000, []float64{1, 0}, 0, 1))
	out := decide(t, in)
	in.Sources[0].Target, in.Sources[1].Target = []float64{0.5, 0.5}, []float64{0.2, 0.8}
	for i := range 6 {
		out = decide(t, then(in, out))
		if y, limit := out.Load[0], out.Sites[0].Limit(); y > limit*(1+1e-9) {
			t.Errorf("tick %d: %s carries %.1f of %.0f (%.3f and %.3f of two sources)", i, east, y, limit, out.Sources[0].Shares[0], out.Sources[1].Shares[0])
		}
	}
	wantShares(t, out, 0, 50, 50)
	wantShares(t, out, 1, 20, 80)
}

func TestSuppression(t *testing.T) {
	in := input(twoSites(), source(east, 100, []float64{0, 80}, 0.5, 0.5))
	first := decide(t, in)
	out := first
	for _, target := range []float64{0.502, 0.505, 0.509} {
		in.Sources[0].Target = []float64{target, 1 - target}
		out = decide(t, then(in, out))
		wantReason(t, out, 0, assign.ReasonSuppressed)
		if out.Sources[0].Assignment != first.Sources[0].Assignment {
			t.Errorf("target %v: a move below a point was published", target)
		}
	}
	in.Sources[0].Target = []float64{0.511, 0.489} // small moves add up
	wantShares(t, decide(t, then(in, out)), 0, 51.1, 48.9)
}

func TestALoadThatChangesMuchIsNotSuppressed(t *testing.T) {
	in := input([]assign.Site{site(east, 1000), site(west, 10)}, source(east, 500, []float64{0, 80}, 0.989, 0.011))
	out := decide(t, in)
	in.Sources[0].Target = []float64{0.988, 0.012} // half a request/s, 5% of west
	wantShares(t, decide(t, then(in, out)), 0, 98.8, 1.2)
}

func TestSuppressionEndsWhileASiteIsOverItsLimit(t *testing.T) {
	in := input(twoSites(), source(east, 1000, []float64{0, 80}, 0.8, 0.2))
	out := decide(t, in)
	in.Sources[0].Demand = 1005 // 4 requests/s above the limit
	in.Sources[0].Target = []float64{800.0 / 1005, 205.0 / 1005}
	for tick := 1; tick <= 3; tick++ {
		out = decide(t, then(in, out))
		if moved := out.Load[0] <= 800; moved != (tick == 3) {
			t.Errorf("tick %d: load %v", tick, out.Load)
		}
	}
}

func TestEntryAndExit(t *testing.T) {
	in := input(twoSites(), source(east, 500, []float64{0, 80}, 0.992, 0.008))
	out := decide(t, in)
	wantShares(t, out, 0, 100, 0)
	wantReason(t, out, 0, assign.ReasonEntry)

	in.Sources[0].Target = []float64{0.985, 0.015}
	out = decide(t, then(in, out))
	wantShares(t, out, 0, 98.5, 1.5)

	in.Sources[0].Target = []float64{1, 0}
	for tick, want := range []float64{0.5, 0.5, 0} {
		out = decide(t, then(in, out))
		wantShares(t, out, 0, 100-want, want)
		if tick < 2 {
			want := fmt.Sprintf("would get less than 0.5%% of the requests, for %d of 3 decisions so far; then it gets none", tick+1)
			if got := reason(&out.Sources[0], assign.ReasonExit); got != want {
				t.Errorf("decision %d: reason %q, want %q", tick+1, got, want)
			}
		}
	}
}

// The ceiling goes before the entry threshold.
func TestASmallShareEntersWhenNobodyElseHasRoom(t *testing.T) {
	in := input([]assign.Site{site(east, 12_400), site(west, 100)}, source(east, 9_980, []float64{0, 80}, 9_920.0/9_980, 60.0/9_980))
	wantShares(t, decide(t, in), 0, 99.4, 0.6)
}

func TestModes(t *testing.T) {
	sites := []assign.Site{site(east, 1000), site(eastB, 500), site(west, 1000)}
	in := input(sites, source(east, 700, []float64{0, 0, 80}, 0.2, 0.2, 0.6))
	in.Service.Mode = isobar.ModeObserve
	out := decide(t, in)
	wantShares(t, out, 0, 50, 50, 0) // ties by endpoints, whatever they can serve
	wantReason(t, out, 0, assign.ReasonBaseline)

	in.Service.Mode = isobar.ModeBounded
	out = decide(t, in)
	wantShares(t, out, 0, 40, 40, 20)
	wantReason(t, out, 0, assign.ReasonBounded)

	in.Service.MaxShift = 7.5
	wantShares(t, decide(t, in), 0, 46.25, 46.25, 7.5)
}

func TestSourcesWithoutDemand(t *testing.T) {
	sites := []assign.Site{site(east, 1000), site(eastB, 500), site(west, 1000)}
	busy := source(east, 400, []float64{0, 1, 80}, 1, 0, 0)
	idle := source(eastB, 0, []float64{1, 0, 80})
	in := input(sites, busy, idle)
	in.Prices = []float64{0, 0.5, 0}
	out := decide(t, in)
	wantShares(t, out, 1, 50, 50, 0) // 400 requests/s of headroom each
	wantReason(t, out, 1, assign.ReasonNoDemand)

	in.Prices = []float64{0, 3, 0}
	wantShares(t, decide(t, in), 1, 100, 0, 0)

	in.Prices = nil
	in.Sources = []assign.Source{idle}
	out = decide(t, in)
	wantShares(t, out, 0, 0, 100, 0)
	wantReason(t, out, 0, assign.ReasonBaseline)
}

func TestAClientWithoutLocalityGoesByHeadroom(t *testing.T) {
	for _, demand := range []float64{0, 100} {
		in := input(twoSites(),
			source(isobar.Locality{}, demand, nil, 1, 0),
			source(east, 600, []float64{0, 80}, 1, 0))
		if demand == 0 {
			in.Sources[0].Target = nil
		}
		wantShares(t, decide(t, in), 0, 20, 80)
	}
}

func TestForNewSourceIsWhatTheNextAssignGives(t *testing.T) {
	sites := []assign.Site{site(east, 1000), site(eastB, 500), site(west, 1000)}
	for _, mode := range []isobar.Mode{isobar.ModeFull, isobar.ModeBounded, isobar.ModeObserve} {
		in := input(sites, source(east, 700, []float64{0, 0.5, 80}, 0.5, 0.3, 0.2))
		in.Service.Mode = mode
		in.Prices = []float64{0.3, 0.2, 0}
		out := decide(t, in)
		distance := []float64{1, 0.2, 75}
		now := assign.ForNewSource(out, in.Prices, assign.Source{Locality: eastB, Distance: distance})
		in.Sources = append(in.Sources, source(eastB, 0, distance))
		wantEqual(t, decide(t, then(in, out)).Sources[1].Assignment, now)
		if got := assign.ForNewSource(out, in.Prices, assign.Source{Locality: east}); got != out.Sources[0].Assignment {
			t.Error("a known source did not get its own assignment")
		}
		if got := assign.ForNewSource(out, nil, assign.Source{}); len(tiers(got)[0]) == 0 {
			t.Error("a client without a locality got nothing")
		}
	}
	if assign.ForNewSource(nil, nil, assign.Source{Locality: east}) != nil {
		t.Error("no result gave an assignment")
	}
}
