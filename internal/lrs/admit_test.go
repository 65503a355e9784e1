package lrs_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// TestWhoMayReport: a node that is not welcome is told why, and reports count
// only on the services that the client's locality may report on.
func TestWhoMayReport(t *testing.T) {
	inBubble(t, lrs.Options{
		Services: names("cart", "checkout"),
		Admit: func(_ context.Context, n rpc.Node) error {
			if n.Cluster != "frontend" {
				return status.Error(codes.PermissionDenied, "not you: "+n.Cluster)
			}
			return nil
		},
		Account:   func(context.Context) (string, bool) { return "identity web", true },
		MayReport: func(l isobar.Locality, service string) bool { return l.Zone == "a" && service == "checkout" },
	}, func(h *harness) {
		stranger := h.open()
		n := grpcNode()
		n.Cluster = "backend"
		stranger.send(&loadstatsv3.LoadStatsRequest{Node: n})
		if _, err := stranger.stream.Recv(); status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "not you: backend" {
			t.Errorf("a stranger got %v", err)
		}
		c, _ := h.greet(grpcNode())
		c.report(stats("checkout", 10, time.Second), stats("cart", 10, time.Second), stats("other", 10, time.Second))
		synctest.Wait()
		windows := h.srv.Collect(time.Now())
		if len(windows) != 1 || len(windows[0].Reports) != 1 {
			t.Fatalf("windows %+v", windows)
		}
		if w := windows[0]; w.Account != "identity web" || !w.Identified {
			t.Errorf("a window of account %q, identified %v", w.Account, w.Identified)
		}
		if got := windows[0].Reports[0].Services; len(got) != 1 || got[0].Service != "checkout" {
			t.Errorf("services %+v, want checkout alone", got)
		}
	})
}

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
