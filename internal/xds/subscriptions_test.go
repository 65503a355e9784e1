package xds_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// To ask who subscribes to what waits for no encoding: while a publication is on its way,
// what is new in it counts as acknowledged by nobody, and all else as before.
func TestSubscriptionsWhileAPublicationIsOnItsWay(t *testing.T) {
	inWorld(t, func(w *world) {
		encoding := make(chan struct{})
		w.builder = view.NewBuilder(view.Options{Refused: func(view.Refusal) { <-encoding }})
		w.publish(serve("a", 1), serve("b", 1))
		c := w.ads(at("us-east/b")).request(edsURL, "a", "b")
		c.take()
		c.ack(edsURL).nothing()
		acknowledged := func(service string, want int) {
			t.Helper()
			for _, s := range w.server.Subscriptions() {
				if s.Service == service && (s.Streams != 1 || s.Acked != want || s.AckedAt.IsZero() != (want == 0)) {
					t.Errorf("%+v, want %d that acknowledged it", s, want)
				}
			}
			if n := len(w.server.Subscriptions()); n != 2 {
				t.Errorf("%d subscriptions, want 2", n)
			}
		}
		acknowledged("a", 1)
		acknowledged("b", 1)

		broken := assignmentOf("b", 2)
		broken.Priorities[0][0].Endpoints[0].Address = "nowhere"
		w.publish(func(p *testPlan) { p.assignments["b"] = broken })
		synctest.Wait() // the publication waits for the encoding
		acknowledged("a", 1)
		acknowledged("b", 0)

		close(encoding)
		synctest.Wait()
		acknowledged("a", 1)
		acknowledged("b", 1) // the broken assignment was refused: clients have the last good one
	})
}

// TestWhoMaySubscribe: the node of a stream is asked about once, and a stream
// that is not welcome is told why.
func TestWhoMaySubscribe(t *testing.T) {
	asked := 0
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		stranger := w.ads(at("eu-west/a")).request(edsURL, "a")
		if s := stranger.status(); s.Code() != codes.PermissionDenied || s.Message() != "not from eu-west/a" {
			t.Errorf("a stranger got %v", s)
		}
		w.ads(at("us-east/a")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL).request(edsURL, "a", "b").nothing()
		for service, want := range map[string]bool{"a": true, "b": true, "c": false} {
			if got := w.server.Subscribed(isobar.MustLocality("us-east/a"), service); got != want {
				t.Errorf("subscribed to %s: %v", service, got)
			}
		}
		if w.server.Subscribed(isobar.MustLocality("eu-west/a"), "a") {
			t.Error("who was refused has a subscription")
		}
		if asked != 2 {
			t.Errorf("asked about %d nodes, want 2", asked)
		}
	}, func(o *xds.Options) {
		o.Admit = func(_ context.Context, n rpc.Node) error {
			asked++
			if n.Locality.Region != "us-east" {
				return status.Error(codes.PermissionDenied, "not from "+n.Locality.String())
			}
			return nil
		}
	})
}

// TestWhoMayStillSubscribe: streams are asked about again, also the one that was
// being let in by the rules of before, and those that are welcome stay.
func TestWhoMayStillSubscribe(t *testing.T) {
	banned, during := "", func() {}
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		stays := w.ads(at("us-east/a")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		goes := w.ads(at("eu-west/a")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		delta := w.delta(at("eu-west/a")).subscribe(edsURL, "a")
		delta.take()
		silent := w.ads(at("eu-west/a"))
		denied := func(what string, c *client) {
			t.Helper()
			if s := c.status(); s.Code() != codes.PermissionDenied || s.Message() != "not from "+banned+" any more" {
				t.Errorf("%s got %v", what, s)
			}
		}
		banned = "eu-west/a"
		w.server.Reauthorize()
		denied("who lost the right", goes)
		denied("a delta stream", delta)
		silent.request(edsURL, "a")
		denied("who had said nothing yet", silent)
		if w.server.Subscribed(isobar.MustLocality("eu-west/a"), "a") {
			t.Error("who was refused has a subscription")
		}
		during = func() {
			during, banned = func() {}, "ap/a"
			w.server.Reauthorize()
		}
		denied("who came meanwhile", w.ads(at("ap/a")).request(edsURL, "a"))
		w.publish(serve("a", 2))
		stays.equals("eds v2: a@2")
	}, func(o *xds.Options) {
		o.Admit = func(_ context.Context, n rpc.Node) error {
			if n.Locality.String() == banned {
				return status.Error(codes.PermissionDenied, "not from "+banned+" any more")
			}
			during()
			return nil
		}
	})
}

// What clients subscribe to while the next plan is being encoded is counted for
// what is published then. Processors that really work side by side are what this
// is about, so it runs in no bubble.
func TestSubscribedWhileEncoding(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	const many, rounds, late = 300, 10, 40
	var names []string // to be encoded at each change, which takes a while
	for i := range many {
		names = append(names, fmt.Sprint("service-", i))
	}
	change := func(round int) (edits []edit) {
		for _, name := range names {
			edits = append(edits, serve(name, 1+round))
		}
		return edits
	}
	w.publish(change(0)...)
	c := newObedient(t, w)
	c.subscribe(names...)
	for round := range rounds {
		var fresh []string
		for i := range late {
			fresh = append(fresh, fmt.Sprintf("late-%d-%d", round, i))
		}
		names = append(names, fresh...)
		w.publish(change(2 * round)...)
		subscribed := make(chan struct{})
		go func() {
			defer close(subscribed)
			for _, name := range fresh {
				c.subscribe(name)
			}
		}()
		w.publish(change(2*round + 1)...)
		<-subscribed
		testhelp.Eventually(t, fmt.Sprintf("round %d: all is in sync", round), func() bool {
			n := 0
			for _, s := range w.server.Subscriptions() {
				if s.Acked == s.Streams && !s.AckedAt.IsZero() {
					n++
				}
			}
			return n == len(names)
		})
	}
}

// obedient is a delta client that accepts all it gets.
type obedient struct {
	t      *testing.T
	mu     sync.Mutex // a stream has one writer at a time
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func newObedient(t *testing.T, w *world) *obedient {
	t.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(w.conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &obedient{t: t, stream: stream}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return // the test is over
			}
			c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()})
		}
	}()
	return c
}

func (c *obedient) subscribe(names ...string) {
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: at("us-east/b"), TypeUrl: edsURL, ResourceNamesSubscribe: names})
}

func (c *obedient) send(m *discoveryv3.DeltaDiscoveryRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.stream.Send(m); err != nil && c.t.Context().Err() == nil {
		c.t.Error(err)
	}
}

// A service whose endpoints are not known yet is not gone: nobody is told that it
// has none, or has its cluster removed, and its endpoints come when they are
// known.
func TestAwaitedServices(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("late", 2))
		before := w.delta(at("us-east/b"))
		held := before.versions(edsURL, "a", "late")
		clusters := before.versions(cdsURL)
		before.close()
		w.publish(without("late"), await("late"), serve("a", 3))

		const path = "/v3/discovery:endpoints"
		polled := w.poll(path, pollBody("another server's", "n", "late", "none"))
		if polled.status != http.StatusOK || len(polled.All) != 1 {
			t.Errorf("a poll: %d %s, want that nothing is left of the one, and nothing said of the other", polled.status, polled.body)
		}
		whole := w.ads(at("us-east/b"))
		whole.request(cdsURL).equals("cds v2: a late").ack(cdsURL)
		whole.request(edsURL, "a", "late").equals("eds v2: a@3").ack(edsURL).nothing()
		c := w.delta(at("us-east/b"))
		c.deltaRequest(cdsURL, clusters).equals("cds v2:").ack(cdsURL)
		c.deltaRequest(edsURL, held, "a", "late").equals("eds v2: a@3 -late").ack(edsURL).nothing()

		w.publish(serve("late", 4))
		whole.equals("eds v3: late@4").ack(edsURL).nothing()
		c.equals("eds v3: late@4").ack(edsURL).nothing()
		if got := w.poll(path, pollBody(polled.Version, "n", "late", "none")); got.status != http.StatusOK || len(got.All) != 2 {
			t.Errorf("a poll: %d %s", got.status, got.body)
		}
	})
}

// Who polls for what there never was is not told that it is empty.
func TestPollOfWhatNeverWas(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		const path = "/v3/discovery:endpoints"
		for _, names := range [][]string{{"late"}, {"a", "late"}} {
			first := w.poll(path, pollBody("", "n", names...))
			if first.status != http.StatusOK || len(first.All) != len(names)-1 {
				t.Fatalf("%v: %d %s", names, first.status, first.body)
			}
			if second := w.poll(path, pollBody(first.Version, "n", names...)); second.status != http.StatusNotModified {
				t.Errorf("%v: %d %s", names, second.status, second.body)
			}
		}
	})
}
