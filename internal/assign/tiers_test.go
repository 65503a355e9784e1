package assign_test

import (
	"slices"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
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
