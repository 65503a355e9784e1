package assign_test

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// TestCheckFindsNothing drives random worlds through random changes: 100 worlds
// of 25 decisions each.
func TestCheckFindsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range 25 {
			w.change(t)
			w.settle()
			prev := w.prev
			in, out, bad := w.next()
			for _, v := range bad {
				t.Errorf("%s from %q: %s", v.Rule, v.Source, v.Text)
			}
			if len(bad) > 0 {
				dump(t, in, prev, out)
				t.FailNow()
			}
			again := assign.Assign(in)
			if !reflect.DeepEqual(again, out) {
				t.Fatal("the same input gave another result")
			}
			shared(t, in, prev, out)
			obeyed(t, w.service.Assignment, out)
		}
	})
}

func dump(t *rapid.T, in assign.Input, prev, out *assign.Result) {
	t.Logf("mode %s, trigger %d, hold %q, shed %.3f, drop %.3f", in.Service.Mode, in.Trigger, in.Hold, in.Shed, out.Drop)
	for l, s := range in.Sites {
		t.Logf("site %s: capacity %.1f of %.1f, limit %.1f, scale %.3f, load %.1f", s.Group.Locality, s.Capacity, s.Nominal, s.Limit(), s.Scale, out.Load[l])
	}
	for i, s := range in.Sources {
		t.Logf("source %q: demand %.1f, barred %v\n was %v\n target %.4f\n want %.4f\n now %.4f\n %v", s.Locality, s.Demand, s.Barred,
			sharesOf(prev, s.Locality), s.Target, out.Sources[i].Want, out.Sources[i].Shares, out.Sources[i].Reasons)
	}
}

func sharesOf(r *assign.Result, l isobar.Locality) map[string]float64 {
	s := r.Source(l)
	if s == nil {
		return nil
	}
	m := map[string]float64{}
	for k, v := range s.Shares {
		m[r.Sites[k].Group.Locality.String()] = v
	}
	return m
}

// shared checks that what did not change is the same pointer.
func shared(t *rapid.T, in assign.Input, prev, out *assign.Result) {
	for i := range out.Sources {
		a := out.Sources[i].Assignment
		was := prev.Source(out.Sources[i].Source)
		for _, p := range a.Priorities {
			for _, lw := range p {
				found := false
				for _, g := range out.Groups {
					found = found || g == lw.EndpointGroup || (g.Equal(lw.EndpointGroup) && was != nil)
				}
				// Where only a part of the service may be used, it may fail open alone.
				if !found && in.Sources[i].Forbidden == nil {
					t.Fatalf("%s has a group of its own", lw.Locality)
				}
			}
		}
		if was != nil && was.Assignment != a && reflect.DeepEqual(was.Assignment, a) {
			t.Fatal("an assignment of equal value is another pointer")
		}
	}
}

// twinTiers sorts localities into tiers straight from the definition.
func twinTiers(in assign.Input, s assign.Source, p0 []isobar.Locality) [][]isobar.Locality {
	var good, bad []int
	for l := range in.Sites {
		site := &in.Sites[l]
		switch {
		case len(site.Group.Endpoints) == 0 || slices.Contains(p0, site.Group.Locality):
		case site.Unreachable || site.Capacity <= 0 || !site.Usable():
			bad = append(bad, l)
		default:
			good = append(good, l)
		}
	}
	region := func(l int) string { return in.Sites[l].Group.Locality.Region }
	next := ""
	if !s.Locality.IsZero() {
		best := math.Inf(1)
		for _, l := range good {
			if region(l) != s.Locality.Region && s.Distance[l] < best {
				best, next = s.Distance[l], region(l)
			}
		}
	}
	tiers := make([][]isobar.Locality, 4)
	tiers[0] = p0
	for l := range in.Sites {
		at := in.Sites[l].Group.Locality
		switch {
		case slices.Contains(bad, l):
			tiers[3] = append(tiers[3], at)
		case !slices.Contains(good, l):
		case s.Locality.IsZero():
			tiers[3] = append(tiers[3], at)
		case at.Region == s.Locality.Region:
			tiers[1] = append(tiers[1], at)
		case at.Region == next:
			tiers[2] = append(tiers[2], at)
		default:
			tiers[3] = append(tiers[3], at)
		}
	}
	return slices.DeleteFunc(tiers, func(ls []isobar.Locality) bool { return len(ls) == 0 })
}

func TestTiersMatchTheDumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range 5 {
			w.change(t)
			w.settle()
			in, out, _ := w.next()
			if !slices.ContainsFunc(in.Sites, func(s assign.Site) bool { return s.Capacity > 0 }) {
				continue // another order of things
			}
			for i, s := range in.Sources {
				if slices.Contains(s.Barred, true) || s.Forbidden != nil {
					continue
				}
				a := out.Sources[i].Assignment
				got := tiers(a)
				if want := twinTiers(in, s, got[0]); !slices.EqualFunc(got, want, slices.Equal[[]isobar.Locality]) {
					t.Fatalf("from %q: %v, want %v", s.Locality, got, want)
				}
			}
		}
	})
}

// twinRound tries every way to round the shares to multiples of 1/10,000 by at
// most one step each, and returns the least sum of squared errors.
func twinRound(shares []float64) float64 {
	best := math.Inf(1)
	for pick := range 1 << len(shares) {
		units, miss := 0, 0.0
		for l, v := range shares {
			u := int(math.Floor(v*isobar.WeightScale + 1e-6))
			if pick&(1<<l) != 0 {
				u++
			}
			units += u
			e := float64(u) - v*isobar.WeightScale
			miss += e * e
		}
		if units == isobar.WeightScale {
			best = min(best, miss)
		}
	}
	return best
}

func TestRoundingMatchesTheDumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "sites")
		shares := make([]float64, n)
		var sites []assign.Site
		for l := range shares {
			shares[l] = rapid.Float64Range(0.1, 1).Draw(t, "share")
			sites = append(sites, site(isobar.Locality{Region: "r", Zone: string(rune('a' + l))}, 1e6))
		}
		normalise(shares)
		out := assign.Assign(input(sites, source(east, 100, make([]float64, n), shares...)))
		miss := 0.0
		for l, v := range out.Sources[0].Shares {
			e := (v - shares[l]) * isobar.WeightScale
			miss += e * e
		}
		if want := twinRound(shares); miss > want+1e-6 {
			t.Fatalf("%v rounded to %v: squared error %v, the twin has %v", shares, out.Sources[0].Shares, miss, want)
		}
	})
}

// A unit more never takes a site above its limit while another has headroom.
func TestRoundingKeepsCeilings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		demand := rapid.Float64Range(10, 1e6).Draw(t, "demand")
		full := rapid.Float64Range(0.1, 0.3).Draw(t, "first")
		brim := rapid.Float64Range(0.1, 0.3).Draw(t, "second")
		sites := []assign.Site{site(east, full*demand/0.8), site(eastB, brim*demand/0.8), site(west, 2*demand)}
		out := assign.Assign(input(sites, source(east, demand, []float64{0, 1, 80}, full, brim, 1-full-brim)))
		for l, y := range out.Load {
			if limit := out.Sites[l].Limit(); y > limit*(1+1e-9) {
				t.Fatalf("%s carries %v, its limit is %v", out.Sites[l].Group.Locality, y, limit)
			}
		}
	})
}
