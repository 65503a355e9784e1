package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestGroupWithoutItsEngine asserts that replicas that do not reach the election engine do not
// count as those that may take over, and that a refused write says why none leads and which
// replica is the caretaker.
func TestGroupWithoutItsEngine(t *testing.T) {
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	dir := filepath.Join(t.TempDir(), "election")
	election := fmt.Sprintf("{file: %q}", dir)
	a := startMember(t, replicaConfig(t, "a", listen[0], election, fileServices, peers...))
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b := startMember(t, replicaConfig(t, "b", listen[1], election, fileServices, peers...))
	testhelp.Eventually(t, "one of two may fail", func() bool { return a.group().Spare == 1 && b.group().Spare == 1 })

	if err := os.Rename(dir, dir+".before"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, []byte("no directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, "a is the caretaker, and none may fail", func() bool {
		g, h := a.group(), b.group()
		return g.Caretaker() == "a" && h.Caretaker() == "a" && g.Spare == 0 && h.Spare == 0 && g.Live() == 2 && h.Live() == 2
	})
	for name, m := range map[string]*member{"a": a, "b": b} {
		status, answer := m.send("POST", "/v1/replicas/step-down", `{"who": "ada"}`, "")
		if status != http.StatusServiceUnavailable || !strings.Contains(answer, "replica a is the caretaker") {
			t.Errorf("asking %s to have the leader step down: %d %s", name, status, answer)
		}
		status, answer = m.send("PUT", "/v1/services/search", apiService, "")
		for _, want := range []string{"no replica leads the group, because the election engine can't be reached", "replica a is the caretaker"} {
			if status != http.StatusServiceUnavailable || !strings.Contains(answer, want) {
				t.Errorf("a write to %s: %d %s, want %q", name, status, answer, want)
			}
		}
	}
}

// TestReplicaThatHearsNoLeader asserts that a replica which is cut off from the leader, and not from
// the election engine, names the leader that the engine names: where it is asked for the group, where
// it refuses a write, also a forced one, and where it is asked to have the leader step down.
func TestReplicaThatHearsNoLeader(t *testing.T) {
	listen, nobody := []string{testhelp.FreePort(t), testhelp.FreePort(t)}, testhelp.FreePort(t)
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	a := startMember(t, replicaConfig(t, "a", listen[0], election, fileServices, "a="+listen[0], "b="+nobody))
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b := startMember(t, replicaConfig(t, "b", listen[1], election, fileServices, "a="+nobody, "b="+listen[1]))
	const want = "the election engine says that replica a leads, which can't be reached from here"
	testhelp.Eventually(t, "b tells who leads", func() bool { return b.group().Awaits == want })
	g := b.group()
	if text := strings.Join(g.Troubles(), "; "); !strings.Contains(text, "replica b finds no leader of group ") || !strings.Contains(text, want) {
		t.Errorf("the troubles are %q", text)
	}
	for _, w := range []struct{ method, path, body string }{
		{"PUT", "/v1/services/search", apiService},
		{"PUT", "/v1/services/search?force=true", apiService},
		{"POST", "/v1/replicas/step-down", `{"who": "ada"}`},
	} {
		if status, answer := b.send(w.method, w.path, w.body, ""); status != http.StatusServiceUnavailable || !strings.Contains(answer, want) {
			t.Errorf("%s %s: %d %s, want %q", w.method, w.path, status, answer, want)
		}
	}
}

// TestSinceWhenALeaderLeads asserts that a replica tells since when the leader leads only if
// it saw that begin.
func TestSinceWhenALeaderLeads(t *testing.T) {
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	second := replicaConfig(t, "b", listen[1], election, fileServices, peers...)
	a := startMember(t, replicaConfig(t, "a", listen[0], election, fileServices, peers...))
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	first := a.server.Plan().Version
	testhelp.Eventually(t, "a has led for a while", func() bool { return a.server.Plan().Version > first+1 })
	for range 2 { // also with a plan of this leader from an earlier run
		b := startMember(t, second)
		testhelp.Eventually(t, "b has a newer plan", func() bool {
			g := b.group()
			return g.Leader == "a" && b.server.Plan() != nil && g.Removes
		})
		if g := b.group(); !g.LedSince.IsZero() {
			t.Errorf("b, which came later, tells that a leads since %s", g.LedSince)
		}
		b.end()
	}
	if a.group().LedSince.IsZero() {
		t.Error("a does not tell since when it leads")
	}
	b := startMember(t, second)
	testhelp.Eventually(t, "b follows", func() bool { g := b.group(); return g.Leader == "a" && g.Removes })
	a.end()
	testhelp.Eventually(t, "b leads, and tells since when", func() bool { g := b.group(); return g.Leader == "b" && !g.LedSince.IsZero() })
}
