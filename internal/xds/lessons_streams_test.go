package xds_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// More of what other control planes have paid for: what became of streams that
// are slow, go away, or ask for something that is not there.

// want subscribes to names in the way of the stream.
func (c *client) want(url string, names ...string) {
	c.w.t.Helper()
	if c.delta {
		c.subscribe(url, names...)
	} else {
		c.request(url, names...)
	}
}

// What was missing was answered with the same rest again and again, or kept the
// stream from hearing of it when it came.
func TestUnknownNamesNeitherLoopNorStopChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("foo", 1))
		c := w.ads(at("us-east/b"))
		c.request(cdsURL, "foo", "bar").equals("cds v1: foo").ack(cdsURL)
		c.request(edsURL, "foo", "bar").equals("eds v1: foo@1")
		for range 100 {
			c.ack(edsURL).nothing()
			w.publish()
		}
		w.publish(serve("bar", 2))
		got := c.settled()
		if len(got) != 2 || got[0] != "cds v102: bar foo" || got[1] != "eds v102: bar@2" {
			t.Errorf("after bar appeared: %q", got)
		}
	})
}

// What is unsubscribed from and subscribed to again was taken for known, and the
// client, which had dropped it, waited in vain.
func TestSubscribedAgainIsSentAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a", "b").equals("eds v1: a@1 b@2").ack(edsURL)
		c.request(edsURL, "b").nothing()
		c.request(edsURL, "a", "b").equals("eds v1: a@1").ack(edsURL)
		c.request(edsURL).nothing()
		c.request(edsURL, "a").equals("eds v1: a@1").ack(edsURL).nothing()
	})
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.delta(at("us-east/b"))
		c.subscribe(edsURL, "a", "b").equals("eds v1: a@1 b@2").ack(edsURL)
		c.subscribe(edsURL, "-a").nothing()
		c.subscribe(edsURL, "a").equals("eds v1: a@1").ack(edsURL).nothing()
	})
}

// Two changes for a stream that did not read filled its channel, under the lock
// that its next request waited for: everybody stood still.
func TestStreamThatAsksWithoutReadingBlocksNobody(t *testing.T) {
	for _, method := range []string{adsMethod, adsDeltaMethod} {
		inWorld(t, func(w *world) {
			ports := make([]int, 20_000) // far more than the window of flow control
			for i := range ports {
				ports[i] = i + 1
			}
			big := func(p *testPlan) {
				p.assignments["big"] = assignmentOf("big", ports...)
				p.specs["big"] = &isobar.Service{Name: "big"}
			}
			w.publish(serve("a", 1), serve("b", 1), big)
			greedy, quick := w.open(method, at("us-east/b"), false), w.ads(at("us-east/b"))
			quick.request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
			for i := range 100 {
				for _, url := range []string{cdsURL, edsURL, ldsURL, rdsURL} {
					greedy.want(url, "a", "b", "big", fmt.Sprint("none", i))
				}
				w.publish(serve("a", i+2), serve("b", i+2))
				if got, want := quick.settled(), fmt.Sprintf("eds v%d: a@%d", i+2, i+2); len(got) != 1 || got[0] != want {
					t.Fatalf("the other stream got %q, want %s", got, want)
				}
			}
			greedy.cancel()
			synctest.Wait()
			if n := len(w.server.Clients()); n != 1 {
				t.Errorf("%d clients are left, want one", n)
			}
		})
	}
}

// A push that was not read within seconds ended its stream; the client came back
// and asked for everything, which took longer still.
func TestSlowReaderKeepsItsStream(t *testing.T) {
	inWorld(t, func(w *world) {
		ports := make([]int, 20_000)
		for i := range ports {
			ports[i] = i + 1
		}
		w.publish(serve("a", 1), func(p *testPlan) {
			p.assignments["big"] = assignmentOf("big", ports...)
			p.specs["big"] = &isobar.Service{Name: "big"}
		})
		slow := w.open(adsMethod, at("us-east/b"), false)
		slow.request(edsURL, "a", "big")
		for port := range 60 {
			<-time.After(time.Minute)
			w.publish(serve("a", port+2))
		}
		slow.resume()
		slow.equals("eds v1: a@1 big@1").ack(edsURL).equals("eds v61: a@61").ack(edsURL).nothing()
		if got := slow.status(); got.Code() != codes.OK {
			t.Errorf("after an hour: %v", got)
		}
	})
}

// Streams that ended, however they did, left goroutines and watches behind. What
// is left would keep this bubble from ending.
func TestStreamsThatEndAnyhowLeaveNothing(t *testing.T) {
	ask := func(c *client, ads bool) {
		names := []string{"a", "b", "none"}
		c.want(edsURL, names...)
		if ads {
			c.want(cdsURL, "a")
		}
	}
	for name, end := range map[string]func(w *world, c *client){
		"cancelled before anything was read": func(_ *world, c *client) { c.cancel() },
		"cancelled while a push waits":       func(w *world, c *client) { synctest.Wait(); w.publish(serve("a", 2)); c.cancel() },
		"half closed":                        func(_ *world, c *client) { _ = c.stream.CloseSend(); c.resume() },
		"half closed, unread":                func(_ *world, c *client) { _ = c.stream.CloseSend(); synctest.Wait(); c.cancel() },
		"all unsubscribed, then cancelled": func(_ *world, c *client) {
			if c.delta {
				c.subscribe(edsURL, "-a", "-b", "-none")
			} else {
				c.request(edsURL)
			}
			c.cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{adsMethod, adsDeltaMethod, edsMethod, edsDeltaMethod} {
				inWorld(t, func(w *world) {
					w.publish(serve("a", 1), serve("b", 1))
					for range 10 {
						c := w.open(method, at("us-east/b"), false)
						ask(c, method == adsMethod || method == adsDeltaMethod)
						end(w, c)
					}
					synctest.Wait()
					if n, m := len(w.server.Clients()), len(w.server.Subscriptions()); n != 0 || m != 0 {
						t.Errorf("%s: %d clients and %d subscriptions are left", method, n, m)
					}
				})
			}
		})
	}
}

// A stream that was ended for what it asked, while a change was on its way to
// it, took the whole server down: the change was sent on a closed channel.
func TestStreamEndedForItsRequestWhileAChangeComes(t *testing.T) {
	w := newWorld(t)
	w.publish(serve("a", 1))
	for port := 2; port < 200; port++ {
		c := w.open(adsMethod, at("us-east/b"), true)
		c.request(edsURL, "a")
		published := make(chan struct{})
		go func() {
			defer close(published)
			w.publish(serve("a", port))
		}()
		c.send(&discoveryv3.DiscoveryRequest{TypeUrl: edsURL, ResourceNames: []string{strings.Repeat("a", 3000)}}) // refused
		<-published
		<-c.stream.Context().Done()
	}
	testhelp.Eventually(t, "no stream is left", func() bool { return len(w.server.Clients()) == 0 && len(w.server.Subscriptions()) == 0 })
}

// Nothing was sent until everything was there, and for one cluster without
// endpoints that was never: proxies kept what they had, new ones got nothing.
func TestWhatIsMissingWithholdsNothingElse(t *testing.T) {
	inWorld(t, func(w *world) {
		unplanned := func(p *testPlan) { p.specs["unplanned"] = &isobar.Service{Name: "unplanned"} }
		w.publish(serve("a", 1), unplanned)
		fresh := w.ads(at("us-east/b"))
		fresh.request(cdsURL).equals("cds v1: a unplanned").ack(cdsURL)
		fresh.request(edsURL, "a", "unplanned").equals("eds v1: a@1").ack(edsURL)
		fresh.request(ldsURL, "a", "unplanned").equals("lds v1: a unplanned").ack(ldsURL)
		fresh.request(rdsURL, "a", "unplanned").equals("rds v1: a unplanned").ack(rdsURL)
		w.publish(serve("a", 2))
		fresh.equals("eds v2: a@2").ack(edsURL).nothing()
		w.publish(serve("unplanned", 3))
		fresh.equals("eds v3: unplanned@3").ack(edsURL).nothing()
		delta := w.delta(at("us-east/c"))
		w.publish(func(p *testPlan) { delete(p.assignments, "unplanned") })
		delta.subscribe(edsURL, "a").equals("eds v4: a@2").ack(edsURL)
		w.publish(serve("a", 5))
		delta.equals("eds v5: a@5")
		fresh.equals("eds v5: a@5")
	})
}
