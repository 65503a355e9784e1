package assign_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
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
			const want = "10.0% of the requests moved toward west/a, and the next decisions move another 27.5%"
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

// A site that clients choose by themselves stays in priority 0, also if it is full: the
// requests that they send there would go to the others. It leaves once they do not.
func TestChosenSitesStay(t *testing.T) {
	sites := twoSites()
	in := input(sites, source(east, 700, []float64{0, 80}, 0.9, 0.1))
	out := decide(t, in)
	in.Sites[1].Unmanaged = 900 // above its limit of 800
	in.Sources[0].Target, in.Sources[0].Chosen = []float64{1, 0}, []bool{false, true}
	for range 20 {
		out = decide(t, then(in, out))
	}
	wantShares(t, out, 0, 99.9, 0.1)
	wantReason(t, out, 0, assign.ReasonExit)
	in.Sources[0].Chosen = nil
	out = decide(t, then(in, out))
	wantShares(t, out, 0, 100, 0)
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
// far as there is headroom.
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
func TestASmallShareEntersWithoutHeadroomElsewhere(t *testing.T) {
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

// A share does not rise above the most that the source may get, and what that
// frees stays where it was.
func TestSharesAreHeldBack(t *testing.T) {
	in := input([]assign.Site{site(east, 1000), site(eastB, 1000), site(west, 1000)}, source(east, 300, []float64{0, 1, 80}, 0.4, 0.4, 0.2))
	out := decide(t, in)
	in.Sources[0].Target = []float64{0.45, 0.35, 0.2}
	in.Sources[0].Most = []float64{0.4, 1, 1}
	out = decide(t, then(in, out))
	wantShares(t, out, 0, 40, 40, 20)
	wantReason(t, out, 0, assign.ReasonHeld)
	// What has to leave leaves, to where it may go.
	in.Sources[0].Target = []float64{0.45, 0.55, 0}
	out = decide(t, then(in, out))
	wantShares(t, out, 0, 40, 50, 10)
	// Where nothing else is left, it does not count.
	alone := input([]assign.Site{site(east, 1000), site(west, 1000)}, source(east, 300, []float64{0, 80}, 0.5, 0.5))
	was := decide(t, alone)
	alone.Sites[1].Capacity, alone.Sites[1].Unreachable = 0, true
	alone.Sources[0].Target, alone.Sources[0].Most = []float64{1, 0}, []float64{0.5, 1}
	wantShares(t, decide(t, then(alone, was)), 0, 99, 1)
}

// What comes back after an outage is bound by the most alone, not by the step of a
// tick; and only in mode full.
func TestSharesComeBack(t *testing.T) {
	in := input([]assign.Site{site(east, 1000), site(west, 1000)}, source(east, 300, []float64{0, 80}, 0.01, 0.99))
	start := decide(t, in)
	in.Sources[0].Target, in.Sources[0].Back = []float64{1, 0}, []bool{true, false}
	out := start
	for _, most := range []float64{0.25, 0.5, 1} {
		in.Sources[0].Most = []float64{most, 1}
		out = decide(t, then(in, out))
		share := min(99.5, 100*most) // what is left of the other leaves in the end
		wantShares(t, out, 0, share, 100-share)
	}
	in.Sources[0].Back = nil
	wantShares(t, decide(t, then(in, start)), 0, 11, 89)
	in.Sources[0].Back = []bool{true, false}
	in.Service.Mode, in.Service.MaxShift = isobar.ModeBounded, 100
	wantShares(t, decide(t, then(in, start)), 0, 11, 89)
}

// What is too little to enter stays where it is, if there is headroom; else it
// enters, and the reasons say so.
func TestSmallSharesEnterOnlyWithoutHeadroomElsewhere(t *testing.T) {
	for _, row := range []struct {
		name     string
		headroom float64 // of the site in use, above its load
		shares   []float64
		full     bool
	}{
		{"room", 10, []float64{100, 0}, false},
		{"full", 0, []float64{99.4, 0.6}, true},
	} {
		in := input([]assign.Site{site(east, (994+row.headroom)/0.8), site(west, 1000)}, source(east, 1000, []float64{0, 80}, 0.994, 0.006))
		out := decide(t, in)
		wantShares(t, out, 0, row.shares...)
		if got := reason(&out.Sources[0], assign.ReasonFull); (got != "") != row.full || row.full && !strings.Contains(got, " enter 1 locality, less than 1%:") {
			t.Errorf("%s: reasons %v", row.name, out.Sources[0].Reasons)
		}
		out.Sources[0].Reasons = nil
		if found := invariant.Check(nil, out, checkInput(in)); (len(found) > 0) != row.full {
			t.Errorf("%s: without the reason: %v", row.name, found)
		}
	}
}

// Forty edge zones of which none gets half a point relieve a core that is too
// full for its demand: nobody else has headroom, so each enters with what it gets.
func TestManySmallSitesRelieveAFullOne(t *testing.T) {
	sites, distance, target := []assign.Site{site(east, 6000)}, []float64{0}, []float64{4800.0 / 6200}
	for i := range 40 {
		sites = append(sites, site(isobar.Locality{Region: "east", Zone: fmt.Sprintf("e%02d", i)}, 50))
		distance, target = append(distance, 5), append(target, 1400.0/6200/40)
	}
	alone := make([]float64, len(sites))
	alone[0] = 1
	out := decide(t, input(sites, source(east, 4000, distance, alone...)))
	in := input(sites, source(east, 6200, distance, target...))
	for range 4 {
		out = decide(t, then(in, out))
	}
	if most := 1.001 * sites[0].Limit(); out.Load[0] > most {
		t.Errorf("the core keeps %.1f requests/s, its limit is %.1f: %v", out.Load[0], sites[0].Limit(), out.Sources[0].Reasons)
	}
}

// TestSharesArriveWhateverWasBefore lets something happen to a random world for a
// while and then leaves it alone: nobody stays far from what is wanted, and no
// site well above what it may carry, because somebody else can't move or because
// steps are damped.
func TestSharesArriveWhateverWasBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range 12 {
			w.change(t)
			w.settle()
			w.next()
		}
		w.service.Mode, w.trigger, w.hold = isobar.ModeFull, assign.Tick, ""
		if w.isolation == "nearest" {
			w.isolation = "" // the stand-in for the solver does not see when the nearest region is too small
		}
		w.gain = rapid.SampledFrom([]float64{0, 0.25, 0.125}).Draw(t, "gain")
		var in assign.Input
		for range 60 {
			in, _, _ = w.next()
		}
		out, all, some := w.prev, 0.0, false
		want, stuck := make([]float64, len(out.Sites)), make([]float64, len(out.Sites))
		for l := range out.Sites {
			some = some || (out.Sites[l].Capacity > 0 && !out.Sites[l].Unreachable)
		}
		if !some {
			return
		}
		for i := range out.Sources {
			s := &out.Sources[i]
			all += s.Demand
			for l, v := range s.Want {
				want[l] += s.Demand * (1 - out.Drop) * v
			}
		}
		for i := range out.Sources {
			s, lacks, barred := &out.Sources[i], 0.0, 0.0
			for l, v := range s.Want {
				// Where bars make more wanted of a site than it may carry, nobody enters.
				if want[l] <= math.Max(out.Sites[l].Limit(), out.Load[l])*(1+1e-6) {
					lacks += math.Max(0, v-s.Shares[l])
				} else {
					barred += math.Max(0, v-s.Shares[l])
				}
			}
			for l, v := range s.Want { // and what can't enter there can't leave the others
				stuck[l] += s.Demand * (1 - out.Drop) * math.Min(barred, math.Max(0, s.Shares[l]-v))
			}
			// What is kept back for calm is less than a point at each site.
			if s.Demand > 0 && lacks > 0.035 {
				dumpShares(t, in, out)
				t.Fatalf("%s lacks %.1f points where it wants to be", s.Source, 100*lacks)
			}
		}
		for l, y := range out.Load {
			if limit := out.Sites[l].Limit(); y > 1.03*math.Max(limit, want[l])+stuck[l]+0.001*all {
				dumpShares(t, in, out)
				t.Fatalf("%s stays at %.2f, its limit is %.2f and %.2f are wanted there", out.Sites[l].Group.Locality, y, limit, want[l])
			}
		}
	})
}
