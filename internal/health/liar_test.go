package health_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

const (
	detection = 8 * time.Second // that an honest checker needs to see a change
	settled   = detection + 4*interval
)

// fate is what is really true of an endpoint.
type fate struct {
	up      bool
	changed time.Time
}

// honest is a fleet of truthful checkers, but for one, which says anything.
type honest struct {
	*world

	r      *rapid.T
	liar   string
	truth  map[health.Key]*fate
	begun  map[string]map[health.Key]time.Time // when a checker began to probe
	before map[health.Key]isobar.HealthStatus
}

func newHonest(t *rapid.T) *honest {
	top := topology(service("pair", 2, zoneA), service("many", 3, zoneA, zoneB))
	n := rapid.IntRange(1, 2).Draw(t, "checkers per zone")
	h := &honest{world: newWorld(t, top, checkersIn(n, zoneA, zoneB, zoneC)), r: t, liar: "eu/b-0", truth: map[health.Key]*fate{}, begun: map[string]map[health.Key]time.Time{}, before: map[health.Key]isobar.HealthStatus{}}
	for i := range top.Services {
		for _, sl := range top.Services[i].Localities {
			for _, e := range sl.Endpoints {
				h.truth[health.Key{Service: top.Services[i].Name, Address: e.Address}] = &fate{up: rapid.Bool().Draw(t, "up"), changed: start.Add(-time.Hour)}
			}
		}
	}
	h.says = h.report
	return h
}

// report is what a checker says: it begins with unhealthy, and sees a change
// late.
func (h *honest) report(id string, k health.Key) isobar.HealthStatus {
	if id == h.liar {
		return isobar.HealthStatus(rapid.IntRange(0, 7).Draw(h.r, "lie"))
	}
	if h.begun[id] == nil {
		h.begun[id] = map[health.Key]time.Time{}
	}
	began, known := h.begun[id][k]
	if !known {
		began = h.now
		h.begun[id][k] = began
	}
	f := h.truth[k]
	up := f.up
	if late := h.now.Sub(f.changed) < detection; late && rapid.Bool().Draw(h.r, "late") {
		up = !up
	}
	if !up || h.now.Sub(began) < 5*time.Second {
		return isobar.Unhealthy
	}
	return isobar.Healthy
}

// happen changes the world: fates, and streams that break.
func (h *honest) happen() {
	for i := range h.topology.Services {
		for _, e := range h.topology.Services[i].Localities[0].Endpoints {
			f := h.truth[health.Key{Service: h.topology.Services[i].Name, Address: e.Address}]
			if h.now.Sub(f.changed) > 2*time.Minute && rapid.IntRange(0, 40).Draw(h.r, "fate") == 0 {
				f.up, f.changed = !f.up, h.now
			}
		}
	}
	h.checkers = slices.Clone(h.checkers)
	for i := range h.checkers {
		c := &h.checkers[i]
		switch lies := c.ID == h.liar; {
		case rapid.IntRange(0, 60).Draw(h.r, "restart") == 0:
			c.Since = h.now.Add(interval / 2)
			delete(h.begun, c.ID)
			if lies {
				c.Locality = rapid.SampledFrom(zones).Draw(h.r, "zone")
			}
		case lies:
			h.silent[c.ID] = rapid.IntRange(0, 3).Draw(h.r, "silent") == 0
		}
	}
	// What nobody is designated to any more is begun again when it comes back.
	for id, keys := range h.begun {
		for k := range keys {
			if !slices.Contains(h.placement.Of(id), k) {
				delete(keys, k)
			}
		}
	}
}

// judge finds verdicts that changed against a truth that stood.
func (h *honest) judge() {
	for k, f := range h.truth {
		got := h.status(k.Service, k.Address)
		was := h.before[k]
		h.before[k] = got
		stood := h.now.Sub(f.changed) > settled
		if got == was || !stood || got == isobar.Unknown {
			continue
		}
		if up := got == isobar.Healthy; up != f.up {
			h.Fatalf("%v became %s, though it has been up=%v for %s: %+v", k, got, f.up, h.now.Sub(f.changed), h.verdict(k.Service, k.Address))
		}
	}
}

func TestOneLiarChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHonest(t)
		for range 60 {
			h.happen()
			h.step()
			h.judge()
		}
		// Left alone by fate, the honest agree on the truth.
		for range 30 {
			h.step()
			h.judge()
		}
		for _, e := range h.topology.Services[1].Localities[0].Endpoints {
			k := health.Key{Service: "pair", Address: e.Address}
			if got := h.status(k.Service, k.Address); (got == isobar.Healthy) != h.truth[k].up {
				t.Fatalf("%v is %s after a minute, up=%v: %+v", k, got, h.truth[k].up, h.verdict(k.Service, k.Address))
			}
		}
	})
}

func TestAKilledCheckerIsReplaced(t *testing.T) {
	top := topology(service("web", 20, zoneA, zoneB, zoneC))
	w := newWorld(t, top, checkersIn(2, zoneA, zoneB, zoneC))
	w.run(10 * time.Second)
	before := w.table.Verdicts()
	share := w.placement.Of("eu/b-1")
	if len(share) == 0 {
		t.Fatal("the checker has nothing to do")
	}
	fresh := map[string]time.Time{}
	w.says = func(id string, k health.Key) isobar.HealthStatus {
		// Those that take over begin with unhealthy.
		if slices.Contains(share, k) && !slices.Contains(before3(w, id), k) {
			if fresh[id].IsZero() {
				fresh[id] = w.now
			}
			if w.now.Sub(fresh[id]) < 5*time.Second {
				return isobar.Unhealthy
			}
		}
		return isobar.Healthy
	}
	w.lose("eu/b-1")
	w.step()
	for _, k := range share {
		if got := designated(&w.placement, k); len(got) != 3 {
			t.Errorf("%v: %v right after the loss, want 3 checkers", k, got)
		}
	}
	w.run(2 * time.Minute)
	if w.table.Verdicts() != before {
		t.Errorf("verdicts changed on %v", before.Changed(w.table.Verdicts()))
	}
	w.checkers = nil
	w.run(time.Hour)
	if w.table.Verdicts() != before {
		t.Error("verdicts changed when all checkers were gone")
	}
	if v := w.verdict("web", first); !v.Frozen || w.now.Sub(v.Confirmed) < 59*time.Minute || len(v.Votes) != 0 {
		t.Errorf("%+v, want frozen for an hour", v)
	}
}

// before3 is what a checker had been designated to at the start.
func before3(w *world, id string) []health.Key {
	all := health.Place(health.PlacementInput{Topology: w.topology, Checkers: checkersIn(2, zoneA, zoneB, zoneC)})
	return all.Of(id)
}
