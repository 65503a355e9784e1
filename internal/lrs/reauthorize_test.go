package lrs_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// TestWhoMayStillReport: streams are asked about again, also the one that was
// being let in by the rules of before, and those that are welcome stay.
func TestWhoMayStillReport(t *testing.T) {
	var banned, during atomic.Value
	banned.Store("")
	during.Store(func() {})
	inBubble(t, lrs.Options{Admit: func(_ context.Context, n rpc.Node) error {
		if n.Cluster == banned.Load() {
			return status.Error(codes.PermissionDenied, "not you any more: "+n.Cluster)
		}
		during.Load().(func())()
		return nil
	}}, func(h *harness) {
		denied := func(c *client, cluster string) {
			t.Helper()
			if _, err := c.stream.Recv(); status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "not you any more: "+cluster {
				t.Errorf("%s got %v", cluster, err)
			}
		}
		named := func(cluster string) *loadstatsv3.LoadStatsRequest {
			n := grpcNode()
			n.Cluster = cluster
			return &loadstatsv3.LoadStatsRequest{Node: n}
		}
		stays, _ := h.greet(named("stays").GetNode())
		goes, _ := h.greet(named("goes").GetNode())
		h.open() // says nothing yet
		banned.Store("goes")
		h.srv.Reauthorize()
		denied(goes, "goes")
		during.Store(func() {
			during.Store(func() {})
			banned.Store("late")
			h.srv.Reauthorize()
		})
		late := h.open()
		late.send(named("late"))
		denied(late, "late")
		synctest.Wait()
		if open := h.srv.Clients(); len(open) != 1 || open[0].Node.Cluster != "stays" {
			t.Errorf("open: %+v", open)
		}
		stays.report()
	})
}
