package xds_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
)

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
