package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/server"
)

// TestRolloutUnderLoad replaces -pods Pods in three zones, ten a second, under the load of
// gRPC clients, and kills some without grace: no other request fails.
//
// With a capacity per Pod and all clients outside of the zones, weights balance
// utilization: they follow the Pods that are ready. Without, and with clients inside, they
// follow what requests tell, of which counts of Pods are no measure: no zone may have more
// than its ceiling.
//
// How late weights are has two parts: how late the EndpointSlices of the controllers are
// behind the Pods, and how late weights are behind the EndpointSlices. The controller waits
// for a second or more where its cache is out of date, which is not counted as the server's.
func TestRolloutUnderLoad(t *testing.T) {
	t.Run("declared", func(t *testing.T) {
		rolloutUnderLoad(t, `, "capacity": {"maxRatePerEndpoint": 1}`, []string{"x", "x", "x", "x"})
	})
	t.Run("observed", func(t *testing.T) {
		rolloutUnderLoad(t, "", []string{"a", "b", "c", "x"})
	})
}

// fullest returns the highest utilization of a locality, as a part of its ceiling, and of
// requests per ready Pod, as a multiple of the mean, by the plan. A broken invariant fails
// the test.
func fullest(t *testing.T, s *server.Server, ready map[string]int) (used, crowded float64) {
	t.Helper()
	var v admin.PlanView
	if err := json.Unmarshal([]byte(get(t, "http://"+s.AdminAddress()+"/v1/plan?service=checkout.shop:80")), &v); err != nil || len(v.Services) != 1 {
		t.Fatalf("plan of %d services: %v", len(v.Services), err)
	}
	if len(v.Violations) > 0 {
		t.Errorf("violations %v", v.Violations)
	}
	load, pods := 0.0, 0
	for _, l := range v.Services[0].Localities {
		load += l.Load
		pods += ready[l.Locality.String()]
	}
	for _, l := range v.Services[0].Localities {
		used = max(used, l.Utilization/l.Ceiling)
		if n := ready[l.Locality.String()]; n > 0 && load > 0 {
			crowded = max(crowded, l.Load/float64(n)*float64(pods)/load)
		}
	}
	return used, crowded
}

func rolloutUnderLoad(t *testing.T, capacity string, zones []string) {
	t.Helper()
	declared := capacity != ""
	c, k := newZones(t)
	k.programs = newPrograms(t)
	c.defineResources()
	c.deploy("shop", "checkout", int32(*pods))
	if err := c.policy("checkout", `{"targetRefs": [{"kind": "Service", "name": "checkout"}], "mode": "Full"`+capacity+`}`); err != nil {
		t.Fatal(err)
	}
	s := serve(t, fmt.Sprintf("xds: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\nstop_spread: 0s\ntick: 1s\nreport_interval: 1s\nstate_dir: %s\n"+
		"discovery: {kubernetes: {kubeconfig: %s, selector: %s, policies: true}}\n", filepath.Join(t.TempDir(), "state"), c.kubeconfig(c.tokenOf()), balanced))
	ready := func() bool {
		got, _ := k.addresses()
		return len(got) == *pods
	}
	eventually(t, 3*time.Minute, "all Pods are ready", ready)
	load := callersOf(t, s.XDSAddress(), "checkout.shop:80", zones, 25, nil)
	conn, err := grpc.NewClient(s.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	outside, err := fleet.NewAgent(fleet.AgentOptions{
		Conn: conn, ID: "outside", Cluster: "web", Locality: isobar.Locality{Region: "us", Zone: "x"}, Services: []string{"checkout.shop:80"},
	})
	if err != nil {
		t.Fatal(err)
	}
	go outside.Run(t.Context())
	eventually(t, 30*time.Second, "weights", func() bool { return len(outside.Shares("checkout.shop:80")) == 3 })
	<-time.After(5 * time.Second)

	k.mu.Lock()
	k.startup = time.Second
	k.mu.Unlock()
	before, _ := k.addresses()
	podsWere, slicesWere := c.watchPods("shop"), c.watchSlices("shop", "checkout")
	busy := newBusyness(t)
	began := time.Now()
	c.patchDeployment("shop", "checkout", map[string]any{
		"strategy": map[string]any{"rollingUpdate": map[string]any{"maxSurge": 25, "maxUnavailable": 0}},
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]string{"name": "main", "image": "example.invalid/main:2"}}}},
	})
	var points []float64
	var late lateness
	used, crowded := 0.0, 0.0
	for done := false; !done; <-time.After(50 * time.Millisecond) {
		now, zones := time.Now(), k.readyZones()
		if now.Sub(began) > 2*time.Second {
			split := splitByZone(outside.Shares("checkout.shop:80"))
			points = append(points, podsWere.behind(split, now, 2*time.Second))
			late.see(now, split, slicesWere, podsWere)
			u, many := fullest(t, s, zones)
			used, crowded = max(used, u), max(crowded, many)
		}
		if now.Sub(began) > 5*time.Minute {
			t.Fatal("the rollout does not end")
		}
		got, _ := k.addresses()
		done = len(got) == *pods
		for address := range got {
			done = done && !before[address]
		}
	}
	took := time.Since(began)
	failed, errs := load.failures()
	slices.Sort(points)
	t.Logf("%d Pods in %s (%.1f a second); %d requests, %d failed, answered after %s",
		*pods, took.Round(100*time.Millisecond), float64(*pods)/took.Seconds(), load.sent.Load(), failed, load.times())
	t.Logf("weights of clients outside of the zones: 2 s late by %.2f points (median; 99%%: %.2f, most %.2f); the fullest zone had %.2f of its ceiling, and per ready Pod %.2f times the mean",
		points[len(points)/2], points[len(points)*99/100], points[len(points)-1], used, crowded)
	t.Logf("within 2 points %s; %s", &late, busy)
	if failed > 0 {
		t.Errorf("failures %v", errs)
	}
	if declared {
		late.check(t)
	}
	if used > 1 {
		t.Errorf("a zone has %.2f of its ceiling", used)
	}

	// Pods that die without grace fail what they work on, and nothing else does.
	<-time.After(5 * time.Second)
	failed, _ = load.failures()
	var list corev1.PodList
	c.do(http.MethodGet, "/api/v1/namespaces/shop/pods", nil, &list)
	killed := map[string]bool{"": true} // a request that found no connection
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil && len(killed) <= 10 {
			killed[k.kill(p)] = true
		}
	}
	eventually(t, time.Minute, "the Pods are replaced", ready)
	<-time.After(3 * time.Second)
	load.stop()
	after, errs := load.failures()
	t.Logf("10 Pods killed: %d of all %d requests failed", after-failed, load.sent.Load())
	maps.DeleteFunc(errs, func(address, _ string) bool { return killed[address] })
	if len(errs) > 0 {
		t.Errorf("failures of others: %v", errs)
	}
}
