package assign_test

import (
	"reflect"
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
