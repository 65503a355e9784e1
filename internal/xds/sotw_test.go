package xds_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

const (
	edsURL = resource.EndpointsURL
	cdsURL = resource.ClusterURL
	ldsURL = resource.ListenerURL
	rdsURL = resource.RouteURL
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
			kind := resource.KindOf(url).String()
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
		if got := w.clientType(resource.Endpoints); !got.Waiting || got.Acked != "v1" || got.Subscribed != 1 {
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
		if !w.clientType(resource.Endpoints).Waiting {
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
		got := w.clientType(resource.Endpoints)
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
		if w.clientType(resource.Endpoints).InSync {
			w.t.Error("in sync although a is still rejected")
		}
		w.publish(serve("a", 3))
		c.equals("eds v3: a@3").ack(edsURL).nothing()
		if got := w.clientType(resource.Endpoints); !got.InSync || got.Rejected != 0 || got.LastNack == nil {
			w.t.Errorf("after the mended content: %+v", got)
		}
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
