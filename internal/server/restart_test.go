package server_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestRestartServesTheSameWeights: a new process on the same state serves what
// the old one served, from its first plan on, with versions that go on, and
// holds it until it has heard of the fleet.
func TestRestartServesTheSameWeights(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		cfg := configuration(t)
		agents := append(everywhere(300), clients("us/c", 5, constant(900))...)
		before := settled(t, cfg, kept, agents)
		runWorld(t, cfg, kept, func(w *world) {
			synctest.Wait()
			first := w.server.Plan()
			if first == nil || first.Version <= before.Version {
				t.Fatalf("the first plan is %v after version %d", first, before.Version)
			}
			sameAssignments(t, before, first)
			w.start(agents...) // takes an interval
			for range 20 {
				p := w.tick()
				noViolations(t, p)
				if moved := apart(before, p); moved > 1 {
					t.Errorf("shares moved by %.1f points after the restart, at unchanged demand", moved)
				}
			}
		})
	})
}

// TestRestartHoldsWhileClientsAreMissing: with a fifth of the fleet back,
// weights stay; after three intervals what is seen counts.
func TestRestartHoldsWhileClientsAreMissing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		cfg := configuration(t)
		agents := append(everywhere(300), clients("us/c", 5, constant(900))...)
		before := settled(t, cfg, kept, agents)
		runWorld(t, cfg, kept, func(w *world) {
			w.start(agents[:5]...)
			p := w.tick()
			s, _ := p.Service("checkout")
			if s.Hold == "" || s.Coverage > 0.5 {
				t.Errorf("coverage %.2f, hold %q; want a hold", s.Coverage, s.Hold)
			}
			if moved := apart(before, p); moved > 0 {
				t.Errorf("shares moved by %.1f points on a fifth of the reports", moved)
			}
			time.Sleep(6 * interval) //nolint:forbidigo // virtual time
			if s, _ := w.tick().Service("checkout"); s.Hold != "" {
				t.Errorf("still holding after six intervals: %s", s.Hold)
			}
		})
	})
}

// settled runs a server with a whole fleet until shares stand, and gives its last
// plan.
func settled(t *testing.T, cfg *config.Config, kept store.Store, agents []fleet.AgentOptions) (last *plan.Plan) {
	t.Helper()
	runWorld(t, cfg, kept, func(w *world) {
		w.start(agents...)
		for range 20 {
			last = w.tick()
		}
	})
	return last
}

func sameAssignments(t *testing.T, a, b *plan.Plan) {
	t.Helper()
	for _, z := range []string{"eu/a", "eu/b", "us/a", "us/b", "us/c"} {
		x, err := json.Marshal(a.Assignment("checkout", loc(z)))
		if err != nil {
			t.Fatal(err)
		}
		y, err := json.Marshal(b.Assignment("checkout", loc(z)))
		if err != nil {
			t.Fatal(err)
		}
		if string(x) != string(y) {
			t.Errorf("%s:\nbefore %s\nafter  %s", z, x, y)
		}
	}
}
