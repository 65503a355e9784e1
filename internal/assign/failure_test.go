package assign_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/assign"
)

func wantEqual(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestAFailureMovesToTheNearestHeadroomAtOnce(t *testing.T) {
	sites := []assign.Site{site(east, 1000), site(eastB, 500), site(west, 1000)}
	in := input(sites, source(east, 700, []float64{0, 1, 80}, 0.9, 0.1, 0))
	out := decide(t, in)
	for _, trigger := range []assign.Trigger{assign.Reapply, assign.Tick} {
		in := then(in, out)
		in.Trigger = trigger
		in.Sites = []assign.Site{site(east, 1000, isobar.Unhealthy, isobar.Unhealthy), sites[1], sites[2]}
		in.Sources = []assign.Source{source(east, 700, []float64{0, 1, 80}, 0, 400.0/700, 300.0/700)}
		got := decide(t, in)
		wantShares(t, got, 0, 0, 57.14, 42.86) // eastB up to its limit of 400
		wantReason(t, got, 0, assign.ReasonUnhealthy)
	}
}

func TestWhatVanishedIsPlacedToo(t *testing.T) {
	in := input(twoSites(), source(east, 500, []float64{0, 80}, 0.7, 0.3))
	out := decide(t, in)
	in = input([]assign.Site{site(west, 1000)}, source(east, 500, []float64{80}, 1))
	in.Trigger = assign.Reapply
	wantShares(t, decide(t, then(in, out)), 0, 100)
}

// TestAFailureIsNotToldAsWantOfDemand: between two decisions a source with demand
// has no target, and nothing but what failed is moved.
func TestAFailureIsNotToldAsWantOfDemand(t *testing.T) {
	in := input(twoSites(), source(east, 500, []float64{0, 80}, 0.7, 0.3))
	out := decide(t, in)
	in.Sites = []assign.Site{site(east, 1000), site(west, 1000, isobar.Unhealthy)}
	in.Sources[0].Target = nil
	in.Trigger = assign.Reapply
	out = decide(t, then(in, out))
	wantShares(t, out, 0, 100, 0)
	wantReason(t, out, 0, assign.ReasonUnhealthy)
	if text := reason(&out.Sources[0], assign.ReasonNoDemand); text != "" {
		t.Errorf("a source with demand is told %q", text)
	}
	// One that is new is answered by prices, and told so.
	in.Sources = append(in.Sources, source(eastB, 100, []float64{1, 80}))
	in.Sites = twoSites()
	out = decide(t, then(in, out))
	if text := reason(&out.Sources[1], assign.ReasonNoDemand); !strings.HasPrefix(text, "nothing was solved for this source yet") {
		t.Errorf("a new source with demand is told %q", text)
	}
}

func TestASiteThatCameBackWaitsForTheTick(t *testing.T) {
	down := []assign.Site{site(east, 1000, isobar.Unhealthy), site(west, 1000)}
	in := input(down, source(east, 500, []float64{0, 80}, 0, 1))
	out := decide(t, in)
	wantTiers(t, out.Sources[0].Assignment, []isobar.Locality{west}, []isobar.Locality{east})
	in = input(twoSites(), source(east, 500, []float64{0, 80}, 1, 0))
	in.Trigger = assign.Reapply
	out = decide(t, then(in, out))
	wantShares(t, out, 0, 0, 100)
	in.Trigger = assign.Tick
	wantShares(t, decide(t, then(in, out)), 0, 10, 90)
}

func TestLostEndpointsShedWhatIsTooMuch(t *testing.T) {
	in := input(twoSites(), source(east, 700, []float64{0, 80}, 1, 0))
	out := decide(t, in)
	in.Sites = []assign.Site{site(east, 1000, isobar.Healthy, isobar.Unhealthy), site(west, 1000)}
	in.Trigger = assign.Reapply
	out = decide(t, then(in, out))
	wantShares(t, out, 0, 57.14, 42.86)
	if f := out.Sources[0].Assignment.OverprovisioningFactor; f != 200 {
		t.Errorf("overprovisioning factor %d, want 200: 1 of 2 endpoints is healthy", f)
	}
	// Within its limit a site keeps its share.
	in.Sources[0].Demand = 300
	wantShares(t, decide(t, then(in, out)), 0, 57.14, 42.86)
}

func TestOverprovisioningFactor(t *testing.T) {
	h, u := isobar.Healthy, isobar.Unhealthy
	for _, row := range []struct {
		health []isobar.HealthStatus
		want   uint32
	}{
		{[]isobar.HealthStatus{h, h, h}, 140},
		{[]isobar.HealthStatus{h, h, h, u}, 140},
		{[]isobar.HealthStatus{h, h, u}, 150},
		{[]isobar.HealthStatus{h, u, u}, 300},
		{[]isobar.HealthStatus{h, h, h, u, u, isobar.Draining, isobar.Degraded}, 200},
	} {
		in := input([]assign.Site{site(east, 1000, row.health...), site(west, 1000)}, source(east, 200, []float64{0, 80}, 0.5, 0.5))
		a := decide(t, in).Sources[0].Assignment
		if a.OverprovisioningFactor != row.want {
			t.Errorf("%v: factor %d, want %d", row.health, a.OverprovisioningFactor, row.want)
		}
		for _, kind := range []dataplane.Kind{dataplane.Envoy, dataplane.GRPC} {
			if got := realised(a, kind, east); got < 49.9 || got > 50.1 {
				t.Errorf("%v: %s sends %.1f points, want 50", row.health, kind, got)
			}
		}
	}
}

func TestFailOpen(t *testing.T) {
	in := input(twoSites(), source(east, 500, []float64{0, 80}, 0.7, 0.3))
	before := decide(t, in)
	u, d := isobar.Unhealthy, isobar.Draining
	in.Sites = []assign.Site{site(east, 1000, u, d), site(west, 1000, isobar.Timeout)}
	in.Sources[0].Target, in.Prices = nil, nil
	for _, trigger := range []assign.Trigger{assign.Reapply, assign.Tick} {
		in := then(in, before)
		in.Trigger = trigger
		out := decide(t, in)
		wantShares(t, out, 0, 70, 30)
		wantReason(t, out, 0, assign.ReasonFailOpen)
		a := out.Sources[0].Assignment
		for _, kind := range []dataplane.Kind{dataplane.Envoy, dataplane.GRPC} {
			if got := realised(a, kind, east); got < 69 || got > 71 {
				t.Errorf("%s sends %.1f points to east, want 70", kind, got)
			}
		}
		if h := out.Sites[0].Group.Endpoints[0].Health; h != u {
			t.Errorf("the health as told became %s", h)
		}
		if h := out.Groups[0].Endpoints[1].Health; h != d {
			t.Errorf("a draining endpoint became %s though others can be tried", h)
		}
	}
	// What is degraded at least answers.
	in.Sites = []assign.Site{site(east, 1000, u), site(west, 1000, isobar.Degraded)}
	wantShares(t, decide(t, then(in, before)), 0, 0, 100)
	// Only draining ones are left.
	in.Sites = []assign.Site{site(east, 1000, d), site(west, 1000, d)}
	wantShares(t, decide(t, then(in, before)), 0, 70, 30)
}

func TestNoEndpointsAtAll(t *testing.T) {
	empty := assign.Site{Group: &isobar.EndpointGroup{Locality: east}, Ceiling: 0.8, Scale: 1}
	for _, sites := range [][]assign.Site{nil, {empty}} {
		out := decide(t, input(sites, source(east, 10, make([]float64, len(sites)))))
		if n := len(out.Sources[0].Assignment.Priorities); n != 0 {
			t.Errorf("%d priorities without endpoints", n)
		}
		// Endpoints that come are used at once.
		in := input(twoSites(), source(east, 500, []float64{0, 80}, 0.7, 0.3))
		in.Trigger = assign.Reapply
		wantShares(t, decide(t, then(in, out)), 0, 70, 30)
	}
}

func TestHold(t *testing.T) {
	in := input(twoSites(), source(east, 500, []float64{0, 80}, 1, 0))
	out := decide(t, in)
	in.Hold = "coverage 40%"
	in.Sources[0].Target = []float64{0.2, 0.8}
	got := decide(t, then(in, out))
	wantShares(t, got, 0, 100, 0)
	wantReason(t, got, 0, assign.ReasonHold)
	if got.Sources[0].Assignment != out.Sources[0].Assignment {
		t.Error("a held assignment changed")
	}
	in.Sites = []assign.Site{site(east, 1000, isobar.Unhealthy), site(west, 1000)}
	wantShares(t, decide(t, then(in, out)), 0, 0, 100)
}

// Plain failover ignores capacity; a bound around it is kept as far as it goes.
func TestFailuresInOtherModes(t *testing.T) {
	sites := func(health isobar.HealthStatus) []assign.Site {
		return []assign.Site{site(east, 1000, health), site(eastB, 500), site(west, 1000)}
	}
	for _, row := range []struct {
		mode isobar.Mode
		want []float64
	}{
		{isobar.ModeObserve, []float64{0, 100, 0}},
		{isobar.ModeBounded, []float64{0, 80, 20}}, // eastB has headroom for 50 points
		{isobar.ModeFull, []float64{0, 50, 50}},
	} {
		in := input(sites(isobar.Healthy), source(east, 800, []float64{0, 1, 80}, 1, 0, 0))
		in.Service.Mode = row.mode
		out := decide(t, in)
		wantShares(t, out, 0, 100, 0, 0)
		in.Sites, in.Trigger = sites(isobar.Unhealthy), assign.Reapply
		wantShares(t, decide(t, then(in, out)), 0, row.want...)
	}
}

// What a failure sets free and a source that is new in the same turn do not
// take the same headroom.
func TestFailuresLeaveHeadroomForNewSources(t *testing.T) {
	near := []float64{0, 1, 2}
	for _, row := range []struct {
		name  string
		fails assign.Site
		home  assign.Source
		fresh assign.Source
		want  []float64 // load
	}{
		{"a zone dies", site(east, 1000, isobar.Unhealthy), source(east, 800, near, 0, 0.5, 0.5), source(eastB, 400, []float64{1, 0, 2}, 0, 1, 0), []float64{0, 800, 400}},
		{"a zone loses half", site(east, 1000, isobar.Healthy, isobar.Unhealthy), source(east, 800, near, 0.5, 0.25, 0.25), source(eastB, 600, []float64{1, 0, 2}, 0, 1, 0), []float64{400, 800, 200}},
		{"the new one was not solved", site(east, 1000, isobar.Unhealthy), source(east, 800, near, 0, 0.5, 0.5), source(eastB, 400, []float64{1, 0, 2}), []float64{0, 800, 400}},
	} {
		for _, trigger := range []assign.Trigger{assign.Tick, assign.Reapply} {
			in := input([]assign.Site{site(east, 1000), site(eastB, 1000), site(west, 1000)}, source(east, 800, near, 1, 0, 0))
			before := decide(t, in)
			in.Trigger, in.Sites = trigger, []assign.Site{row.fails, in.Sites[1], in.Sites[2]}
			in.Sources = []assign.Source{row.home, row.fresh}
			out := decide(t, then(in, before))
			for l, y := range out.Load {
				if math.Abs(y-row.want[l]) > 1 {
					t.Errorf("%s, trigger %d: loads %.0f, want %.0f", row.name, trigger, out.Load, row.want)
					break
				}
			}
		}
	}
}
