package xds_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func holding(o *xds.Options) { o.HoldRemovals = true }

// TestHeldAbsences asserts that a server that lags behind tells no client that
// something is gone, in any form of the protocol, tells everything else, and tells of
// absences once it may.
func TestHeldAbsences(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		gone := w.ads(at("us-east/b")) // it had "late" from another server
		gone.request(ldsURL, "late").nothing()
		gone.request(cdsURL, "a", "late").nothing()
		gone.request(edsURL, "a").equals("eds v1: a@1").ack(edsURL).nothing()
		whole := w.ads(at("us-east/b"))
		whole.request(cdsURL, "a").equals("cds v1: a").ack(cdsURL).nothing()
		whole.request(edsURL, "a", "late").equals("eds v1: a@1").ack(edsURL).nothing()
		w.publish(serve("a", 2))
		gone.equals("eds v2: a@2").ack(edsURL).nothing()

		w.server.HoldRemovals(false)
		gone.equals("cds v2: a", "eds v2: a@2", "lds v2:").ack(edsURL).ack(cdsURL).ack(ldsURL).nothing()
	}, holding)
}

func TestHeldAbsencesOfDelta(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.delta(at("us-east/b"))
		c.subscribe(cdsURL, "a", "late").equals("cds v1: a").ack(cdsURL).nothing()
		c.subscribe(edsURL, "a", "late").equals("eds v1: a@1").ack(edsURL).nothing()
		w.server.HoldRemovals(false)
		c.equals("cds v1: -late", "eds v1: -late").ack(cdsURL).ack(edsURL).nothing()
	}, holding)
}

// TestHeldRemovalsOnOpenStreams asserts that a removal waits while the server may not
// tell of it, and comes as soon as it may.
func TestHeldRemovalsOnOpenStreams(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(cdsURL, "a", "b").equals("cds v1: a b").ack(cdsURL)
		c.request(edsURL, "a", "b").equals("eds v1: a@1 b@2").ack(edsURL).nothing()
		w.server.HoldRemovals(true)
		w.publish(without("b"))
		c.nothing()
		w.publish(serve("a", 3))
		c.equals("eds v3: a@3").ack(edsURL).nothing()
		w.server.HoldRemovals(false)
		synctest.Wait()
		if got := w.clientType(resource.Cluster); got.Sent != "v3" {
			t.Fatalf("the client was told of version %s of its clusters", got.Sent)
		}
	})
}

// TestVersionsAreAwaited asserts that a client which shows a newer version is answered
// once that is here, and not with an older one.
func TestVersionsAreAwaited(t *testing.T) {
	var here chan struct{}
	wait := func(ctx context.Context, _, version string) error {
		if version != "v3" {
			return nil
		}
		select {
		case <-here:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.ads(at("us-east/b"))
		c.kind(edsURL).version = "v3"
		c.request(edsURL, "a").nothing()
		w.publish(serve("a", 2))
		c.nothing()
		w.publish(serve("a", 3))
		close(here)
		c.equals("eds v3: a@3").ack(edsURL).nothing()
	}, func(o *xds.Options) {
		here = make(chan struct{}) // within the bubble
		o.Await = wait
	})
}

func TestVersionsThatDoNotComeEndTheStream(t *testing.T) {
	refuse := func(context.Context, string, string) error { return status.Error(codes.Unavailable, "behind") }
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.ads(at("us-east/b"))
		c.kind(edsURL).version = "v9"
		c.request(edsURL, "a")
		if got := c.status(); got.Code() != codes.Unavailable || got.Message() != "behind" {
			t.Fatalf("the stream ended with %v", got)
		}
	}, func(o *xds.Options) { o.Await = refuse })
}

// TestReturningClientsGetWhatIsPublished asserts that a client which shows that it was answered
// before gets what is published, by delta and by polling, though publishing has not reached the
// group of its locality: what the server said to it before Returns was asked may be of no use.
func TestReturningClientsGetWhatIsPublished(t *testing.T) {
	for _, protocol := range []string{"delta", "poll"} {
		t.Run(protocol, func(t *testing.T) {
			var w *world
			next := false
			inWorld(t, func(in *world) {
				w = in
				w.publish(serve("a", 1))
				w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
				next = true
				if protocol == "delta" {
					w.delta(at("us-east/b")).deltaRequest(edsURL, map[string]string{"a": "abc"}, "a").equals("eds v2: a@2")
					return
				}
				first := w.poll("/v3/discovery:endpoints", pollBody("abc", "returns", "a"))
				synctest.Wait()
				if now := w.poll("/v3/discovery:endpoints", pollBody("", "other", "a")); first.Version != now.Version {
					t.Errorf("the poll got version %s, and %s is published: %s", first.Version, now.Version, first.body)
				}
			}, func(o *xds.Options) {
				o.Returns = func() error {
					if next {
						next = false
						w.publish(serve("a", 2))
					}
					return nil
				}
			})
		})
	}
}

// TestReturningClientsAreRefused asserts that a client which shows that it was answered
// before, by delta or by polling, is refused as long as the server says so, and others are not.
func TestReturningClientsAreRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		if got := w.poll("/v3/discovery:endpoints", pollBody("abc", "returns", "a")); got.status != http.StatusServiceUnavailable {
			t.Errorf("a poll that shows a version: %d", got.status)
		}
		first := w.poll("/v3/discovery:endpoints", pollBody("", "new", "a"))
		if first.status != http.StatusOK {
			t.Errorf("the first poll of a client: %d", first.status)
		}
		if got := w.poll("/v3/discovery:endpoints", pollBody(first.Version, "new", "a")); got.status != http.StatusNotModified {
			t.Errorf("its second poll: %d", got.status)
		}
		c := w.delta(at("us-east/b")).deltaRequest(edsURL, map[string]string{"a": "abc"}, "a")
		if got := c.status(); got.Code() != codes.Unavailable {
			t.Errorf("a delta stream that shows a version ended with %v", got)
		}
		w.delta(at("us-east/b")).subscribe(edsURL, "a").equals("eds v1: a@1")
	}, func(o *xds.Options) {
		o.Returns = func() error { return status.Error(codes.Unavailable, "lost") }
	})
}
