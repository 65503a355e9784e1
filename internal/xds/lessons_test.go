package xds_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds"
)

// What other control planes have paid for, one test each.

// An answer was withheld until a request named everything that there is.
func TestAnswerDoesNotWaitForRequestsThatNameEverything(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2), serve("c", 3))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "b").equals("eds v1: b@2").ack(edsURL)
		c.request(edsURL, "b", "unknown", "c").equals("eds v1: c@3")
	})
}

// Each rejection was answered with the same content: a loop as fast as the
// network.
func TestRejectionsDoNotLoop(t *testing.T) {
	for _, open := range []func(*world) *client{
		func(w *world) *client { return w.ads(at("us-east/b")).request(edsURL, "a") },
		func(w *world) *client { return w.delta(at("us-east/b")).subscribe(edsURL, "a") },
	} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			c := open(w)
			responses := 0
			for range 100 {
				for _, m := range c.take() {
					responses++
					c.nack(m.(interface{ GetTypeUrl() string }).GetTypeUrl(), "never")
				}
				w.publish()
			}
			if responses != 1 {
				w.t.Errorf("%d responses to a client that rejects all, want 1", responses)
			}
		})
	}
}

// A client that names in each answer what it wants, again, is answered, but not
// as fast as the network goes; changes still reach it.
func TestSubscriptionsInEveryAnswerDoNotLoop(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1), serve("b", 1))
			c := w.delta(at("us-east/b")).subscribe(edsURL, "a")
			responses, last := 0, ""
			answer := func() {
				for _, m := range c.take() {
					responses++
					last = describe(t, m)
					r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: edsURL, ResponseNonce: c.kind(edsURL).nonce, ResourceNamesSubscribe: []string{"a"}}
					if refuses {
						r.ErrorDetail = &statuspb.Status{Message: "never"}
					}
					c.send(r)
				}
			}
			for range 1000 {
				answer()
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // virtual time
			}
			if responses < 10 || responses > 12 {
				t.Errorf("refusing %v: %d responses in 10 s, want one a second and the first", refuses, responses)
			}
			w.publish(serve("a", 2))
			for range 200 {
				answer()
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // virtual time
			}
			if last != "eds v2: a@2" {
				t.Errorf("refusing %v: after a change it has %s", refuses, last)
			}
			// What it asks for again comes, too.
			c.subscribe(edsURL, "b")
			for range 300 {
				answer()
				if strings.Contains(last, "b@1") {
					return
				}
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // virtual time
			}
			t.Errorf("refusing %v: subscribed to b, got %s", refuses, last)
		})
	}
}

// A second push went out while the first was unanswered, and the answers were
// taken for each other's.
func TestPushesDoNotOvertakeAnswers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1")
		for port := 2; port < 50; port++ {
			w.publish(serve("a", port))
			c.nothing()
		}
		c.nack(edsURL, "the first is bad").equals("eds v49: a@49").ack(edsURL).nothing()
		if got := w.server.Clients()[0].Types[0]; got.Acked != "v49" || got.LastNack.Version != "v1" {
			w.t.Errorf("the answers are mixed up: %+v", got)
		}
	})
}

// After an unsubscribe the answer held what was no longer asked for.
func TestAnswerAfterUnsubscribeIsNotStale(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 1))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a", "b").equals("eds v1: a@1 b@1")
		w.publish(serve("a", 2), serve("b", 2)) // waits for the answer
		c.request(edsURL, "b").equals("eds v2: b@2").ack(edsURL).nothing()
		c.request(cdsURL, "a", "b").equals("cds v2: a b", "eds v2: b@2")
		w.publish(withORCA("a"), withORCA("b"))
		c.ack(edsURL) // nothing new there; the clusters are still unanswered
		c.nothing()
		c.kind(cdsURL).names = []string{"b"}
		c.ack(cdsURL).equals("cds v3: b+orca", "eds v3: b@2")
	})
}

// A change between two requests of a stream was lost.
func TestNoChangeIsMissedBetweenRequests(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 1))
		c := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1")
		w.publish(serve("b", 2))
		synctest.Wait() // it has reached the stream
		c.ack(edsURL)
		c.request(edsURL, "a", "b").equals("eds v2: b@2").ack(edsURL)
		w.publish(serve("b", 3), serve("a", 3))
		c.equals("eds v3: a@3 b@3")
	})
}

// A stream that ended while something was being sent took the server down, or
// left its watches behind. Many streams subscribe, unsubscribe, reject, stall
// and leave while plans are published; then all that are left agree.
func TestChurn(t *testing.T) {
	w := newWorld(t)
	names := make([]string, 12)
	for i := range names {
		names[i] = fmt.Sprint("s", i)
	}
	all := make([]edit, len(names))
	for i, n := range names {
		all[i] = serve(n, 1)
	}
	w.publish(all...)
	var clients sync.WaitGroup
	for i := range 40 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 4 {
				churn(w, random, names)
			}
		})
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		clients.Wait()
	}()
	random := rand.New(rand.NewPCG(2, 2))
	for port := 2; ; port++ {
		n := names[random.IntN(len(names))]
		switch {
		case random.IntN(4) > 0 || w.plan.specs[n] == nil:
			w.publish(serve(n, 1+port%50_000))
		case random.IntN(2) == 0:
			w.publish(without(n))
		default:
			w.publish(withORCA(n))
		}
		w.server.Subscriptions()
		w.server.Clients()
		select {
		case <-gone:
			testhelp.Eventually(t, "no stream is left", func() bool { return len(w.server.Clients()) == 0 && len(w.server.Subscriptions()) == 0 })
			return
		default:
		}
	}
}

// churn is the life of one stream.
func churn(w *world, random *rand.Rand, names []string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(w.conn).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return // the test is over
	}
	localities := []string{"us-east/b", "us-east/c", "eu-west/a"}
	node := at(localities[random.IntN(len(localities))])
	urls := []string{cdsURL, edsURL, ldsURL, rdsURL}
	for _, url := range urls {
		_ = stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: url, ResourceNames: []string{names[random.IntN(len(names))]}})
	}
	for range 1 + random.IntN(30) {
		m, err := stream.Recv()
		if err != nil {
			w.t.Errorf("the server ended a stream: %v", err)
			return
		}
		r := &discoveryv3.DiscoveryRequest{TypeUrl: m.GetTypeUrl(), VersionInfo: m.GetVersionInfo(), ResponseNonce: m.GetNonce()}
		for _, n := range names {
			// All assignments, so that there is always news to wait for.
			if m.GetTypeUrl() == edsURL || random.IntN(2) == 0 {
				r.ResourceNames = append(r.ResourceNames, n)
			}
		}
		switch random.IntN(8) {
		case 0:
			return // without a word
		case 1:
			_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: "stale", ResourceNames: names})
		case 2:
			r.ErrorDetail = &statuspb.Status{Message: "no"}
		}
		_ = stream.Send(r)
	}
	_ = stream.CloseSend()
}

// One stream's rejections are its own: another in the same locality gets what
// it asks for.
func TestRejectionIsPerClient(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1").nack(edsURL, "no").nothing()
		w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL).nothing()
		i := slices.IndexFunc(w.server.Clients(), func(c xds.Client) bool { return c.InSync })
		if i != 1 {
			w.t.Errorf("clients: %+v", w.server.Clients())
		}
	})
}

// Envoy's unified mux shows the nonce that it accepted last in requests that
// answer nothing: also after it has rejected another, and what it then asks for
// is what it wants.
func TestNewNamesAfterANack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 1))
		c := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		good := *c.kind(edsURL)
		w.publish(serve("a", 2))
		c.equals("eds v2: a@2").nack(edsURL, "no").nothing()
		c.send(&discoveryv3.DiscoveryRequest{
			TypeUrl: edsURL, VersionInfo: good.version, ResponseNonce: good.nonce, ResourceNames: []string{"a", "b"},
		})
		c.equals("eds v2: b@1")
	})
}
