package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// send sends a write to a replica, and returns the status and the answer.
func (m *member) send(method, path, body, ifMatch string) (int, string) {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), method, "http://"+m.server.AdminAddress()+path, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if ifMatch != "" {
		req.Header.Set("If-Match", ifMatch)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// writes sends a write that has to succeed.
func (m *member) writes(method, path, body string) {
	m.t.Helper()
	if status, answer := m.send(method, path, body, ""); status != http.StatusOK {
		m.t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
}

// operated is what operators wrote, as a replica shows it.
func (m *member) operated() string {
	m.t.Helper()
	var services admin.ServiceList
	m.read("/v1/services", &services)
	var b strings.Builder
	for _, s := range services.Services {
		fmt.Fprintf(&b, "%s of %s @%d;", s.Service.Name, s.Owner, s.Revision)
		for _, o := range s.HealthOverrides {
			fmt.Fprintf(&b, " %s %s;", o.Address, o.Status)
		}
	}
	for _, p := range m.status().Paused {
		fmt.Fprintf(&b, " paused %q: %s;", p.Service, p.Reason)
	}
	return b.String()
}

const (
	fileServices = "- {name: checkout, localities: [{locality: us/a, endpoints: [\"127.0.0.1:9\"]}, {locality: us/b, endpoints: [\"127.0.0.1:10\", \"127.0.0.1:11\"]}]}\n"
	apiService   = `{"name": "search", "localities": [{"locality": "us/a", "endpoints": [{"address": "127.0.0.1:12"}]}]}`
)

// agree waits until all replicas show the same of operators' state, and what is wanted.
func agree(t *testing.T, what string, want []string, members ...*member) {
	t.Helper()
	var last string
	testhelp.Eventually(t, what, func() bool {
		last = members[0].operated()
		for _, m := range members {
			if m.operated() != last || m.server.Plan() == nil {
				return false
			}
		}
		for _, text := range want {
			if !strings.Contains(last, text) {
				return false
			}
		}
		return true
	})
}

// TestOperatorsOfAGroup asserts that operators can write at every replica, that all
// replicas show the same with the same revisions, that a write with an outdated revision
// is refused, and that everything that was acknowledged is in force under the next
// leader and after a restart of all.
func TestOperatorsOfAGroup(t *testing.T) {
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	configs := []string{
		replicaConfig(t, "a", listen[0], election, fileServices, peers...), replicaConfig(t, "b", listen[1], election, fileServices, peers...),
	}
	a := startMember(t, configs[0])
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b := startMember(t, configs[1])
	testhelp.Eventually(t, "b follows", func() bool { return b.group().Leader == "a" && b.server.Plan() != nil && b.group().Removes })

	b.writes("PUT", "/v1/services/search", apiService)
	b.writes("POST", "/v1/drain?force=true", `{"service": "checkout", "locality": "us/b", "reason": "a test"}`)
	b.writes("POST", "/v1/pause", `{"service": "checkout", "reason": "a pause"}`)
	a.writes("PUT", "/v1/services/checkout/endpoints/127.0.0.1:9/health", "unhealthy")
	want := []string{"search of api", "127.0.0.1:10 draining; 127.0.0.1:11 draining", "127.0.0.1:9 unhealthy", `paused "checkout": a pause`}
	agree(t, "both replicas show what operators wrote", want, a, b)

	var search admin.ServiceObject
	b.read("/v1/services/search", &search)
	b.writes("PUT", "/v1/services/search", strings.Replace(apiService, ":12", ":13", 1))
	if status, answer := b.send("DELETE", "/v1/services/search", "", fmt.Sprintf("%q", fmt.Sprint(search.Revision))); status != http.StatusPreconditionFailed {
		t.Errorf("a write on an outdated revision: %d %s", status, answer)
	}
	if status, answer := b.send("PUT", "/v1/services/checkout", strings.Replace(apiService, "search", "checkout", 1), ""); status != http.StatusConflict {
		t.Errorf("a write of a service of the file: %d %s", status, answer)
	}
	agree(t, "the new endpoint", want, a, b)
	before := a.operated()

	a.end()
	testhelp.Eventually(t, "b leads", func() bool { return b.group().Leader == "b" && b.server.Plan().Spec("search") != nil })
	agree(t, "b has what operators wrote", want, b)
	if after := b.operated(); after != before {
		t.Errorf("after the change of the leader:\n%s\nbefore:\n%s", after, before)
	}
	if p := b.server.Plan(); len(p.Topology.Owners) != 1 || p.Topology.Owners["search"] != isobar.OwnerAPI {
		t.Errorf("owners are %v", p.Topology.Owners)
	}
	b.writes("POST", "/v1/undrain", `{"service": "checkout", "locality": "us/b"}`)
	b.writes("POST", "/v1/resume", `{"service": "checkout"}`)
	b.end()

	a, b = startMember(t, configs[0]), startMember(t, configs[1])
	testhelp.Eventually(t, "one leads after a restart of both", func() bool { return a.group().Leader != "" && b.group().Leader == a.group().Leader })
	agree(t, "both have what stayed", []string{"search of api", "127.0.0.1:9 unhealthy"}, a, b)
	if got := a.operated(); strings.Contains(got, "draining") || strings.Contains(got, "paused") {
		t.Errorf("what was taken back is in force again: %s", got)
	}
}

// TestSingleServerBecomesAGroup asserts that a server takes what operators wrote into a
// group, and out of it again.
func TestSingleServerBecomesAGroup(t *testing.T) {
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	grouped := replicaConfig(t, "a", listen[0], election, fileServices, peers...)
	from, to := strings.Index(grouped, "replicas:\n"), strings.Index(grouped, "services:\n")
	alone := grouped[:from] + grouped[to:]

	single := startMember(t, alone)
	testhelp.Eventually(t, "the single server has a plan", func() bool { return single.server.Plan() != nil })
	single.writes("PUT", "/v1/services/search", apiService)
	single.writes("POST", "/v1/drain?force=true", `{"service": "checkout", "address": "127.0.0.1:11"}`)
	single.writes("POST", "/v1/pause", `{"reason": "before"}`)
	version := single.server.Plan().Version
	single.end()

	a := startMember(t, grouped)
	want := []string{"search of api", "127.0.0.1:11 draining", `paused "": before`}
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	agree(t, "the group has what operators wrote", want, a)
	b := startMember(t, replicaConfig(t, "b", listen[1], election, fileServices, peers...))
	agree(t, "b shows it", want, a, b)
	if now := a.server.Plan().Version; now <= version {
		t.Errorf("version %d follows %d", now, version)
	}
	b.writes("POST", "/v1/drain?force=true", `{"service": "checkout", "address": "127.0.0.1:10"}`)
	agree(t, "a drain in the group", []string{"127.0.0.1:10 draining"}, a, b)
	version = a.server.Plan().Version
	b.end()
	a.end()

	single = startMember(t, alone)
	testhelp.Eventually(t, "the single server has a plan again", func() bool { return single.server.Plan() != nil })
	agree(t, "the single server has what operators wrote in the group", append(want, "127.0.0.1:10 draining"), single)
	if now := single.server.Plan().Version; now <= version {
		t.Errorf("version %d follows %d", now, version)
	}
}

// TestElectionStateThatWentBack asserts that a new leader writes again what an election
// engine lost that was restored from a backup, and tells operators.
func TestElectionStateThatWentBack(t *testing.T) {
	listen := testhelp.FreePort(t)
	dir := filepath.Join(t.TempDir(), "election")
	config := replicaConfig(t, "a", listen, fmt.Sprintf("{file: %q}", dir), fileServices, "a="+listen)
	path := filepath.Join(dir, "test.operators")
	a := startMember(t, config)
	testhelp.Eventually(t, "a leads", func() bool { return a.server.Plan() != nil })
	a.writes("PUT", "/v1/services/search", apiService)
	backup, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a.writes("POST", "/v1/drain?force=true", `{"service": "checkout", "address": "127.0.0.1:11"}`)
	agree(t, "the drain", []string{"127.0.0.1:11 draining"}, a)
	a.end()
	if err := os.WriteFile(path, backup, 0o600); err != nil {
		t.Fatal(err)
	}
	a = startMember(t, config)
	testhelp.Eventually(t, "a leads again", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	agree(t, "the drain that the engine had lost", []string{"search of api", "127.0.0.1:11 draining"}, a)
	if alarms := strings.Join(a.group().Alarms, "\n"); !strings.Contains(alarms, "health/checkout/127.0.0.1:11") {
		t.Errorf("alarms: %s", alarms)
	}
	now, err := os.ReadFile(path)
	if err != nil || bytes.Equal(now, backup) || !bytes.Contains(now, []byte("127.0.0.1:11")) {
		t.Errorf("the engine has %s, %v", now, err)
	}
	if a.server.Plan().Spec("search") == nil {
		t.Error("search is gone")
	}
}

// TestEngineLosesWrites asserts that a leader whose election engine goes back to an older
// state while it leads writes again what operators had written, and says so.
func TestEngineLosesWrites(t *testing.T) {
	listen := testhelp.FreePort(t)
	election := filepath.Join(t.TempDir(), "election")
	m := startMember(t, replicaConfig(t, "a", listen, fmt.Sprintf("{file: %q}", election), fileServices, "a="+listen))
	testhelp.Eventually(t, "it leads", func() bool { return m.group().Leader == "a" && m.server.Plan() != nil })
	m.writes("PUT", "/v1/services/search", apiService)
	kept := filepath.Join(election, "test.operators")
	backup, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	m.writes("POST", "/v1/pause", `{"service": "checkout", "reason": "since the backup"}`)
	if err := os.WriteFile(kept, backup, 0o600); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, "the pause stands in the engine again", func() bool {
		data, err := os.ReadFile(kept)
		return err == nil && bytes.Contains(data, []byte("pause"))
	})
	testhelp.Eventually(t, "an alarm names the pause", func() bool {
		alarms := m.group().Alarms
		return len(alarms) == 1 && strings.Contains(alarms[0], "1 entry is written again: ") && strings.Contains(alarms[0], "checkout")
	})
	attends(t, m.status(), admin.GroupEvent)
	m.writes("POST", "/v1/resume", `{"service": "checkout"}`)
}

// TestMarksWithoutALeader asserts that a group without a leader refuses what operators write,
// that what they force is in force under the next leader, and that they can take it back.
func TestMarksWithoutALeader(t *testing.T) {
	listen := testhelp.FreePort(t)
	dir := filepath.Join(t.TempDir(), "election")
	claim := filepath.Join(dir, "test.claim")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	unreadable := func() { // no replica can lead a group whose claim it can't read
		t.Helper()
		if err := os.WriteFile(claim, []byte("of a later program"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unreadable()
	a := startMember(t, replicaConfig(t, "a", listen, fmt.Sprintf("{file: %q}", dir), fileServices, "a="+listen))
	testhelp.Eventually(t, "the group has no leader", func() bool { return a.group().Leader == "" && !a.group().Engine })

	const mark, drain = "/v1/services/checkout/endpoints/127.0.0.1:9/health", `{"service": "checkout", "locality": "us/b", "reason": "a test"}`
	refused := func(method, path, body string, want int, text string) {
		t.Helper()
		if status, answer := a.send(method, path, body, ""); status != want || !strings.Contains(answer, text) {
			t.Errorf("%s %s: %d %s, want %d %q", method, path, status, answer, want, text)
		}
	}
	refused("PUT", mark, "unhealthy", http.StatusServiceUnavailable, "?force=true (--force) keeps the change for the next one")
	refused("PUT", "/v1/services/search?force=true", apiService, http.StatusServiceUnavailable, "no replica leads")
	refused("PUT", strings.Replace(mark, ":9", ":99", 1)+"?force=true", "unhealthy", http.StatusNotFound, "127.0.0.1:99")
	const kept = "the next leader puts it in force"
	refused("PUT", mark+"?force=true", "unhealthy", http.StatusAccepted, kept)
	refused("POST", "/v1/drain?force=true", drain, http.StatusAccepted, `"127.0.0.1:11"`)
	if got := a.operated(); strings.Contains(got, "unhealthy") {
		t.Errorf("without a leader the replica shows %s", got)
	}

	if err := os.Remove(claim); err != nil {
		t.Fatal(err)
	}
	marks := []string{"127.0.0.1:9 unhealthy", "127.0.0.1:10 draining; 127.0.0.1:11 draining"}
	agree(t, "the next leader has what was forced", marks, a)
	refused("PUT", mark+"?force=true", "healthy", http.StatusOK, "")

	unreadable()
	testhelp.Eventually(t, "the group has no leader again", func() bool { return !a.group().Engine && a.group().Role != "leader" })
	refused("DELETE", mark, "", http.StatusServiceUnavailable, "")
	refused("DELETE", mark+"?force=true", "", http.StatusServiceUnavailable, "a replica leads the group")
}

// TestUnreadableWritesOfOperators asserts that a new leader goes on with what the last plan has
// of an entry that it can't read, writes it again and says so. If no plan has the entry, clients
// keep the last plan, and status names the entry until it is removed.
func TestUnreadableWritesOfOperators(t *testing.T) {
	t.Parallel()
	listen := testhelp.FreePort(t)
	dir := filepath.Join(t.TempDir(), "election")
	config := replicaConfig(t, "a", listen, fmt.Sprintf("{file: %q}", dir), fileServices, "a="+listen)
	path := filepath.Join(dir, "test.operators")
	damage := func(edit func(entries map[string]json.RawMessage)) {
		t.Helper()
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
		edit(kept.Entries)
		if data, err = json.Marshal(kept); err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	a := startMember(t, config)
	testhelp.Eventually(t, "a leads", func() bool { return a.server.Plan() != nil })
	a.writes("PUT", "/v1/services/search", apiService)
	a.writes("POST", "/v1/drain?force=true", `{"service": "checkout", "address": "127.0.0.1:11"}`)
	a.writes("POST", "/v1/pause", `{"service": "checkout", "reason": "a pause"}`)
	want := []string{"search of api", "127.0.0.1:11 draining", `paused "checkout": a pause`}
	agree(t, "what operators wrote", want, a)
	a.end()

	damage(func(entries map[string]json.RawMessage) {
		if len(entries) != 3 {
			t.Fatalf("entries %v", entries)
		}
		for key := range entries {
			entries[key] = json.RawMessage(`["damaged"]`)
		}
	})
	a = startMember(t, config)
	testhelp.Eventually(t, "a leads again", func() bool { return a.group().Leader == "a" && a.group().Takeover == "" })
	agree(t, "what the last plan has", want, a)
	testhelp.Eventually(t, "an alarm names the entries", func() bool {
		alarms := strings.Join(a.group().Alarms, "\n")
		return strings.Contains(alarms, "3 entries of operators that can't be read") && strings.Contains(alarms, "services/search")
	})
	damage(func(entries map[string]json.RawMessage) {
		for key, data := range entries {
			if strings.Contains(string(data), "damaged") {
				t.Errorf("%s is %s, want it written again", key, data)
			}
		}
	})
	before := a.server.Plan().Version
	a.end()

	damage(func(entries map[string]json.RawMessage) { entries["services/unknown"] = json.RawMessage(`["damaged"]`) })
	a = startMember(t, config)
	testhelp.Eventually(t, "status names the entry", func() bool { return strings.Contains(a.group().Takeover, "services/unknown") })
	s := a.status()
	if text := attends(t, s, admin.TakeoverFailed).Text; !strings.Contains(text, "remove its key from the election engine") {
		t.Errorf("no fix in %q", text)
	}
	if p := a.server.Plan(); p == nil || p.Version != before {
		t.Errorf("plan %v, want the last one, %d", p, before)
	}
	damage(func(entries map[string]json.RawMessage) { delete(entries, "services/unknown") })
	testhelp.Eventually(t, "a decides", func() bool { return a.server.Plan().Version > before && a.group().Takeover == "" })
	agree(t, "what operators wrote stays", want, a)
	a.end()

	// An object that can't be read may be of another version, and is not written over.
	later := `{"format": 1, "service": {"name": "search", "policy": "of a later version"}}`
	damage(func(entries map[string]json.RawMessage) { entries["services/search"] = json.RawMessage(later) })
	a = startMember(t, config)
	testhelp.Eventually(t, "status names the other version", func() bool { return strings.Contains(a.group().Takeover, "of the version that wrote it") })
	damage(func(entries map[string]json.RawMessage) {
		if data := string(entries["services/search"]); !strings.Contains(data, "of a later version") {
			t.Errorf("the entry is %s now", data)
		}
	})
}

// TestNoReplicaCanTakeOver asserts that each replica says why the leader makes no plan, also
// where another one leads, and that a leader that fails for long gives leadership to a replica
// that may succeed. Once all have failed, the last one keeps it, and all are alive: neither
// another leader nor a restart helps.
func TestNoReplicaCanTakeOver(t *testing.T) {
	t.Parallel()
	listenA, listenB := testhelp.FreePort(t), testhelp.FreePort(t)
	dir := filepath.Join(t.TempDir(), "election")
	operators := filepath.Join(dir, "test.operators")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(operators, []byte(`{"format": 1, "sequence": 1, "entries": {"services/unknown": ["damaged"]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	election, peers := fmt.Sprintf("{file: %q}", dir), []string{"a=" + listenA, "b=" + listenB}
	members := []*member{
		startMember(t, replicaConfig(t, "a", listenA, election, fileServices, peers...)),
		startMember(t, replicaConfig(t, "b", listenB, election, fileServices, peers...)),
	}
	everyone := func(is func(g admin.ReplicaGroup) bool) func() bool {
		return func() bool { return is(members[0].group()) && is(members[1].group()) }
	}
	testhelp.Eventually(t, "both say why the leader makes no plan", everyone(func(g admin.ReplicaGroup) bool {
		return strings.Contains(g.Takeover, "services/unknown")
	}))
	testhelp.Eventually(t, "both have tried", everyone(func(g admin.ReplicaGroup) bool {
		return len(g.Replicas) == 2 && g.Replicas[0].Takeover != "" && g.Replicas[1].Takeover != "" && g.Takeover != ""
	}))
	for _, m := range members {
		if text, leader := attends(t, m.status(), admin.TakeoverFailed).Text, m.group().Leader; !strings.Contains(text, "replica "+leader+" leads group test") {
			t.Errorf("%s leads, and status says %q", leader, text)
		}
		var live admin.Health
		if m.read("/livez", &live); live.Status != "ok" {
			t.Errorf("/livez: %+v", live)
		}
	}
	epoch, began := members[0].group().Epoch, time.Now()
	testhelp.Eventually(t, "10 s are over", func() bool { return time.Since(began) > 10*time.Second })
	if now := members[0].group().Epoch; now != epoch {
		t.Errorf("epoch %d after %d: leadership goes around although no replica can take over", now, epoch)
	}

	if err := os.WriteFile(operators, []byte(`{"format": 1, "sequence": 1, "entries": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, "the group decides, and no failure is left", everyone(func(g admin.ReplicaGroup) bool {
		return members[0].server.Plan() != nil && members[1].server.Plan() != nil && g.Takeover == "" && g.Replicas[0].Takeover == "" && g.Replicas[1].Takeover == ""
	}))
}
