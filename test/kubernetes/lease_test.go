package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/enginetest"
	lease "github.com/isobar-xds/isobar/internal/replica/engine/kubernetes"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

const (
	leases = "/apis/coordination.k8s.io/v1/namespaces/isobar/leases"
	states = "/apis/isobar.dev/v1alpha1/namespaces/isobar/operatorstates"
)

// api returns how engines reach the API server.
func (c *cluster) api(token string) *rest.Config {
	c.t.Helper()
	cluster := kubernetes.Cluster{Kubeconfig: c.kubeconfig(token)}
	cfg, err := cluster.REST()
	if err != nil {
		c.t.Fatal(err)
	}
	return cfg
}

// openLease opens the engine of a replica on a Lease that runs out after 2 s.
func openLease(t *testing.T, cfg *rest.Config, name string, self group.Identity) *lease.Engine {
	t.Helper()
	e, err := lease.Open(lease.Options{Config: cfg, Namespace: "isobar", Lease: name, Group: "test", Self: self, Duration: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// TestLease holds the engine to the rules of all engines, and to its own.
func TestLease(t *testing.T) {
	c := newCluster(t)
	c.namespace("isobar")
	c.namespace("shop")
	c.defineResources()
	cfg, number := c.api(adminToken), 0
	fresh := func() string {
		number++
		return fmt.Sprintf("group-%d", number)
	}
	enginetest.Run(t, func(*testing.T) enginetest.Open {
		name := fresh()
		return func(t *testing.T, self group.Identity) engine.Engine { //nolint:thelper // it opens an engine
			e, err := lease.Open(lease.Options{Config: cfg, Namespace: "isobar", Lease: name, Group: "test", Self: self})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	})
	a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
	claim := func(of group.Identity, epoch uint64) group.Claim {
		return group.Claim{Epoch: epoch, Leader: of, First: epoch*(group.BlockSize+1) + 1}
	}
	lead := func(e engine.Engine, of group.Identity, before group.Claim, epoch uint64) group.Claim {
		if s := enginetest.Do(t, e, group.Request{Op: group.OpAcquire}); s.Holder != of {
			t.Fatalf("%s leads, want %s", s.Holder, of)
		}
		next := claim(of, epoch)
		if s := enginetest.Do(t, e, group.Request{Op: group.OpClaim, Previous: before, Claim: next}); s.Claim != next {
			t.Fatalf("%s is claimed, want %s", s.Claim, next)
		}
		return next
	}
	parts := func(name string) []string {
		t.Helper()
		var list struct {
			Items []metav1.PartialObjectMetadata `json:"items"`
		}
		c.do(http.MethodGet, states+"?labelSelector=isobar.dev%2Flease%3D"+name, nil, &list)
		var out []string
		for i := range list.Items {
			out = append(out, list.Items[i].Name)
		}
		return out
	}

	t.Run("a leader that renews no more is replaced", func(t *testing.T) {
		name := fresh()
		first, second := openLease(t, cfg, name, a), openLease(t, cfg, name, b)
		one := lead(first, a, group.Claim{}, 1)
		began := time.Now()
		eventually(t, 20*time.Second, "b leads", func() bool {
			if time.Since(began) < 1500*time.Millisecond { // a renews for a while
				enginetest.Do(t, first, group.Request{Op: group.OpRenew})
			}
			return enginetest.Do(t, second, group.Request{Op: group.OpAcquire}).Holder == b
		})
		if took := time.Since(began); took < 3400*time.Millisecond || took > 10*time.Second {
			t.Errorf("b leads after %s, want 2 s after the last renewal", took)
		}
		if s := enginetest.Do(t, first, group.Request{Op: group.OpRenew}); s.Holder != b || s.Claim != one {
			t.Errorf("a sees %+v", s)
		}
		if err := first.WriteOperators(t.Context(), one, 0, 1, []engine.Change{{Key: "x", Data: []byte("1")}}); !errors.Is(err, engine.ErrNotLeading) {
			t.Errorf("a wrote: %v", err)
		}
		if left := parts(name); len(left) > 0 {
			t.Errorf("a write that was refused left %q", left)
		}
	})

	t.Run("writes are compacted, and only what counts stays", func(t *testing.T) {
		name := fresh()
		e := openLease(t, cfg, name, a)
		one := lead(e, a, group.Claim{}, 1)
		want := map[string]string{}
		for i := range uint64(80) {
			key := fmt.Sprintf("health/x/%d", i%7)
			want[key] = fmt.Sprint(i)
			if err := e.WriteOperators(t.Context(), one, i, i+1, []engine.Change{{Key: key, Data: []byte(want[key])}}); err != nil {
				t.Fatal(err)
			}
			enginetest.Do(t, e, group.Request{Op: group.OpRenew}) // between writes the Lease changes
		}
		has(t, e, 80, want)
		if left := parts(name); len(left) > 32 {
			t.Errorf("%d objects for 7 entries", len(left))
		}
		// What an earlier leader made and nothing lists is removed by the next one.
		var object map[string]any
		c.do(http.MethodGet, states+"/"+parts(name)[0], nil, &object)
		object["metadata"] = map[string]any{"name": name + "-left", "labels": map[string]string{"isobar.dev/lease": name, "isobar.dev/epoch": "1"}}
		c.create(states, object)
		enginetest.Do(t, e, group.Request{Op: group.OpRelease})
		second := openLease(t, cfg, name, b)
		two := lead(second, b, one, 2)
		if err := second.WriteOperators(t.Context(), two, 80, 81, nil); err != nil {
			t.Fatal(err)
		}
		if left := parts(name); slices.Contains(left, name+"-left") {
			t.Errorf("objects %q", left)
		}
		has(t, second, 81, want)
	})

	t.Run("what somebody deletes is written again", func(t *testing.T) {
		name := fresh()
		e := openLease(t, cfg, name, a)
		one := lead(e, a, group.Claim{}, 1)
		for i := range uint64(3) {
			if err := e.WriteOperators(t.Context(), one, i, i+1, []engine.Change{{Key: fmt.Sprint(i), Data: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
		}
		c.do(http.MethodDelete, states+"/"+parts(name)[0], nil, nil)
		has(t, e, 0, nil)
		if err := e.WriteOperators(t.Context(), one, 2, 4, nil); !errors.Is(err, engine.ErrStale) {
			t.Errorf("a write that builds on another one: %v", err)
		}
		if err := e.WriteOperators(t.Context(), one, 0, 4, []engine.Change{{Key: "all", Data: []byte("2")}}); err != nil {
			t.Fatal(err)
		}
		has(t, e, 4, map[string]string{"all": "2"})
		if left := parts(name); len(left) != 1 {
			t.Errorf("objects %q", left)
		}
		c.do(http.MethodDelete, leases+"/"+name, nil, nil)
		if s := enginetest.Do(t, e, group.Request{Op: group.OpRenew}); s.Holder.Name != "" || !s.Claim.IsZero() {
			t.Errorf("of a Lease that was deleted the engine says %+v", s)
		}
		has(t, e, 0, nil)
	})

	t.Run("Leases of others are refused", func(t *testing.T) {
		name, holder := fresh(), "someone-else"
		c.create(leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}})
		refused(t, openLease(t, cfg, name, a), "give each group a Lease of its own")
		name = fresh()
		lead(openLease(t, cfg, name, a), a, group.Claim{}, 1)
		other, err := lease.Open(lease.Options{Config: cfg, Namespace: "isobar", Lease: name, Group: "other", Self: b})
		if err != nil {
			t.Fatal(err)
		}
		refused(t, other, `it belongs to group "test", not to "other"`)
	})

	t.Run("a permission that is missing is named", func(t *testing.T) {
		refused(t, openLease(t, c.api("nobody"), fresh(), a), "provide credentials")
		c.create("/api/v1/namespaces/isobar/serviceaccounts", map[string]any{"metadata": map[string]string{"name": "isobar"}})
		refused(t, openLease(t, c.api(c.tokenOf()), fresh(), a), "give the service account get, create and update of leases.coordination.k8s.io")
	})
}

func refused(t *testing.T, e engine.Engine, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := e.Do(ctx, group.Request{Op: group.OpAcquire}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func has(t *testing.T, e engine.Operators, sequence uint64, want map[string]string) {
	t.Helper()
	w, err := e.ReadOperators(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for key, data := range w.Entries {
		got[key] = string(data)
	}
	if w.Sequence != sequence || !maps.Equal(got, want) {
		text, _ := json.Marshal(got)
		t.Fatalf("operators wrote %d: %s, want %d: %v", w.Sequence, text, sequence, want)
	}
}
