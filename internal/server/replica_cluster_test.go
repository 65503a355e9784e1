package server_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/apitest"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// listed counts the endpoints of a service in the plan of a replica.
func (m *member) listed(service string) int {
	p := m.server.Plan()
	if p == nil {
		return 0
	}
	spec := p.Spec(service)
	if spec == nil {
		return -1
	}
	n := 0
	for i := range spec.Localities {
		n += len(spec.Localities[i].Endpoints)
	}
	return n
}

// TestKubernetesInAGroup asserts that replicas serve what the leader's watch lists, that a
// new leader goes on with it, removes at once endpoints that the cluster does not have,
// and removes no service before its watch has been complete for long.
func TestKubernetesInAGroup(t *testing.T) {
	api := apitest.New(t)
	api.Put(apitest.Node("n1", "us", "a"), apitest.Service("shop", "checkout"), apitest.Slice("shop", "checkout-1", "a", "10.1.0.1", "10.1.0.2"),
		apitest.Service("shop", "cart"), apitest.Slice("shop", "cart-1", "a", "10.1.0.3"))
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	config := func(n int) string {
		text := replicaConfig(t, string(rune('a'+n)), listen[n], election, "- {name: own, localities: [{locality: us/a, endpoints: [\"127.0.0.1:9\"]}]}\n", peers...)
		return text + "discovery: {kubernetes: {kubeconfig: " + api.Kubeconfig() + "}}\n"
	}
	a := startMember(t, config(0))
	testhelp.Eventually(t, "a leads and serves the cluster", func() bool { return a.listed("checkout.shop:80") == 2 && a.listed("own") == 1 })
	b := startMember(t, config(1))
	testhelp.Eventually(t, "b follows", func() bool {
		return b.group().Leader == "a" && b.listed("checkout.shop:80") == 2 && b.listed("cart.shop:80") == 1
	})
	testhelp.Eventually(t, "the owner on a follower", func() bool {
		var o isobar.Object
		b.read("/v1/services/checkout.shop:80", &o)
		return o.Owner == isobar.OwnerKubernetes
	})
	api.Put(apitest.Slice("shop", "checkout-1", "a", "10.1.0.1", "10.1.0.2", "10.1.0.4"))
	testhelp.Eventually(t, "a change of the cluster on both", func() bool { return a.listed("checkout.shop:80") == 3 && b.listed("checkout.shop:80") == 3 })
	if !a.group().Agreed {
		t.Error("the replicas' files differ")
	}

	a.end()
	testhelp.Eventually(t, "b leads", func() bool { return b.group().Leader == "b" })
	api.Put(apitest.Slice("shop", "checkout-1", "a", "10.1.0.4"))
	api.Remove(apitest.Service("shop", "cart"))
	testhelp.Eventually(t, "endpoints that are gone", func() bool { return b.listed("checkout.shop:80") == 1 })
	if n := b.listed("cart.shop:80"); n != 1 {
		t.Errorf("a leader that started a moment ago has %d endpoints of a Service that its watch does not have, want 1", n)
	}
}
