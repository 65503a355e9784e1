package server_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// drainedBy reports whether the status says that a locality is drained, by whom and why.
func drainedBy(list []admin.Attention, text string) bool {
	return slices.ContainsFunc(list, func(a admin.Attention) bool {
		return a.Code == admin.LocalityDrained && strings.Contains(a.Text, text)
	})
}

// TestDrainIsInTheHistory: the history tells who drained a locality or an endpoint and why, and
// who ended that; the status tells it while the locality is drained.
func TestDrainIsInTheHistory(t *testing.T) {
	const mark = "/v1/services/checkout/endpoints/10.3.0.1:80/health?who=ann&"
	bubble.Test(t, func(t *testing.T) {
		cfg := configuration(t)
		cfg.Admin.Writable = true
		cfg.StateDir = filepath.Join(t.TempDir(), "state")
		runWorld(t, cfg, nil, func(w *world) {
			w.start(everywhere(300)...)
			w.tick()
			newest := func() plan.Change {
				t.Helper()
				var list admin.ChangeList
				w.read("127.0.0.1", "/v1/history?service=checkout", &list)
				if len(list.Changes) == 0 {
					t.Fatal("no changes")
				}
				return list.Changes[0]
			}
			locality := func(reason string) string {
				return `{"service": "checkout", "locality": "us/b", "who": "ann", "reason": "` + reason + `"}`
			}
			for _, x := range []struct {
				method, path, body, want string
				drained                  bool
			}{
				{"POST", "/v1/drain?force=true", locality("kernel update"), "drain of 4 endpoints in us/b: kernel update", true},
				{"POST", "/v1/undrain", locality("it is done"), "end of the drain of 4 endpoints in us/b: it is done", false},
				{"PUT", mark + "reason=disk", "unhealthy", "endpoint 10.3.0.1:80 in us/b set unhealthy: disk", false},
				{"PUT", mark + "reason=disk&force=true", "draining", "drain of endpoint 10.3.0.1:80 in us/b: disk", false},
				{"DELETE", mark + "reason=new+disk", "", "end of the drain of endpoint 10.3.0.1:80 in us/b: new disk", false},
			} {
				var out admin.Published
				if code := w.operate(x.method, "127.0.0.1", x.path, x.body, &out); code != http.StatusOK {
					t.Fatalf("%s: %d %+v", x.path, code, out)
				}
				if c := newest(); c.Trigger != plan.TriggerOperator || c.Who != "ann" || c.About != "checkout" || c.Reason != x.want {
					t.Errorf("%s %s: %+v", x.method, x.path, c)
				}
				if drainedBy(w.status().Attention, "(ann: kernel update)") != x.drained {
					t.Errorf("after %s %s the status has %v", x.method, x.path, admin.AttentionTexts(w.status().Attention))
				}
			}
		})
	})
}

// TestDrainOutlivesRestart: after a restart, the status still tells who drained a locality, and why.
func TestDrainOutlivesRestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := configuration(t)
		cfg.Admin.Writable = true
		cfg.StateDir = filepath.Join(t.TempDir(), "state")
		runWorld(t, cfg, nil, func(w *world) {
			w.tick()
			var out admin.Drained
			if code := w.order("/v1/drain?force=true", `{"service": "checkout", "locality": "us/b", "who": "ann", "reason": "kernel update"}`, &out); code != http.StatusOK {
				t.Fatalf("%d %+v", code, out)
			}
		})
		runWorld(t, cfg, nil, func(w *world) {
			w.tick()
			if list := w.status().Attention; !drainedBy(list, "(ann: kernel update)") {
				t.Errorf("after a restart the status has %v", admin.AttentionTexts(list))
			}
		})
	})
}

// TestDrainsOfAGroup asserts that all replicas tell who drained a locality and why, also after a
// change of the leader, and that the history has who set the health of an endpoint by a replica
// that follows.
func TestDrainsOfAGroup(t *testing.T) {
	t.Parallel()
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	a := startMember(t, replicaConfig(t, "a", listen[0], election, fileServices, peers...))
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b := startMember(t, replicaConfig(t, "b", listen[1], election, fileServices, peers...))
	testhelp.Eventually(t, "b follows", func() bool { return b.group().Leader == "a" && b.server.Plan() != nil && b.group().Removes })

	const mark = "/v1/services/checkout/endpoints/127.0.0.1:9/health"
	told := func(m *member) func() bool {
		return func() bool { return drainedBy(m.status().Attention, "(ann: kernel update)") }
	}
	history := func(m *member, who, reason string) func() bool {
		return func() bool {
			var list admin.ChangeList
			m.read("/v1/history?service=checkout", &list)
			return slices.ContainsFunc(list.Changes, func(c plan.Change) bool {
				// Writes that come together are one change, which has the reasons of all.
				return c.Trigger == plan.TriggerOperator && strings.Contains(c.Who, who) && strings.Contains(c.Reason, reason)
			})
		}
	}
	b.writes("POST", "/v1/drain?force=true", `{"service": "checkout", "locality": "us/b", "who": "ann", "reason": "kernel update"}`)
	const set, ended = "endpoint 127.0.0.1:9 in us/a set unhealthy: disk", "end of the health that operators set for endpoint 127.0.0.1:9 in us/a: new disk"
	// A replica that is slow gets the newest plan alone, and its history lacks those before it.
	for attempt := 0; attempt == 0 || !history(b, "bob", set)() || !history(b, "bob", ended)(); attempt++ {
		if attempt == 20 {
			t.Fatal("the history of the follower never has who set the health of an endpoint")
		}
		b.writes("PUT", mark, `{"health": "unhealthy", "who": "bob", "reason": "disk"}`)
		testhelp.Eventually(t, "the leader tells who set it", history(a, "bob", set))
		b.writes("DELETE", mark+"?who=bob&reason=new+disk", "")
		testhelp.Eventually(t, "the leader tells who ended that", history(a, "bob", ended))
		newest := a.server.Plan().Version
		testhelp.Eventually(t, "the follower has the plan", func() bool { return b.server.Plan().Version >= newest })
	}
	for _, m := range []*member{a, b} {
		testhelp.Eventually(t, "both tell who drained it", told(m))
	}
	a.end()
	testhelp.Eventually(t, "b leads", func() bool { return b.group().Leader == "b" && b.group().Role == "leader" })
	testhelp.Eventually(t, "the next leader tells who drained it", told(b))
}
