package xds_test

import (
	"strconv"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/xds"
)

func TestWildcards(t *testing.T) {
	t.Run("clusters, by an empty list", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1), serve("b", 2))
			c := w.ads(at("us-east/b"))
			c.request(cdsURL).equals("cds v1: a b").ack(cdsURL).nothing()
			w.publish(serve("c", 3))
			c.equals("cds v2: a b c").ack(cdsURL).nothing()
			c.request(cdsURL).nothing()
			// Naming resources ends the wildcard.
			c.request(cdsURL, "b", "c").equals("cds v2: b c").ack(cdsURL)
			w.publish(serve("d", 4))
			c.nothing()
			c.request(cdsURL).nothing() // and now an empty list means none
			w.publish(withORCA("b"))
			c.nothing()
		})
	})
	t.Run("clusters, by a star", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			c := w.ads(at("us-east/b"))
			c.request(cdsURL, "late").equals("cds v1:").ack(cdsURL).nothing()
			c.request(cdsURL, "*", "late").equals("cds v1: a").ack(cdsURL).nothing()
			w.publish(serve("late", 2), serve("c", 3))
			c.equals("cds v2: a c late").ack(cdsURL).nothing()
			c.request(cdsURL, "late").nothing()
			w.publish(withORCA("a"))
			c.nothing()
		})
	})
	t.Run("listeners are for those who name them", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			c := w.ads(at("us-east/b"))
			c.request(ldsURL).equals("lds v1:").ack(ldsURL).nothing()
			w.publish(serve("b", 1))
			c.nothing()
			c.request(ldsURL, "*", "b").equals("lds v2: b").ack(ldsURL).nothing()
		})
	})
	t.Run("endpoints have none", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			w.ads(at("us-east/b")).request(edsURL).nothing().request(edsURL, "*").nothing()
		})
	})
}

func TestEndpointsFollowChangedClusters(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(cdsURL).equals("cds v1: a b").ack(cdsURL)
		c.request(edsURL, "a", "b").equals("eds v1: a@1 b@2").ack(edsURL).nothing()
		w.publish(withORCA("b"))
		c.equals("cds v2: a b+orca", "eds v2: b@2").ack(cdsURL).ack(edsURL).nothing()
	})
}

func TestMakeBeforeBreak(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("old", 1), serve("other", 2))
		c := w.ads(at("us-east/b"))
		c.request(cdsURL).equals("cds v1: old other").ack(cdsURL)
		c.request(edsURL, "old", "other", "new").equals("eds v1: old@1 other@2").ack(edsURL)
		c.request(ldsURL, "old", "new").equals("lds v1: old").ack(ldsURL)
		c.request(rdsURL, "old", "new").equals("rds v1: old").ack(rdsURL).nothing()

		w.publish(without("old"), serve("new", 3), serve("other", 4))
		// What is new goes first, with what is to go still in place; then,
		// once that is accepted, what is gone goes.
		c.equals("cds v2: new old other", "eds v2: new@3 other@4", "lds v2: new", "rds v2: new")
		c.ack(edsURL).equals("eds v2: old@none").ack(edsURL).ack(ldsURL).ack(rdsURL).nothing()
		c.ack(cdsURL).equals("cds v2: new other").ack(cdsURL).nothing()
	})
}

func TestRemovalWaitsForRoutes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(cdsURL).equals("cds v1: a b").ack(cdsURL)
		c.request(ldsURL, "a", "b").equals("lds v1: a b") // not accepted yet
		w.publish(without("b"))
		c.nothing()
		c.ack(ldsURL).equals("lds v2: a", "cds v2: a")
	})
}

func TestEndpointsOfARemovedServiceAreEmptied(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.open(edsMethod, at("us-east/b"), true)
		c.request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		w.publish(without("a"))
		c.equals("eds v2: a@none").ack(edsURL).nothing()
		w.publish()
		c.nothing()
		w.publish(serve("a", 1))
		c.equals("eds v4: a@1").ack(edsURL).nothing()
	})
}

// Clients refuse messages beyond 4 MiB: what is added last counts, too, and so do
// the names of what is gone.
func TestAnswersStayWithinTheirSize(t *testing.T) {
	const limit = 500
	size := func(o *xds.Options) { o.ResponseSize = limit }
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2), serve("c", 3), serve("d", 4), serve("e", 5), serve("f", 6), serve("g", 7))
		names := []string{"a", "b", "c", "d", "e", "f", "g"}
		for range 9 {
			names = append(names, strings.Repeat("x", 90)+strconv.Itoa(len(names)))
		}
		c := w.delta(at("us-east/b")).subscribe(edsURL, names...)
		resources, removed := 0, 0
		for range 10 {
			for _, m := range c.take() {
				r := m.(*discoveryv3.DeltaDiscoveryResponse)
				resources += len(r.GetResources())
				removed += len(r.GetRemovedResources())
				body := 0
				for _, e := range r.GetResources() {
					body += proto.Size(e.GetResource())
				}
				for _, n := range r.GetRemovedResources() {
					body += len(n)
				}
				if body > limit {
					t.Errorf("an answer of %d bytes", body)
				}
				c.ack(edsURL)
			}
		}
		if resources != 7 || removed != 9 {
			t.Errorf("%d resources and %d removals, want 7 and 9", resources, removed)
		}
	}, size)
}

func TestLargeAnswersAreContinued(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2), serve("c", 3))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a", "b", "c").equals("eds v1: a@1").ack(edsURL).equals("eds v1: b@2").ack(edsURL).equals("eds v1: c@3").ack(edsURL).nothing()
		// A full set cannot be cut.
		w.ads(at("us-east/b")).request(cdsURL).equals("cds v1: a b c")
	}, smallResponses)
}
