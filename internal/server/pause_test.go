package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// order sends an order to the admin interface.
func (w *world) order(path, body string, out any) int {
	w.t.Helper()
	return w.operate(http.MethodPost, "127.0.0.1", path, body, out)
}

// growing is the fleet of all zones, of which one sends far more later.
func growing(at time.Time) []fleet.AgentOptions {
	return append(everywhere(300), clients("us/c", 5, func(now time.Time) float64 {
		if now.Before(at) {
			return 100
		}
		return 900
	})...)
}

// TestPauseFreezesWeightsWhileHealthGoesOn: nothing is decided while a service
// is paused, also after a restart; a zone that fails is left nevertheless; and
// it goes on when it is resumed.
func TestPauseFreezesWeightsWhileHealthGoesOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		cfg := configuration(t)
		cfg.Admin.Writable = true
		agents := growing(time.Now().Add(3 * time.Minute))
		var before *plan.Plan
		runWorld(t, cfg, kept, func(w *world) {
			w.start(agents...)
			for range 20 {
				before = w.tick()
			}
			var out admin.Operated
			if code := w.order("/v1/pause", `{"service": "checkout", "who": "ann", "reason": "canary"}`, &out); code != 200 || len(out.Paused) != 1 || len(out.Warnings) > 0 {
				t.Fatalf("%d %+v", code, out)
			}
			if got := w.server.Plan(); got.VersionString() != out.Version || got.Version <= before.Version {
				t.Errorf("plan %d after %d, told of %s", got.Version, before.Version, out.Version)
			}
			time.Sleep(3 * time.Minute) //nolint:forbidigo // virtual time: demand has grown
			p := w.tick()
			noViolations(t, p)
			if moved := apart(before, p); moved > 0 {
				t.Errorf("shares moved by %.2f points while they were paused", moved)
			}
			if s, _ := p.Service("checkout"); !strings.Contains(s.Hold, "paused by ann") || !strings.HasSuffix(s.Hold, "canary") {
				t.Errorf("held because %q", s.Hold)
			}
			paused, unsaved := testhelp.Metric(t, w.server.Metrics(), "isobar_paused_services"), testhelp.Metric(t, w.server.Metrics(), "isobar_state_unsaved")
			if paused != 1 || unsaved != 0 {
				t.Errorf("metrics tell of %v paused services, %v unsaved", paused, unsaved)
			}
		})
		runWorld(t, cfg, kept, func(w *world) {
			w.start(agents...)
			for range 5 {
				if moved := apart(before, w.tick()); moved > 0 {
					t.Errorf("shares moved by %.2f points after the restart", moved)
				}
			}
			for e := range 4 {
				w.put(fmt.Sprintf("/v1/services/checkout/endpoints/10.2.0.%d:80/health", e+1), "unhealthy")
			}
			p := w.server.Plan()
			noViolations(t, p)
			if share := p.Assignment("checkout", loc("us/c")).Share(loc("us/a")); share != 0 {
				t.Errorf("a dead zone keeps %.2f while paused", share)
			}
			for e := range 4 {
				w.put(fmt.Sprintf("/v1/services/checkout/endpoints/10.2.0.%d:80/health", e+1), "healthy")
			}
			if p := w.tick(); p.Assignment("checkout", loc("us/c")).Share(loc("us/a")) != 0 {
				t.Error("a zone that came back gets weight while paused")
			}
			var refused admin.Problem
			if code := w.order("/v1/resume", `{"service": "cart"}`, &refused); code != 404 {
				t.Errorf("%d %+v", code, refused)
			}
			if code := w.order("/v1/pause", `{"servce": "cart"}`, &refused); code != 400 {
				t.Errorf("%d %+v", code, refused)
			}
			var out admin.Operated
			if code := w.order("/v1/resume", "", &out); code != 200 || len(out.Paused) != 0 || len(out.Resumed) != 1 || out.Resumed[0].Who != "ann" {
				t.Errorf("%d %+v", code, out)
			}
			version, idle := w.server.Plan().VersionString(), admin.Operated{}
			if code := w.order("/v1/resume", "", &idle); code != 200 || len(idle.Resumed) != 0 || idle.Version != version || w.server.Plan().VersionString() != version {
				t.Errorf("with nothing paused: %d %+v after version %s", code, idle, version)
			}
			for range 20 {
				p = w.tick()
			}
			if s, _ := p.Service("checkout"); s.Hold != "" || p.Assignment("checkout", loc("us/c")).Share(loc("us/a")) == 0 {
				t.Errorf("after it was resumed: hold %q", s.Hold)
			}
		})
	})
}

// TestRollbackSurvivesARestart: the weights of an earlier version come back, in
// a later process too, and stay.
func TestRollbackSurvivesARestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		cfg := configuration(t)
		cfg.Admin.Writable = true
		agents := growing(time.Now().Add(2 * time.Minute))
		var before, after *plan.Plan
		runWorld(t, cfg, kept, func(w *world) {
			w.start(agents...)
			for range 15 {
				before = w.tick()
			}
			time.Sleep(2 * time.Minute) //nolint:forbidigo // virtual time: demand has grown
			if after = w.tick(); apart(before, after) < 5 {
				t.Fatalf("shares moved by %.1f points only", apart(before, after))
			}
		})
		runWorld(t, cfg, kept, func(w *world) {
			w.start(agents...)
			w.tick()
			var refused admin.Problem
			if code := w.order("/v1/rollback", `{"version": "7777"}`, &refused); code != 404 || !strings.Contains(refused.Error, "7777") {
				t.Errorf("%d %+v", code, refused)
			}
			var out admin.Operated
			body := fmt.Sprintf(`{"version": %q, "who": "ann", "reason": "it was better"}`, before.VersionString())
			if code := w.order("/v1/rollback", body, &refused); code != 409 || !strings.Contains(refused.Error, "above its ceiling") || !strings.Contains(refused.Fix, "--force") {
				t.Fatalf("%d %+v", code, refused)
			}
			if p := w.server.Plan(); len(p.Paused) != 0 {
				t.Fatalf("a rollback that was refused paused %v", p.Paused)
			}
			body = strings.Replace(body, "{", `{"force": true, `, 1)
			if code := w.order("/v1/rollback", body, &out); code != 200 || len(out.Paused) != 1 {
				t.Fatalf("%d %+v", code, out)
			}
			if len(out.Changed) != 1 || out.Changed[0].Moved() < 0.01 || out.Changed[0].Fullest[1] <= out.Changed[0].Fullest[0] {
				t.Errorf("it is told that it did %+v", out.Changed)
			}
			if code := w.order("/v1/rollback", body, &refused); code != 409 || !strings.Contains(refused.Error, "nothing would change") {
				t.Errorf("the second time: %d %+v", code, refused)
			}
			p := w.server.Plan()
			noViolations(t, p)
			if moved := apart(before, p); moved > 0 || p.Version <= after.Version {
				t.Errorf("version %d after %d is %.2f points from what it should be", p.Version, after.Version, moved)
			}
			for range 5 {
				if moved := apart(before, w.tick()); moved > 0 {
					t.Errorf("shares moved by %.2f points after the rollback", moved)
				}
			}
			var list admin.ChangeList
			w.read("127.0.0.1", "/v1/history?service=checkout", &list)
			if len(list.Changes) < 4 || list.Changes[0].Trigger != plan.TriggerOperator || list.Changes[0].Who != "ann" {
				t.Fatalf("%d changes, the last %+v", len(list.Changes), list.Changes[0])
			}
			triggers := map[string]int{}
			for i := range list.Changes {
				triggers[list.Changes[i].Trigger]++
				if i > 0 && list.Changes[i].Version >= list.Changes[i-1].Version {
					t.Errorf("version %d before %d", list.Changes[i].Version, list.Changes[i-1].Version)
				}
			}
			if triggers[plan.TriggerTick] == 0 {
				t.Errorf("triggers %v", triggers)
			}
		})
	})
}

// TestRollbackKeepsTheReserve: a rollback after which the loss of a zone could no longer
// be stood, as it can now, is refused as a drain would be; where nobody asks for a
// reserve, and with force, it is done.
func TestRollbackKeepsTheReserve(t *testing.T) {
	for name, every := range map[string]time.Duration{"with reserve": time.Minute, "none is asked for": 0} {
		t.Run(name, func(t *testing.T) {
			cfg := configuration(t)
			cfg.Admin.Writable, cfg.N1Interval = true, every
			// Clients in us/c may go to us/a and eu/a only: without us/a they fit into eu/a
			// where its own clients make room, which frozen ones do not.
			cfg.Services[0].Residency = []isobar.Residency{{From: glob(t, "us/c"), Allow: []isobar.LocalityGlob{glob(t, "us/a"), glob(t, "eu/a")}}}
			inWorld(t, cfg, func(w *world) {
				shrinks := time.Now().Add(3 * time.Minute)
				w.start(clients("us/a", 4, constant(150))...)
				w.start(clients("us/c", 4, constant(500))...)
				w.start(clients("eu/a", 4, constant(400))...)
				w.start(clients("eu/b", 4, constant(100))...)
				w.start(clients("us/b", 4, func(now time.Time) float64 {
					if now.Before(shrinks) {
						return 900
					}
					return 100
				})...)
				w.ticks(25)
				before := w.server.Plan()
				w.settle(10 * time.Minute)
				now := w.server.Plan()
				body := fmt.Sprintf(`{"version": %q}`, before.VersionString())
				var refused admin.Problem
				var out admin.Operated
				var asked plan.Difference
				question := fmt.Sprintf(`{"rollback": {"service": "checkout", "version": %q}}`, before.VersionString())
				if code := w.order("/v1/whatif", question, &asked); code != 200 || (len(asked.Refusals) > 0) != (every > 0) || asked.Unchecked != "" {
					t.Errorf("asked first: %d %+v", code, asked)
				}
				if every > 0 {
					if code := w.order("/v1/rollback", body, &refused); code != 409 || !strings.Contains(refused.Error, "without one more zone: checkout: it would no longer survive the loss of us/a: eu/a at 8") || !strings.Contains(refused.Fix, "--force") {
						t.Fatalf("%d %+v", code, refused)
					}
					if p := w.server.Plan(); len(p.Paused) != 0 || apart(now, p) > 0.5 {
						t.Error("what was refused was done")
					}
					body = strings.Replace(body, "{", `{"force": true, `, 1)
				}
				if code := w.order("/v1/rollback", body, &out); code != 200 || len(out.Paused) != 1 || apart(before, w.server.Plan()) > 0 {
					t.Errorf("%d %+v", code, out)
				}
			})
		})
	}
}

func glob(t *testing.T, text string) isobar.LocalityGlob {
	t.Helper()
	g, err := isobar.ParseLocalityGlob(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
