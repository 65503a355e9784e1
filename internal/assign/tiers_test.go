package assign_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

// tierFleet is a source at home in east, and two other zones of its region that
// carry their own traffic.
func tierFleet(b, c float64) assign.Input {
	eastC := isobar.MustLocality("east/c")
	return input([]assign.Site{site(east, 1000), site(eastB, 1000), site(eastC, 1000)},
		source(east, 400, []float64{0, 1, 1}, 1, 0, 0),
		source(eastB, b, []float64{1, 0, 1}, 0, 1, 0),
		source(eastC, c, []float64{1, 1, 0}, 0, 0, 1))
}

func tierWeights(a *isobar.Assignment, tier int) []uint32 {
	var out []uint32
	for _, lw := range a.Priorities[tier] {
		out = append(out, lw.Weight)
	}
	return out
}

func TestTiersAreSplitByHeadroom(t *testing.T) {
	for _, row := range []struct {
		b, c float64 // limits are 800
		want []uint32
	}{
		{400, 400, []uint32{500, 500}},
		{600, 200, []uint32{250, 750}},
		{799.9, 799.7, []uint32{500, 500}}, // what is left of full zones is noise
		{800, 440, []uint32{100, 900}},
	} {
		out := decide(t, tierFleet(row.b, row.c))
		if got := tierWeights(out.Sources[0].Assignment, 1); !slices.Equal(got, row.want) {
			t.Errorf("%v and %v of 800 requests/s: weights %v, want %v", row.b, row.c, got, row.want)
		}
	}
}

// A failover tier alone is no reason for a push, unless it is far off or its
// members change.
func TestTiersStayWhileNothingElseChanges(t *testing.T) {
	first := decide(t, tierFleet(799.8, 799.9))
	for _, row := range []struct {
		name string
		next assign.Input
		same bool
		want []uint32
	}{
		{"a hair less", tierFleet(799.9, 799.6), true, []uint32{500, 500}},
		{"a few points", tierFleet(790, 740), true, []uint32{500, 500}},
		{"far off", tierFleet(800, 300), false, []uint32{74, 926}},
	} {
		out := decide(t, then(row.next, first))
		a := out.Sources[0].Assignment
		if (a == first.Sources[0].Assignment) != row.same || !slices.Equal(tierWeights(a, 1), row.want) {
			t.Errorf("%s: weights %v, the same assignment: %v", row.name, tierWeights(a, 1), a == first.Sources[0].Assignment)
		}
	}
	// Other endpoints, and with them another limit: clients get a new answer
	// anyway, so it is a fresh one.
	in := tierFleet(400, 400)
	in.Sites[1] = site(eastB, 1000, isobar.Healthy, isobar.Healthy, isobar.Unhealthy)
	out := decide(t, then(in, decide(t, tierFleet(400, 400))))
	if got := tierWeights(out.Sources[0].Assignment, 1); !slices.Equal(got, []uint32{250, 750}) {
		t.Errorf("after a loss of endpoints: weights %v", got)
	}
}

// waterfall is a stand-in for the solver: the nearest pairs first, ceilings and
// bars kept, all ceilings raised alike until it fits.
func waterfall(sites []assign.Site, sources []assign.Source, maxShed float64) (prices []float64, shed float64) {
	demand, headroom := 0.0, 0.0
	for _, s := range sources {
		demand += s.Demand
	}
	limits := make([]float64, len(sites))
	for i := range sites {
		sites[i].Scale = 1
		limits[i] = sites[i].Limit()
		headroom += limits[i]
	}
	if demand <= 0 || headroom <= 0 {
		return nil, 0
	}
	if demand > headroom {
		shed = min(maxShed, 1-headroom/demand)
	}
	factor := max(1, demand*(1-shed)/headroom*(1+1e-9))
	for !pour(sites, sources, limits, factor, shed) {
		factor *= 1.05
	}
	prices = make([]float64, len(sites))
	for l := range prices {
		load := 0.0
		for _, s := range sources {
			if s.Target != nil {
				load += s.Demand * (1 - shed) * s.Target[l]
			}
		}
		prices[l] = 5 * load / max(1, factor*limits[l])
		if s := &sites[l]; s.Capacity > 0 && factor > 1 && limits[l] > 0 {
			// The limit has unmanaged load taken off, so the factor is worked out on it.
			s.Scale = (limits[l]*factor*(1+1e-9) + s.Unmanaged) / (s.Ceiling * s.Capacity)
		}
	}
	return prices, shed
}

func pour(sites []assign.Site, sources []assign.Source, limits []float64, factor, shed float64) bool {
	type pair struct {
		s, l int
		ms   float64
	}
	var pairs []pair
	left := make([]float64, len(sources))
	free := make([]float64, len(sites))
	for l := range free {
		free[l] = limits[l] * factor
	}
	for i := range sources {
		s := &sources[i]
		if s.Target = nil; s.Demand > 0 {
			left[i] = s.Demand * (1 - shed)
			s.Target = make([]float64, len(sites))
		}
		barred := false // bars that leave nothing do not count
		for l := range sites {
			barred = barred || (limits[l] > 0 && !s.Barred[l] && !closed(s, l))
		}
		some := false
		for l := range sites {
			if (!barred || !s.Barred[l]) && !closed(s, l) {
				pairs = append(pairs, pair{i, l, s.Distance[l]})
				some = some || limits[l] > 0
			}
		}
		if !some {
			s.Target, left[i] = nil, 0 // it can't go anywhere
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(a.ms, b.ms) })
	for _, p := range pairs {
		if x := min(left[p.s], free[p.l]); x > 0 {
			left[p.s] -= x
			free[p.l] -= x
			sources[p.s].Target[p.l] += x / (sources[p.s].Demand * (1 - shed))
		}
	}
	for i := range sources {
		if left[i] > 1e-9*sources[i].Demand {
			return false
		}
		normalise(sources[i].Target)
	}
	return true
}

func closed(s *assign.Source, l int) bool {
	return (s.Forbidden != nil && s.Forbidden[l]) || (s.Reserve != nil && s.Reserve[l])
}

func normalise(v []float64) {
	t := 0.0
	for _, x := range v {
		t += x
	}
	for i := range v {
		v[i] /= t
	}
}

// What two sources lose at once is not put twice into the same headroom: the nearer
// one fills it, and what of the other no longer fits goes on to the next.
func TestHeadroomIsTakenOnce(t *testing.T) {
	fromEast, fromAsia := []float64{0, 1, 80}, []float64{5, 6, 90}
	in := input([]assign.Site{site(east, 1000), site(eastB, 150), site(west, 1000)},
		source(asia, 100, fromAsia, 1, 0, 0), source(east, 100, fromEast, 1, 0, 0))
	out := decide(t, in)
	in = then(in, out)
	in.Trigger = assign.Reapply
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
