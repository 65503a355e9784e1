package kubernetes_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/apitest"
)

// onNode is a slice whose endpoints are on a Node.
func onNode(node string, addresses ...string) apitest.Object {
	o := slice("shop", "checkout-9", "a", addresses...)
	s, _ := o.(*discoveryv1.EndpointSlice)
	for i := range s.Endpoints {
		s.Endpoints[i].NodeName = &node
	}
	return s
}

// placed returns where a client on a Node is, or why that is not known.
func (w *world) placed(node, address string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 50*time.Millisecond)
	defer cancel()
	where, err := w.provider.Place(ctx, node, netip.MustParseAddr(address))
	if err != nil {
		return err.Error()
	}
	return where.String()
}

// TestClientsAreOnNodes: a client that names its Node is in the zone of the Node, unless
// its address is that of a Pod elsewhere; a Node that is new is waited for, and Nodes are
// known over restarts without the API server.
func TestClientsAreOnNodes(t *testing.T) {
	w := newWorld(t, nil)
	w.api.Put(onNode("n2", "10.1.0.9"))
	w.run(func() {
		w.wants(both + " 10.1.0.9")
		for _, c := range []struct{ node, address, want string }{
			{"n1", "10.9.9.9", "east/a"},
			{"n2", "10.1.0.9", "east/b"},
			{"n2", "::ffff:10.1.0.9", "east/b"},
			{"n1", "10.1.0.1", "east/a"}, // the slice does not say on which Node it is
			{"n1", "10.1.0.9", "10.1.0.9 is the address of a Pod on Node n2"},
			{"n7", "10.9.9.9", "the cluster has no Node n7"},
		} {
			if got := w.placed(c.node, c.address); got != c.want {
				t.Errorf("a client on %s at %s: %s, want %s", c.node, c.address, got, c.want)
			}
		}
		w.api.Put(onNode("n1", "10.1.0.9")) // a new Pod has the address
		if !eventually(func() bool { return w.placed("n1", "10.1.0.9") == "east/a" }) {
			t.Error("the address is not known to be on n1")
		}
		w.api.Put(node("n3", "east", ""))
		if !eventually(func() bool {
			return strings.HasPrefix(w.placed("n3", "10.9.9.9"), "Node n3 has no zone: label it with")
		}) {
			t.Errorf("a Node without a zone: %s", w.placed("n3", "10.9.9.9"))
		}
		came := make(chan string, 1)
		go func() {
			where, err := w.provider.Place(t.Context(), "n4", netip.Addr{})
			if err != nil {
				t.Error(err)
			}
			came <- where.String()
		}()
		w.api.Put(node("n4", "east", "d"))
		if got := <-came; got != "east/d" {
			t.Errorf("a Node that came late is in %s", got)
		}
	})
	w.api.Down()
	w.run(func() {
		if got := w.placed("n4", "10.9.9.9"); got != "east/d" {
			t.Errorf("after a restart without the API server: %s", got)
		}
		if got := w.placed("n7", "10.9.9.9"); got != "the Nodes of the cluster are not listed yet" {
			t.Errorf("after a restart without the API server: %s", got)
		}
	})
}

// TestNodesThatMayNotBeRead: clients are told from nothing then.
func TestNodesThatMayNotBeRead(t *testing.T) {
	w := newWorld(t, func(c *kubernetes.Config) { c.Places.Regions = map[string]string{"a": "east"} })
	w.api.Forbid("nodes", true)
	w.run(func() {
		w.wants(both)
		if got := w.placed("n1", "10.9.9.9"); got != "the service account may not list and watch nodes, by a ClusterRole" {
			t.Error(got)
		}
	})
}
