package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// left is a server that was a replica and has served alone since, with writes of operators in
// both times. It is stopped.
type left struct {
	grouped, alone string // configurations
	peers          []string
	election       string // directory
	version        uint64
	now, then      []string // what operators wrote alone, and what they had written in the group
}

// leaves runs a replica in a group and then alone.
func leaves(t *testing.T) *left {
	t.Helper()
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	l := &left{
		peers: []string{"a=" + listen[0], "b=" + listen[1]}, election: filepath.Join(t.TempDir(), "election"),
		now:  []string{"browse of api", "127.0.0.1:10 draining", `paused "checkout": alone`},
		then: []string{"search of api", "127.0.0.1:11 draining", `paused "": in the group`},
	}
	l.grouped = replicaConfig(t, "a", listen[0], fmt.Sprintf("{file: %q}", l.election), fileServices, l.peers...)
	from, to := strings.Index(l.grouped, "replicas:\n"), strings.Index(l.grouped, "services:\n")
	l.alone = l.grouped[:from] + l.grouped[to:]

	a := startMember(t, l.grouped)
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	a.writes("PUT", "/v1/services/search", apiService)
	a.writes("POST", "/v1/drain?force=true", `{"service": "checkout", "address": "127.0.0.1:11"}`)
	a.writes("POST", "/v1/pause", `{"reason": "in the group"}`)
	agree(t, "what operators wrote in the group", l.then, a)
	a.end()

	for range 2 { // a restart changes nothing
		a = startMember(t, l.alone)
		agree(t, "the single server goes on from it", l.then, a)
		a.end()
	}
	a = startMember(t, l.alone)
	agree(t, "the single server goes on from it", l.then, a)
	a.writes("DELETE", "/v1/services/search", "")
	a.writes("POST", "/v1/undrain", `{"service": "checkout", "address": "127.0.0.1:11"}`)
	a.writes("POST", "/v1/resume", `{}`)
	a.writes("PUT", "/v1/services/browse", strings.Replace(apiService, "search", "browse", 1))
	a.writes("POST", "/v1/drain?force=true", `{"service": "checkout", "address": "127.0.0.1:10"}`)
	a.writes("POST", "/v1/pause", `{"service": "checkout", "reason": "alone"}`)
	agree(t, "what operators wrote alone", l.now, a)
	l.version = a.server.Plan().Version
	a.end()
	return l
}

// returned starts the replica in its group again.
func (l *left) returned(t *testing.T, want, gone []string) *member {
	t.Helper()
	a := startMember(t, l.grouped)
	testhelp.Eventually(t, "a has a plan of its group", func() bool { return a.group().Leader != "" && a.server.Plan() != nil && a.group().Removes })
	agree(t, "what is in force", want, a)
	got := a.operated()
	for _, text := range gone {
		if strings.Contains(got, text) {
			t.Errorf("%s is in force again: %s", text, got)
		}
	}
	if now := a.server.Plan().Version; a.group().Leader == "a" && now <= l.version {
		t.Errorf("version %d follows %d", now, l.version)
	}
	return a
}

// told asserts that the replica tells that its own writes are not in force, and keeps them.
func (l *left) told(t *testing.T, a *member) {
	t.Helper()
	if alarms := strings.Join(a.group().Alarms, "\n"); !strings.Contains(alarms, "of its own") || !strings.Contains(alarms, "services/browse") {
		t.Errorf("alarms: %q", alarms)
	}
	_, rest, _ := strings.Cut(l.grouped, "state_dir: \"")
	dir, _, _ := strings.Cut(rest, "\"")
	kept, err := os.ReadFile(filepath.Join(dir, "sources-alone.state"))
	if err != nil || !strings.Contains(string(kept), "browse") || !strings.Contains(string(kept), "127.0.0.1:10") || !strings.Contains(string(kept), "alone") {
		t.Errorf("the copy is %q, %v", kept, err)
	}
}

// TestReplicaReturnsToItsGroup asserts that what operators wrote on a server that had left its
// group goes with it into the group, if the group has had no write since, also if the election
// engine is empty, and that it is kept over the next restarts.
func TestReplicaReturnsToItsGroup(t *testing.T) {
	t.Parallel()
	for name, empty := range map[string]bool{"as it was": false, "empty": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := leaves(t)
			if empty {
				if err := os.RemoveAll(l.election); err != nil {
					t.Fatal(err)
				}
			}
			a := l.returned(t, l.now, l.then)
			if alarms := a.group().Alarms; len(alarms) != 0 {
				t.Errorf("alarms: %q", alarms)
			}
			a.writes("POST", "/v1/undrain", `{"service": "checkout", "address": "127.0.0.1:10"}`)
			a.end()
			a = l.returned(t, l.now[:1], append(l.then, "127.0.0.1:10 draining"))
			if alarms := a.group().Alarms; len(alarms) != 0 {
				t.Errorf("alarms after a restart: %q", alarms)
			}
		})
	}
}

// TestGroupHasGoneOn asserts that the group's state stands if operators wrote there after a
// server had left, and that the server tells which of its own is not in force.
func TestGroupHasGoneOn(t *testing.T) {
	l := leaves(t)
	path := filepath.Join(l.election, "test.operators")
	var kept struct {
		Format   int                        `json:"format"`
		Sequence uint64                     `json:"sequence"`
		Entries  map[string]json.RawMessage `json:"entries"`
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	kept.Sequence++
	delete(kept.Entries, "health/checkout/127.0.0.1:11")
	if data, err = json.Marshal(kept); err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	a := l.returned(t, []string{"search of api", `paused "": in the group`}, append(l.now, "draining"))
	l.told(t, a)
}

// TestReplicaReturnsToALeader asserts that a server that had left its group follows the leader
// that the group has, and tells which of its own is not in force.
func TestReplicaReturnsToALeader(t *testing.T) {
	l := leaves(t)
	_, address, _ := strings.Cut(l.peers[1], "=")
	b := startMember(t, replicaConfig(t, "b", address, fmt.Sprintf("{file: %q}", l.election), fileServices, l.peers...))
	testhelp.Eventually(t, "b leads", func() bool { return b.group().Leader == "b" && b.server.Plan() != nil })
	agree(t, "b has what operators wrote in the group", l.then, b)
	a := l.returned(t, l.then, l.now)
	l.told(t, a)
	if status, answer := a.send("DELETE", "/v1/services/search", "", ""); status != http.StatusOK {
		t.Errorf("a write after the return: %d %s", status, answer)
	}
}
