package kubernetes_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
)

// chartGroup is three replicas of the chart, as processes, that balance the 6 Pods of
// checkout under the load of gRPC clients.
type chartGroup struct {
	cluster *cluster
	members []*member
	load    *callers
}

func startGroup(t *testing.T) *chartGroup {
	t.Helper()
	c, k := installed(t, "replicas-secrets-values.yaml", "--set", "config.tick=1s,config.report_interval=1s,config.stop_spread=1s,admin.writable=true")
	k.programs = newPrograms(t)
	c.deploy("shop", "checkout", 6)
	if err := c.policy("checkout", `{"targetRefs": [{"kind": "Service", "name": "checkout"}], "mode": "Full"}`); err != nil {
		t.Fatal(err)
	}
	ca, dirs := identitytest.NewCA(t), [3]string{t.TempDir(), t.TempDir(), t.TempDir()}
	replicas := ca.Write(dirs[1], identitytest.Leaf{URIs: []string{
		"spiffe://isobar/isobar/isobar/isobar-0", "spiffe://isobar/isobar/isobar/isobar-1", "spiffe://isobar/isobar/isobar/isobar-2",
	}})
	client := ca.Write(dirs[2], identitytest.Leaf{DNS: []string{"web.example"}})
	g := &chartGroup{cluster: c, members: c.members(ca.Write(dirs[0], identitytest.Leaf{}), replicas)}
	addresses := make([]string, 0, len(g.members))
	for _, m := range g.members {
		m.start()
		addresses = append(addresses, m.xds)
	}
	front, err := fleet.NewBalancer(addresses)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = front.Close() })
	leaderOf(t, g.members)
	c.states("checkout", map[string]string{})
	g.load = callersOf(t, front.Address(), "checkout.shop:80", []string{"a", "b", "c"}, 20, &client)
	eventually(t, 30*time.Second, "6 endpoints on all replicas", g.served(6))
	return g
}

// served reports whether all replicas that run have so many endpoints.
func (g *chartGroup) served(pods int) func() bool {
	return func() bool {
		for _, m := range g.members {
			if m.process != nil && m.endpoints("checkout.shop:80") != pods {
				return false
			}
		}
		return true
	}
}

// TestGroupWithoutAPI: while the API server is away, so that no replica can hold the Lease
// or see the Pods, all replicas serve what they have and no request fails; an operator's
// write is refused with the reason. When it is back, one leads and follows the cluster.
func TestGroupWithoutAPI(t *testing.T) {
	g := startGroup(t)
	leader, _ := leaderOf(t, g.members)
	away := max(*gone, 20*time.Second) // a leader decides for 10 s after its last renewal
	g.cluster.stopAPIServer()
	stopped := time.Now()
	<-time.After(15 * time.Second)
	frozen := g.versions()
	if err := leader.post("/v1/pause", `{"service": "checkout.shop:80", "reason": "without the API"}`); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a pause is answered with %v, want 503", err)
	}
	for time.Since(stopped) < away {
		if !g.served(6)() {
			t.Fatal("a replica does not serve 6 endpoints")
		}
		<-time.After(time.Second)
	}
	if got := g.versions(); !maps.Equal(got, frozen) {
		t.Errorf("without the API server plans went on from %v to %v", frozen, got)
	}
	failed, errs := g.load.failures()
	sent := g.load.sent.Load()
	if failed > 0 {
		t.Errorf("%d of %d requests failed: %v", failed, sent, errs)
	}

	started := time.Now()
	g.cluster.startAPIServer()
	ready := time.Since(started)
	newest := uint64(0)
	for _, v := range frozen {
		newest = max(newest, v)
	}
	eventually(t, time.Minute, "a new plan on all replicas", func() bool {
		for _, v := range g.versions() {
			if v <= newest {
				return false
			}
		}
		return true
	})
	planned := time.Since(started)
	g.cluster.patchDeployment("shop", "checkout", map[string]any{"replicas": 9})
	eventually(t, 3*time.Minute, "9 endpoints on all replicas", g.served(9)) // controllers come back within a minute each
	g.load.stop()
	failed, errs = g.load.failures()
	t.Logf("%s without the API server: %d requests until it was back, %d in all, %d failed; started again, it was ready after %s and all replicas had a new plan after %s",
		away, sent, g.load.sent.Load(), failed, ready.Round(100*time.Millisecond), planned.Round(100*time.Millisecond))
	if failed > 0 {
		t.Errorf("failures %v", errs)
	}
}

// versions returns the version of the plan that each replica serves.
func (g *chartGroup) versions() map[string]uint64 {
	out := map[string]uint64{}
	for _, m := range g.members {
		var v admin.PlanView
		if err := m.get("/v1/plan", &v); err != nil {
			m.t.Fatalf("%s: %v", m.name, err)
		}
		n, err := strconv.ParseUint(v.Version, 10, 64)
		if err != nil {
			m.t.Fatal(err)
		}
		out[m.name] = n
	}
	return out
}

// TestChartGroup: three replicas of the chart, as processes with its arguments and its
// permissions, elect one by a Lease. Killed under the load of gRPC clients, the leader is
// replaced: no request fails, and what happens in the cluster meanwhile is served after it.
func TestChartGroup(t *testing.T) {
	g := startGroup(t)
	c, members, load := g.cluster, g.members, g.load
	leader, version := leaderOf(t, members)
	<-time.After(3 * time.Second)

	leader.kill()
	killed := time.Now()
	c.patchDeployment("shop", "checkout", map[string]any{"replicas": 9})
	_, first := leaderOf(t, members)
	for first <= version {
		_, first = leaderOf(t, members)
	}
	took := time.Since(killed)
	eventually(t, 30*time.Second, "9 endpoints on all replicas", g.served(9))
	all := time.Since(killed)
	c.patchDeployment("shop", "checkout", map[string]any{"replicas": 3})
	eventually(t, 30*time.Second, "3 endpoints on all replicas", g.served(3))
	leader.start()
	eventually(t, 30*time.Second, "the replica that was killed follows", g.served(3))

	// Leadership moves on purpose, too, and a mark of an operator goes with it.
	now, _ := leaderOf(t, members)
	mark := func(m *member, path, body string) {
		t.Helper()
		if err := m.post(path, body); err != nil {
			t.Fatal(err)
		}
	}
	mark(leader, "/v1/pause", `{"service": "checkout.shop:80", "reason": "moved"}`)
	stopped := time.Now()
	now.stop()
	_, second := leaderOf(t, members)
	for second <= first {
		_, second = leaderOf(t, members)
	}
	moved := time.Since(stopped)
	for _, m := range members {
		if m.process == nil {
			continue
		}
		eventually(t, 10*time.Second, "the pause on "+m.name, func() bool {
			var plan json.RawMessage
			return m.get("/v1/status", &plan) == nil && bytes.Contains(plan, []byte("moved"))
		})
	}
	<-time.After(3 * time.Second)
	load.stop()
	failed, errs := load.failures()
	t.Logf("%d requests, %d failed; first plan %s after the kill of the leader, 9 endpoints after %s; all replicas serve the next plan %s after SIGTERM",
		load.sent.Load(), failed, took.Round(100*time.Millisecond), all.Round(100*time.Millisecond), moved.Round(100*time.Millisecond))
	if failed > 0 || took > 25*time.Second {
		t.Errorf("failures %v", errs)
	}
	if list := c.table(leases); !strings.Contains(list, "isobar") {
		t.Errorf("leases\n%s", list)
	}
	found := c.analyze(&kubernetes.Config{Cluster: kubernetes.Cluster{Policies: true, Namespaces: []string{"pay", "shop"}}, Lease: "isobar"})
	if strings.Contains(found, "ServiceAccount") {
		t.Errorf("isobar kubernetes analyze finds %s", found)
	}
}

// leaderOf waits until all replicas that run name the same leader, which runs, and serve
// its plans. It returns the lowest version that they serve.
func leaderOf(t *testing.T, members []*member) (leader *member, version uint64) {
	t.Helper()
	eventually(t, time.Minute, "a leader that all replicas follow", func() bool {
		name := ""
		leader, version = nil, 0
		for _, m := range members {
			if m.process == nil {
				continue
			}
			var g admin.ReplicaGroup
			var v admin.PlanView
			if m.get("/v1/replicas", &g) != nil || g.Leader == "" || name != "" && g.Leader != name || m.get("/v1/plan", &v) != nil || v.Version == "" {
				return false
			}
			n, err := strconv.ParseUint(v.Version, 10, 64)
			if err != nil {
				return false
			}
			if name = g.Leader; version == 0 || n < version {
				version = n
			}
		}
		for _, m := range members {
			if m.name == name && m.process != nil {
				leader = m
			}
		}
		return leader != nil
	})
	return leader, version
}
