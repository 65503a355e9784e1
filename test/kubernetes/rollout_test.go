package kubernetes_test

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
)

const balanced = "isobar.dev/balance=true"

// TestRollout replaces 100 Pods in three zones: at no moment has the service less
// healthy endpoints than the Deployment guarantees, or one whose Pod is gone; Pods that
// end drain.
func TestRollout(t *testing.T) {
	const replicas = 100
	c, k := newZones(t)
	c.deploy("shop", "checkout", replicas)
	i := watch(t, kubernetes.Cluster{Kubeconfig: c.kubeconfig(c.tokenOf()), Selector: balanced})
	full := func() bool {
		return maps.Equal(i.zones("checkout.shop:80"), map[string]int{"us/a": 34, "us/b": 33, "us/c": 33})
	}
	eventually(t, 90*time.Second, "all Pods are in force", full)
	k.mu.Lock()
	k.startup = time.Second
	k.mu.Unlock()
	c.patchDeployment("shop", "checkout", map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]string{"name": "main", "image": "example.invalid/main:2"}}}}})
	before, _ := k.addresses()
	least, drained, samples := replicas, 0, 0
	var stale time.Duration // longest time for which an endpoint outlived its Pod
	deadline := time.Now().Add(3 * time.Minute)
	for done := false; !done; {
		now := time.Now()
		if now.After(deadline) {
			t.Fatalf("the rollout does not end; zones %v", i.zones("checkout.shop:80"))
		}
		ready, gone := k.addresses()
		healthy, draining := 0, 0
		endpoints := i.endpoints("checkout.shop:80")
		for address, health := range endpoints {
			switch health {
			case isobar.Healthy:
				healthy++
			case isobar.Draining:
				draining++
			default:
				t.Errorf("endpoint %s is %s", address, health)
			}
			if at, is := gone[address]; is {
				stale = max(stale, now.Sub(at))
			}
		}
		least, drained = min(least, healthy), max(drained, draining)
		samples++
		done = len(ready) == replicas && len(endpoints) == replicas
		for address := range ready {
			done = done && !before[address]
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Logf("%d looks: at least %d of %d endpoints were healthy, at most %d drained; an endpoint outlived its Pod by at most %s", samples, least, replicas, drained, stale.Round(time.Millisecond))
	if least < replicas*8/10 || drained == 0 || stale > 5*time.Second {
		t.Errorf("healthy %d, draining %d, stale %s", least, drained, stale)
	}
	zones := i.zones("checkout.shop:80")
	for _, zone := range []string{"us/a", "us/b", "us/c"} {
		if zones[zone] < 25 {
			t.Errorf("zones %v", zones)
		}
	}
	var slices discoveryv1.EndpointSliceList
	c.do(http.MethodGet, "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", nil, &slices)
	t.Logf("%d slices at the end", len(slices.Items))
}

// TestScaling splits slices and joins them again: 250 Pods stand in three slices.
func TestScaling(t *testing.T) {
	c, k := newZones(t)
	k.grace = time.Second
	c.deploy("shop", "checkout", 250)
	i := watch(t, kubernetes.Cluster{Kubeconfig: c.kubeconfig(c.tokenOf()), Selector: balanced})
	for _, replicas := range []int{250, 30, 150, 0} {
		c.patchDeployment("shop", "checkout", map[string]any{"replicas": replicas})
		eventually(t, 90*time.Second, fmt.Sprintf("%d endpoints", replicas), func() bool {
			ready, _ := k.addresses()
			endpoints := i.endpoints("checkout.shop:80")
			same := len(ready) == replicas && len(endpoints) == replicas
			for address := range endpoints {
				same = same && ready[address]
			}
			return same
		})
	}
}

// TestConditions: a Pod whose readiness fails leaves, and most of them at once stay as
// endpoints of last resort; a zone whose Node is deleted loses its endpoints.
func TestConditions(t *testing.T) {
	c, k := newZones(t)
	c.deploy("shop", "checkout", 9)
	i := watch(t, kubernetes.Cluster{Kubeconfig: c.kubeconfig(c.tokenOf()), Selector: balanced})
	healthy := func(n int) func() bool {
		return func() bool {
			got := 0
			for _, count := range i.zones("checkout.shop:80") {
				got += count
			}
			return got == n
		}
	}
	eventually(t, 60*time.Second, "9 healthy endpoints", healthy(9))
	var pods corev1.PodList
	c.do(http.MethodGet, "/api/v1/namespaces/shop/pods", nil, &pods)
	unready := func(from, to int, ready bool) {
		t.Helper()
		for n := from; n < to; n++ {
			if err := k.setReady(&pods.Items[n], pods.Items[n].Status.PodIP, ready); err != nil {
				t.Fatal(err)
			}
		}
	}
	unready(0, 1, false)
	eventually(t, 20*time.Second, "one endpoint left", func() bool { return healthy(8)() && len(i.endpoints("checkout.shop:80")) == 8 })
	unready(0, 1, true)
	eventually(t, 20*time.Second, "it is back", healthy(9))
	unready(0, 6, false)
	eventually(t, 20*time.Second, "6 of 9 endpoints are kept as unhealthy", func() bool {
		return healthy(3)() && len(i.endpoints("checkout.shop:80")) == 9
	})
	if held := i.status().Services[0].Held; held != 6 {
		t.Errorf("%d are held, want 6", held)
	}
	unready(0, 6, true)
	eventually(t, 20*time.Second, "all are back", healthy(9))
	k.lose("node-a")
	eventually(t, 30*time.Second, "Pods in two zones", func() bool {
		zones := i.zones("checkout.shop:80")
		return len(zones) == 2 && zones["us/b"]+zones["us/c"] == 9
	})
}

// TestAPIGone: while the API server is away all endpoints stay, and what happened in
// the meantime is in force soon after it is back.
func TestAPIGone(t *testing.T) {
	c, k := newZones(t)
	c.deploy("shop", "checkout", 12)
	i := watch(t, kubernetes.Cluster{Kubeconfig: c.kubeconfig(c.tokenOf()), Selector: balanced})
	eventually(t, 60*time.Second, "12 endpoints", func() bool { return len(i.endpoints("checkout.shop:80")) == 12 })
	before := i.endpoints("checkout.shop:80")
	c.stopAPIServer()
	i.until(30*time.Second, "the loss is noticed", func(s kubernetes.Status) bool { return !s.Unconfirmed.IsZero() })
	for end := time.Now().Add(*gone); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		if now := i.endpoints("checkout.shop:80"); !maps.Equal(now, before) {
			t.Fatalf("endpoints %v, want %v", now, before)
		}
	}
	c.startAPIServer()
	back := time.Now()
	i.until(15*time.Second, "all is watched again", func(s kubernetes.Status) bool { return s.Unconfirmed.IsZero() })
	watched := time.Since(back)
	c.patchDeployment("shop", "checkout", map[string]any{"replicas": 15})
	eventually(t, 90*time.Second, "15 endpoints", func() bool {
		ready, _ := k.addresses()
		return len(ready) == 15 && len(i.endpoints("checkout.shop:80")) == 15
	})
	t.Logf("%s without the API server; %s after it was back all is watched again, and %s after it the controllers' new Pods are in force",
		*gone, watched.Round(100*time.Millisecond), time.Since(back).Round(100*time.Millisecond))
}
