package health_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// marked returns a table in which the first down[i] endpoints of zone i of a
// service are unhealthy.
func marked(spec *isobar.Service, down ...int) health.Table {
	var list []health.Override
	for i, n := range down {
		for _, e := range spec.Localities[i].Endpoints[:n] {
			list = append(list, health.Override{Key: health.Key{Service: spec.Name, Address: e.Address}, Status: isobar.Unhealthy})
		}
	}
	return health.NewTable(list)
}

func TestDrains(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name  string
		zones int
		steps []struct {
			at   time.Duration
			down []int // of 20 endpoints per zone
			want []isobar.Locality
		}
	}{
		{"below a quarter", 4, []struct {
			at   time.Duration
			down []int
			want []isobar.Locality
		}{
			{0, []int{15, 0, 0, 0}, nil}, // exactly a quarter is up
			{1 * s, []int{16, 0, 0, 0}, []isobar.Locality{zoneA}},
			{2 * s, []int{14, 0, 0, 0}, []isobar.Locality{zoneA}}, // 30% is not enough
			{3 * s, []int{13, 0, 0, 0}, []isobar.Locality{zoneA}}, // 35% is, for 60 s
			{62 * s, []int{13, 0, 0, 0}, []isobar.Locality{zoneA}},
			{63 * s, []int{13, 0, 0, 0}, nil},
		}},
		{"an interrupted recovery starts again", 4, []struct {
			at   time.Duration
			down []int
			want []isobar.Locality
		}{
			{0, []int{16}, []isobar.Locality{zoneA}},
			{1 * s, []int{0}, []isobar.Locality{zoneA}},
			{50 * s, []int{14}, []isobar.Locality{zoneA}},
			{51 * s, []int{0}, []isobar.Locality{zoneA}},
			{100 * s, []int{0}, []isobar.Locality{zoneA}},
			{111 * s, []int{0}, nil},
		}},
		{"never more than half, the sickest first", 4, []struct {
			at   time.Duration
			down []int
			want []isobar.Locality
		}{
			{0, []int{16, 17, 18, 19}, []isobar.Locality{zoneC, zoneF}},
		}},
		{"dead ones count for the half", 4, []struct {
			at   time.Duration
			down []int
			want []isobar.Locality
		}{
			{0, []int{16, 20, 20, 0}, nil},
			{1 * s, []int{16, 20, 0, 0}, []isobar.Locality{zoneA}},
			{2 * s, []int{16, 20, 20, 0}, nil},                      // released: too much is out
			{3 * s, []int{16, 20, 0, 0}, nil},                       // and not drained again at once
			{62 * s, []int{16, 20, 0, 0}, []isobar.Locality{zoneA}}, // but after 60 s
		}},
		{"a dead one is used when it comes back", 4, []struct {
			at   time.Duration
			down []int
			want []isobar.Locality
		}{
			{0, []int{20}, nil},
			{1 * s, []int{5}, nil},
		}},
		{"one of three", 3, []struct {
			at   time.Duration
			down []int
			want []isobar.Locality
		}{
			{0, []int{16, 16, 0}, []isobar.Locality{zoneA}},
		}},
		{"one of one", 1, []struct {
			at   time.Duration
			down []int
			want []isobar.Locality
		}{
			{0, []int{19}, nil},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			top := topology(service("web", 20, []isobar.Locality{zoneA, zoneB, zoneC, zoneF}[:row.zones]...))
			var d health.Drains
			for _, step := range row.steps {
				before := d.Current().Of("web")
				table := marked(&top.Services[0], step.down...)
				changed := d.Observe(start.Add(step.at), top, table)
				got := d.Current().Of("web")
				if !slices.Equal(got, step.want) || (len(changed) > 0) == slices.Equal(before, got) {
					t.Errorf("after %s: %v, changed %v; want %v", step.at, got, changed, step.want)
				}
				for _, z := range zones {
					if table.WithDrained(d.Current()).Drained("web", z) != slices.Contains(step.want, z) {
						t.Errorf("after %s: the table says something else of %s", step.at, z)
					}
				}
			}
		})
	}
}

func TestDrainsLookAtEndpointsThatStay(t *testing.T) {
	s := service("web", 10, zoneA, zoneB, zoneC)
	for i := range 9 { // a deployment
		s.Localities[0].Endpoints[i].Health = isobar.Draining
	}
	s.Localities[1].Endpoints = nil
	top := topology(s)
	var d health.Drains
	if changed := d.Observe(start, top, health.Table{}); changed != nil || d.Current().Has("web", zoneA) {
		t.Errorf("drained for endpoints that are draining: %v", d.Current().Of("web"))
	}
	same := d.Current()
	d.Observe(start.Add(time.Second), top, health.Table{})
	if d.Current() != same {
		t.Error("nothing changed, but the set did")
	}
}

func TestDrainsSurviveARestart(t *testing.T) {
	top := topology(service("web", 20, zoneA, zoneB))
	table := marked(&top.Services[0], 16)
	var d health.Drains
	d.Observe(start, top, table)
	text, err := json.Marshal(d.Save())
	if err != nil {
		t.Fatal(err)
	}
	var saved []health.SavedDrain
	if err := json.Unmarshal(text, &saved); err != nil {
		t.Fatal(err)
	}
	r := health.RestoreDrains(append(saved, saved...))
	if got := r.Current().Of("web"); len(got) != 1 || got[0] != zoneA {
		t.Fatalf("restored %v from %s", got, text)
	}
	if changed := r.Observe(start.Add(time.Hour), top, marked(&top.Services[0], 14)); len(changed) != 0 {
		t.Errorf("changed %v", changed)
	}
	if changed := r.Observe(start.Add(2*time.Hour), &isobar.Topology{}, health.Table{}); len(changed) != 1 || len(r.Save()) != 0 {
		t.Errorf("changed %v, remembers %v of a service that is gone", changed, r.Save())
	}
}

// TestDrainsAreBounded: whatever happens, at most half of a service's
// localities are drained, and none of those that are left when no other has a
// healthy endpoint.
func TestDrainsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "zones")
		top := topology(service("web", 10, zones[:n]...))
		var d health.Drains
		now := start
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 70).Draw(t, "seconds")) * time.Second)
			down := rapid.SliceOfN(rapid.SampledFrom([]int{0, 3, 6, 7, 8, 9, 10}), n, n).Draw(t, "down")
			d.Observe(now, top, marked(&top.Services[0], down...))
			drained, partly, useful, left := 0, 0, 0, 0
			for i, sl := range top.Services[0].Localities {
				has := d.Current().Has("web", sl.Locality)
				drained += count(has)
				partly += count(has && down[i] < 10)
				useful += count(down[i] < 10)
				left += count(down[i] < 10 && !has)
			}
			if 2*partly > n || (useful > 0 && left == 0) {
				t.Fatalf("down %v: %d drained, %d of them partly healthy, %d of %d localities with healthy endpoints left", down, drained, partly, left, useful)
			}
		}
	})
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// believed returns the verdicts that the first down[i] endpoints of zone i of a
// service are unhealthy and the rest healthy.
func believed(spec *isobar.Service, down []int) *health.Verdicts {
	var saved health.Saved
	for i, n := range down {
		for j, e := range spec.Localities[i].Endpoints {
			h := isobar.Healthy
			if j < n {
				h = isobar.Unhealthy
			}
			saved.Endpoints = append(saved.Endpoints, health.SavedEndpoint{Key: health.Key{Service: spec.Name, Address: e.Address}, Status: h, Since: start})
		}
	}
	return health.NewVerdictTable(health.Settings{}, saved, start).Verdicts()
}

// TestDrainsLookAtWhatChanged: looking only at services that changed gives the
// same as looking at everything.
func TestDrainsLookAtWhatChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c"}
		everything := func() *isobar.Topology {
			return topology(service("a", 10, zones[:3]...), service("b", 10, zones[:4]...), service("c", 10, zones[:2]...))
		}
		top := everything()
		var d, dumb health.Drains
		var verdicts *health.Verdicts
		var table health.Table
		now := start
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 70).Draw(t, "seconds")) * time.Second)
			if i := rapid.IntRange(0, 4).Draw(t, "service"); i < len(names) {
				spec, _ := top.Service(names[i])
				n := len(spec.Localities)
				down := rapid.SliceOfN(rapid.SampledFrom([]int{0, 6, 7, 8, 9, 10}), n, n).Draw(t, "down")
				verdicts = verdicts.Adopt(believed(spec, down), names[i])
			}
			switch rapid.IntRange(0, 9).Draw(t, "else") {
			case 0:
				top = everything()
			case 1:
				table = marked(&top.Services[0], rapid.IntRange(0, 10).Draw(t, "marked"))
			}
			changed := d.Observe(now, top, table.WithVerdicts(verdicts))
			want := dumb.Observe(now, everything(), table.WithVerdicts(verdicts))
			if !slices.Equal(changed, want) {
				t.Fatalf("changed %v, want %v", changed, want)
			}
			for _, name := range names {
				if got, want := d.Current().Of(name), dumb.Current().Of(name); !slices.Equal(got, want) {
					t.Fatalf("%s: drained %v, want %v", name, got, want)
				}
			}
		}
	})
}
