package kubernetes_test

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// sampleOfZones is which share of the ready Pods each zone had at a time.
type sampleOfZones struct {
	at    time.Time
	share map[string]float64
}

// behind returns by how much a split differs from that of the ready Pods, in points, at
// the moment of the last two seconds that is nearest to it.
func behind(split map[isobar.Locality]float64, history []sampleOfZones, now time.Time) float64 {
	least := math.Inf(1)
	for i := len(history) - 1; i >= 0 && now.Sub(history[i].at) <= 2*time.Second; i-- {
		most := 0.0
		for _, zone := range []string{"us/a", "us/b", "us/c"} {
			l, err := isobar.ParseLocality(zone)
			if err != nil {
				return least
			}
			most = max(most, 100*math.Abs(split[l]-history[i].share[zone]))
		}
		least = min(least, most)
	}
	return least
}

// TestRolloutUnderLoad replaces -pods Pods in three zones, ten a second, under the load of
// gRPC clients outside of these zones, and kills some without grace: no other request
// fails, and the weights, which balance utilization, follow the Pods that are ready.
func TestRolloutUnderLoad(t *testing.T) {
	c, k := newZones(t)
	k.programs = newPrograms(t)
	c.defineResources()
	c.deploy("shop", "checkout", int32(*pods))
	if err := c.policy("checkout", `{"targetRefs": [{"kind": "Service", "name": "checkout"}], "mode": "Full", "capacity": {"maxRatePerEndpoint": 1}}`); err != nil {
		t.Fatal(err)
	}
	s := serve(t, fmt.Sprintf("xds: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\nstop_spread: 0s\ntick: 1s\nreport_interval: 1s\nstate_dir: %s\n"+
		"discovery: {kubernetes: {kubeconfig: %s, selector: %s, policies: true}}\n", filepath.Join(t.TempDir(), "state"), c.kubeconfig(c.tokenOf()), balanced))
	ready := func() bool {
		got, _ := k.addresses()
		return len(got) == *pods
	}
	eventually(t, 3*time.Minute, "all Pods are ready", ready)
	load := callersOf(t, s.XDSAddress(), "checkout.shop:80", []string{"x", "x", "x", "x"}, 25, nil)
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
	began := time.Now()
	c.patchDeployment("shop", "checkout", map[string]any{
		"strategy": map[string]any{"rollingUpdate": map[string]any{"maxSurge": 25, "maxUnavailable": 0}},
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]string{"name": "main", "image": "example.invalid/main:2"}}}},
	})
	var history []sampleOfZones
	var late []float64
	for done := false; !done; <-time.After(50 * time.Millisecond) {
		now, total := time.Now(), 0
		zones := k.readyZones()
		for _, n := range zones {
			total += n
		}
		share := map[string]float64{}
		for zone, n := range zones {
			share[zone] = float64(n) / float64(total)
		}
		history = append(history, sampleOfZones{now, share})
		if now.Sub(began) > 2*time.Second {
			late = append(late, behind(outside.Shares("checkout.shop:80"), history, now))
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
	slices.Sort(late)
	t.Logf("%d Pods in %s (%.1f a second); %d requests, %d failed; weights of clients outside of the zones: 2 s late by %.2f points (median), %.2f at most",
		*pods, took.Round(100*time.Millisecond), float64(*pods)/took.Seconds(), load.sent.Load(), failed, late[len(late)/2], late[len(late)-1])
	if failed > 0 {
		t.Errorf("failures %v", errs)
	}
	if late[len(late)-1] > 2 {
		t.Errorf("weights are up to %.2f points off", late[len(late)-1])
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
