package plan_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// alter gives a value another content; false for what has none that it knows of.
func alter(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(v.Float() + 0.25)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Slice:
		fresh := reflect.MakeSlice(v.Type(), v.Len(), v.Len()+1)
		reflect.Copy(fresh, v)
		if v.Len() == 0 {
			fresh = reflect.Append(fresh, reflect.Zero(v.Type().Elem()))
		}
		v.Set(fresh)
	case reflect.Map:
		fresh := reflect.MakeMap(v.Type())
		fresh.SetMapIndex(reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem())
		v.Set(fresh)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		return v.NumField() > 0 && alter(v.Field(0))
	default:
		return false
	}
	return true
}

// A reapplication leaves alone what nothing concerns. A reload that changes any one
// field of a service concerns it, whichever field that is.
func TestEveryFieldOfAServiceIsTakenUp(t *testing.T) {
	top := threeZones(t)
	before := ticks(t, top, 2, map[string]float64{"us/a": 300})
	reapply := func(change func(s *isobar.Service)) *plan.Service {
		next := *top
		next.Revision++
		next.Services = []isobar.Service{top.Services[0]}
		change(&next.Services[0])
		p, err := plan.Next(plan.Input{Now: before.Made.Add(5), Trigger: assign.Reapply, Topology: &next, Previous: before, Version: before.Version + 1})
		if err != nil {
			t.Fatal(err)
		}
		s, _ := p.Service("checkout")
		return s
	}
	was, _ := before.Service("checkout")
	if is := reapply(func(*isobar.Service) {}); is != was {
		t.Error("a service that nothing concerns was planned anew")
	}
	fields := reflect.TypeFor[isobar.Service]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if name == "Name" {
			continue // then it is another service
		}
		is := reapply(func(s *isobar.Service) {
			if !alter(reflect.ValueOf(s).Elem().Field(i)) {
				t.Errorf("this test does not know how to change %s", name)
			}
		})
		if is == was {
			t.Errorf("a change of %s went unseen", name)
		}
	}
}

// A source that begins to watch is in the plan at once, and moves with it.
func TestANewSourceIsInTheNextPlan(t *testing.T) {
	top := threeZones(t)
	before := ticks(t, top, 2, map[string]float64{"us/a": 300})
	p, err := plan.Next(plan.Input{
		Now: before.Made.Add(5), Trigger: assign.Reapply, Topology: top, Previous: before, Version: before.Version + 1,
		Subscribed: []load.Subscription{{Service: "checkout", Source: loc("eu/a")}, {Service: "checkout", Source: loc("us/a")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := p.Service("checkout"); s.Result.Source(loc("eu/a")) == nil {
		t.Error("the new source has no part in the plan")
	}
}

// Tiers depend on what was before, so they are saved: a restart pushes no other
// weights for failover.
func TestTiersOutliveARestart(t *testing.T) {
	top := threeZones(t)
	before := ticks(t, top, 3, map[string]float64{"us/a": 300, "us/b": 100, "eu/a": 100})
	now := before.Made.Add(5)
	before, err := plan.Next(plan.Input{
		Now: now, Trigger: assign.Tick, Topology: top, Previous: before, Version: before.Version + 1,
		Load: demand(now, "checkout", map[string]float64{"us/a": 400, "us/b": 100, "eu/a": 100}),
	})
	if err != nil {
		t.Fatal(err)
	}
	saved := before.Save()
	after, err := plan.Restore(&saved, top, health.Table{}, now, before.Version+1)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"us/a", "us/b", "eu/a"} {
		was, is := before.Assignment("checkout", loc(from)).Priorities, after.Assignment("checkout", loc(from)).Priorities
		for p := range was {
			for k := range was[p] {
				if x, y := was[p][k], is[p][k]; x.Locality != y.Locality || x.Weight != y.Weight {
					t.Errorf("from %s, priority %d: %s with %d, after a restart %s with %d", from, p, x.Locality, x.Weight, y.Locality, y.Weight)
				}
			}
		}
	}
}

// TestAReplacedEndpointIsPublished: a Pod that replaces another one leaves the number of endpoints as it was.
func TestAReplacedEndpointIsPublished(t *testing.T) {
	top := threeZones(t)
	before := ticks(t, top, 2, map[string]float64{"us/a": 300})
	next := *top
	next.Revision++
	next.Services = []isobar.Service{top.Services[0]}
	next.Services[0].Localities = slices.Clone(top.Services[0].Localities)
	at := slices.IndexFunc(next.Services[0].Localities, func(l isobar.ServiceLocality) bool { return l.Locality == loc("us/a") })
	next.Services[0].Localities[at].Endpoints = endpoints("10.0.0.1:80", "10.0.0.9:80")
	for _, trigger := range []assign.Trigger{assign.Reapply, assign.Tick} {
		p, err := plan.Next(plan.Input{Now: before.Made.Add(5), Trigger: trigger, Topology: &next, Previous: before, Version: before.Version + 1})
		if err != nil {
			t.Fatal(err)
		}
		tier := p.Assignment("checkout", loc("us/a")).Priorities[0]
		if got := tier[0].Endpoints[1].Address; tier[0].Locality != loc("us/a") || got != "10.0.0.9:80" || len(p.Violations) > 0 {
			t.Errorf("clients get %s of %s, want the new endpoint; violations %v", got, tier[0].Locality, p.Violations)
		}
	}
}
