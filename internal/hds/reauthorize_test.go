package hds_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// TestWhoMayStillCheck: streams are asked about again, also the one that was
// being let in by the rules of before, and those that are welcome stay. Who polls
// is asked at each request.
func TestWhoMayStillCheck(t *testing.T) {
	var banned, during atomic.Value
	banned.Store("")
	during.Store(func() {})
	inBubble(t, hds.Options{Admit: func(_ context.Context, n rpc.Node) error {
		if n.Locality.String() == banned.Load() {
			return status.Error(codes.PermissionDenied, "not from "+n.Locality.String()+" any more")
		}
		during.Load().(func())()
		return nil
	}}, func(h *harness) {
		denied := func(c *client, from string) {
			t.Helper()
			if _, err := c.stream.Recv(); status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "not from "+from+" any more" {
				t.Errorf("%s got %v", from, err)
			}
		}
		h.enter("stays", "r/a")
		goes := h.enter("goes", "r/b")
		h.open() // says nothing yet
		api := healthv3.NewHealthDiscoveryServiceClient(h.conn)
		if _, err := api.FetchHealthCheck(h.t.Context(), hello("poller", "r/a")); err != nil {
			t.Fatal(err)
		}
		banned.Store("r/b")
		h.srv.Reauthorize()
		denied(goes, "r/b")
		during.Store(func() {
			during.Store(func() {})
			banned.Store("r/c")
			h.srv.Reauthorize()
		})
		denied(h.enter("late", "r/c"), "r/c")
		synctest.Wait()
		present := h.srv.Checkers(time.Now())
		if len(present) != 2 || present[0].NodeID != "poller" || present[1].NodeID != "stays" {
			t.Errorf("connected: %+v", present)
		}
	})
}
