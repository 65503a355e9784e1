package xds_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/wire"
)

const (
	edsURL = wire.EndpointsURL
	cdsURL = wire.ClusterURL
	ldsURL = wire.ListenerURL
	rdsURL = wire.RouteURL
)

func TestFirstRequestIsAnsweredInFull(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		s := c.kind(edsURL)
		// As after a reconnect: version and nonce are of an earlier stream.
		s.version, s.nonce = "v1", "earlier-17"
		c.request(edsURL, "a", "b").equals("eds v1: a@1 b@2")
	})
}

func TestEachTypeHasItsOwnFirstRequest(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.ads(at("us-east/b"))
		c.request(ldsURL, "a").equals("lds v1: a").ack(ldsURL).nothing()
		c.request(rdsURL, "a").equals("rds v1: a").ack(rdsURL).nothing()
		c.request(cdsURL, "a").equals("cds v1: a").ack(cdsURL).nothing()
		c.request(edsURL, "a").equals("eds v1: a@1").ack(edsURL).nothing()
	})
}

func TestUnchangedContentIsNotPushed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a", "b").equals("eds v1: a@1 b@2").ack(edsURL).nothing()
		w.publish()
		w.publish(serve("a", 1)) // another value of equal content
		c.nothing()
		w.publish(serve("b", 3))
		c.equals("eds v4: b@3").ack(edsURL).nothing()
	})
}

func TestNewlyAddedNamesAreSentEvenIfUnchanged(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a").equals("eds v1: a@1").ack(edsURL).nothing()
		c.request(edsURL, "a", "b").equals("eds v1: b@2").ack(edsURL).nothing()
		c.request(edsURL, "a").nothing()
		c.request(edsURL, "a", "b").equals("eds v1: b@2")
	})
}

func TestUnsubscribedNamesAreNotPushed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a", "b").equals("eds v1: a@1 b@2").ack(edsURL)
		c.request(edsURL, "b").nothing()
		w.publish(serve("a", 3))
		c.nothing()
		c.request(edsURL).nothing() // an empty list subscribes to nothing
		w.publish(serve("b", 4))
		c.nothing()
	})
}

func TestUnknownNamesArePushedWhenTheyAppear(t *testing.T) {
	for _, url := range []string{edsURL, rdsURL} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			c := w.ads(at("us-east/b"))
			c.request(url, "late").nothing()
			w.publish()
			c.nothing()
			w.publish(serve("late", 2))
			if got := c.settled(); len(got) != 1 {
				w.t.Errorf("%s: got %q, want the one resource", url, got)
			}
		})
	}
}

func TestNamesThatAppearAreAddedToFullSets(t *testing.T) {
	for _, url := range []string{ldsURL, cdsURL} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			c := w.ads(at("us-east/b"))
			kind := wire.KindOf(url).String()
			// The client learns at once what does not exist.
			c.request(url, "a", "late").equals(kind + " v1: a").ack(url).nothing()
			w.publish(serve("late", 2))
			c.equals(kind + " v2: a late").ack(url).nothing()
		})
	}
}

func TestStaleNonceIsIgnored(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a").equals("eds v1: a@1")
		stale := *c.kind(edsURL)
		c.ack(edsURL).nothing()
		w.publish(serve("a", 3))
		c.equals("eds v2: a@3")
		fresh := *c.kind(edsURL)
		*c.kind(edsURL) = stale
		c.request(edsURL, "a", "b").nothing()
		if got := w.clientType(wire.Endpoints); !got.Waiting || got.Acked != "v1" || got.Subscribed != 1 {
			w.t.Errorf("a stale request counted: %+v", got)
		}
		*c.kind(edsURL) = fresh
		c.request(edsURL, "a", "b").equals("eds v2: b@2")
	})
}

func TestRequestWithoutNonceChangesSubscriptionOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a").equals("eds v1: a@1")
		nonce := c.kind(edsURL).nonce
		c.kind(edsURL).nonce = ""
		c.request(edsURL, "a", "b").nothing() // one response at a time
		if !w.clientType(wire.Endpoints).Waiting {
			w.t.Error("a request without nonce counted as an answer")
		}
		c.kind(edsURL).nonce = nonce
		c.ack(edsURL).equals("eds v1: b@2")
	})
}

func TestRejectedContentIsNotSentAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a").equals("eds v1: a@1").nack(edsURL, "I do not like it").nothing()
		got := w.clientType(wire.Endpoints)
		if got.InSync || got.Waiting || got.Rejected != 1 || got.Acked != "" || got.Sent != "v1" ||
			got.LastNack == nil || got.LastNack.Text != "I do not like it" || got.LastNack.Version != "v1" {
			w.t.Errorf("after a NACK: %+v", got)
		}
		// A client in a loop of rejections gets no loop of responses.
		for range 50 {
			c.nack(edsURL, "still not")
		}
		c.nothing()
		w.publish()
		c.nothing()
		// Other content goes out meanwhile.
		c.request(edsURL, "a", "b").equals("eds v2: b@2").ack(edsURL).nothing()
		if w.clientType(wire.Endpoints).InSync {
			w.t.Error("in sync although a is still rejected")
		}
		w.publish(serve("a", 3))
		c.equals("eds v3: a@3").ack(edsURL).nothing()
		if got := w.clientType(wire.Endpoints); !got.InSync || got.Rejected != 0 || got.LastNack == nil {
			w.t.Errorf("after the mended content: %+v", got)
		}
	})
}

func TestRejectedFullSetIsNotSentAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.ads(at("us-east/b"))
		c.request(cdsURL).equals("cds v1: a").nack(cdsURL, "no").nothing()
		w.publish(serve("a", 2)) // its cluster is the same
		c.nothing()
		w.publish(serve("b", 2))
		c.equals("cds v3: a b").ack(cdsURL).nothing()
	})
}

func TestOnePushAtATime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 1))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a", "b").equals("eds v1: a@1 b@1")
		w.publish(serve("a", 2))
		w.publish(serve("b", 3))
		w.publish(serve("a", 4))
		c.nothing()
		// Another type is not held up by it.
		c.request(cdsURL, "a").equals("cds v4: a")
		c.ack(edsURL).equals("eds v4: a@4 b@3").ack(edsURL)
		// A change that was taken back meanwhile is no change; the cluster
		// that was sent has its endpoints follow.
		c.nothing()
	})
}

func TestChangeThatIsTakenBackIsNotSent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a").equals("eds v1: a@1")
		w.publish(serve("a", 2))
		w.publish(serve("a", 1))
		c.ack(edsURL).nothing()
	})
}

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

func TestNodeCountsInTheFirstMessageOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serveAt("a", "eu-west/a", 2))
		c := w.ads(at("eu-west/a"))
		c.request(edsURL, "a").equals("eds v1: a@2")
		c.node = at("us-east/b")
		c.ack(edsURL)
		w.publish(serveAt("a", "eu-west/a", 3), serveAt("a", "us-east/b", 4))
		c.equals("eds v2: a@3")
		got := w.server.Clients()
		if len(got) != 1 || got[0].Node != "node-eu-west-a" || got[0].Locality.String() != "eu-west/a" || got[0].Cluster != "frontend" {
			w.t.Errorf("clients: %+v", got)
		}
	})
}

func TestEachLocalityHasItsView(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serveAt("a", "eu-west/a", 2), serveAt("a", "", 3))
		w.ads(at("eu-west/a")).request(edsURL, "a").equals("eds v1: a@2")
		w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1")
		w.ads(nil).request(edsURL, "a").equals("eds v1: a@3")
	})
}

func TestSingleServices(t *testing.T) {
	for method, want := range map[string]string{cdsMethod: "cds v1: a", ldsMethod: "lds v1: a", rdsMethod: "rds v1: a", edsMethod: "eds v1: a@1"} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			w.open(method, at("us-east/b"), true).request("", "a").equals(want)
		})
	}
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
