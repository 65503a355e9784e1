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
