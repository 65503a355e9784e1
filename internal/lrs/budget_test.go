package lrs_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestReportsUntilTheTickAreBounded asserts that the reports of one address that wait for the
// collector take no more than its part of the memory, that other clients and small reports are
// counted nevertheless, and that there is room again after a collection.
func TestReportsUntilTheTickAreBounded(t *testing.T) {
	const memory, part = 8 << 20, 1 << 20
	reg := prometheus.NewRegistry()
	account, certified := "", false
	opts := lrs.Options{
		ReportMemory: memory, Registerer: reg, Services: func() []string { return []string{"a", "b"} },
		Account: func(context.Context) (string, bool) { return account, certified },
	}
	inBubble(t, opts, func(h *harness) {
		large := slices.Repeat([]*endpointv3.ClusterStats{stats("a", 10, time.Second)}, 2_000) // 250 KB
		overflow := func() int { return int(testhelp.Metric(t, reg, "isobar_lrs_overflow_reports_total")) }
		enter := func(name string, proven bool, n int, all ...*endpointv3.ClusterStats) {
			account, certified = name, proven
			for range n {
				h.greet(node(fmt.Sprint(name, n)), all...)
			}
			synctest.Wait()
		}
		enter("10.0.0.1", false, 20, large...)
		if _, _, used, most := h.srv.ReportMemory(); used > most || used < most/2 || most != part {
			t.Errorf("the reports of one address take %d bytes of %d, want half at least of %d", used, most, part)
		}
		if n := overflow(); n < 14 || n > 18 {
			t.Errorf("%d of 20 large reports are ignored, want all above 1 MiB", n)
		}
		enter("10.0.0.1", false, 20, slices.Repeat([]*endpointv3.ClusterStats{stats("a", 10, time.Second)}, 140)...) // the rest of its part
		before := overflow()
		enter("10.0.0.1", false, 25, slices.Repeat([]*endpointv3.ClusterStats{stats("b", 10, time.Second)}, 50)...)
		enter("10.0.0.2", false, 2, large...)
		enter("envoy", true, 3, large...) // a fleet is often one identity
		if n := overflow() - before; n != 0 {
			t.Errorf("%d reports are ignored of small ones, of another address, and of clients with a certificate", n)
		}
		enter("envoy", true, 40, large...)
		if used, most, _, _ := h.srv.ReportMemory(); overflow() == before || used > most {
			t.Errorf("all reports take %d of %d bytes, %d are ignored", used, most, overflow()-before)
		}
		seen := 0
		for _, w := range h.srv.Collect(time.Now()) {
			for _, r := range w.Reports {
				if r.Services[0].Service == "b" {
					seen++
				}
			}
		}
		if seen != 25 {
			t.Errorf("%d small reports are collected, want 25", seen)
		}
		h.srv.Release()
		before = overflow()
		enter("10.0.0.1", false, 2, large...)
		if n := overflow() - before; n != 0 {
			t.Errorf("%d reports are ignored after a collection", n)
		}
	})
}

// TestReleasedReportsAreUsedAgain asserts that the reports of an ordinary fleet take the memory of one
// collection, not that of two.
func TestReleasedReportsAreUsedAgain(t *testing.T) {
	inBubble(t, lrs.Options{ReportBurst: -1}, func(h *harness) {
		some := slices.Repeat([]*endpointv3.ClusterStats{stats("a", 10, time.Second)}, 5_000)
		c, _ := h.greet(grpcNode())
		defer c.cancel()
		var seen []*load.ServiceReport // where the reports are in memory
		for range 8 {
			c.report(some...)
			synctest.Wait()
			windows := h.srv.Collect(time.Now())
			at := &windows[0].Reports[0].Services[0]
			if !slices.Contains(seen, at) {
				seen = append(seen, at)
			}
			h.srv.Release()
		}
		if len(seen) > 2 { // the first one grows
			t.Errorf("8 reports of a stream lie in %d places, want them in the same one", len(seen))
		}
	})
}

// The memory of reports is used again, but not while the collector may read
// them: that of open streams, and that of streams which closed long before they
// were collected.
func TestCollectedReportsStay(t *testing.T) {
	inBubble(t, lrs.Options{}, func(h *harness) {
		busy, _ := h.greet(grpcNode())
		closing, _ := h.greet(grpcNode())
		for round := uint64(1); round < 20; round++ {
			pass(lrs.DefaultInterval)
			busy.report(stats("busy", round, time.Second))
			closing.report(stats("closing", round, time.Second))
			synctest.Wait()
			closing.cancel()
			synctest.Wait()
			windows := h.srv.Collect(time.Now())

			// What comes now must not show in what was collected.
			closing, _ = h.greet(grpcNode())
			for range 3 {
				busy.report(stats("later", 1000, time.Second))
				closing.report(stats("later", 1000, time.Second))
			}
			synctest.Wait()
			seen := map[string]uint64{}
			for _, w := range windows {
				for _, r := range w.Reports {
					for _, s := range r.Services {
						seen[s.Service] = max(seen[s.Service], s.Localities[0].Issued)
					}
				}
			}
			if seen["busy"] != round || seen["closing"] != round || (round == 1 && seen["later"] != 0) {
				t.Fatalf("round %d: collected %v", round, seen)
			}
		}
	})
}

// Statistics in the first message of a stream are read like those of all others, and not
// decoded, which would take many times their size.
func TestFirstReportCostsLittle(t *testing.T) {
	inBubble(t, lrs.Options{}, func(h *harness) {
		var all []*endpointv3.ClusterStats
		for i := range 20_000 {
			all = append(all, stats(fmt.Sprint("service-", i), 10, time.Second))
		}
		cost := func(report func()) uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			report()
			synctest.Wait()
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		first, second := uint64(math.MaxUint64), uint64(math.MaxUint64)
		for range 3 { // pools may be empty
			var c *client
			first = min(first, cost(func() { c, _ = h.greet(grpcNode(), all...) }))
			second = min(second, cost(func() { c.report(all...) }))
			c.cancel()
			synctest.Wait()
		}
		if first > 2*second {
			t.Errorf("the first report takes %d KiB, the second one %d, want about the same", first>>10, second>>10)
		}
	})
}

// TestFewMessagesAreJoined asserts that few messages that come in pieces are joined and read at
// once, the first ones of their streams as well. Those of clients that have yet to be placed
// keep nobody out.
func TestFewMessagesAreJoined(t *testing.T) {
	const clients, atOnce = 40, 16
	var reading, placing atomic.Int64
	var read, place chan struct{}
	opts := lrs.Options{
		Services: func() []string { return []string{"a"} }, ReportBurst: -1,
		Place: func(context.Context, string, *rpc.Node) {
			placing.Add(1)
			<-place
		},
		MayReport: func(isobar.Locality, string) bool {
			reading.Add(1)
			<-read
			reading.Add(-1)
			return true
		},
	}
	inBubble(t, opts, func(h *harness) {
		read, place = make(chan struct{}), make(chan struct{})
		pieces := stats("a", 10, time.Second)
		pieces.ClusterServiceName = strings.Repeat("a", 1000)
		all := append([]*endpointv3.ClusterStats{stats("a", 10, time.Second)}, slices.Repeat([]*endpointv3.ClusterStats{pieces}, 100)...)
		open := func(n *corev3.Node) (out []*client) {
			for range clients {
				c := h.open()
				c.send(&loadstatsv3.LoadStatsRequest{Node: n, ClusterStats: all})
				out = append(out, c)
			}
			synctest.Wait()
			return out
		}
		onMachine := node("pod")
		onMachine.Locality = nil
		onMachine.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{rpc.MachineKey: structpb.NewStringValue("machine")}}
		placed := open(onMachine)
		if n := placing.Load(); n != clients {
			t.Errorf("%d clients are placed at once, want all %d", n, clients)
		}
		others := open(node("client"))
		if n := reading.Load(); n != atOnce {
			t.Errorf("%d reports are read at once, want %d", n, atOnce)
		}
		close(place)
		synctest.Wait()
		if n := reading.Load(); n != atOnce {
			t.Errorf("%d reports are read at once after clients were placed, want %d", n, atOnce)
		}
		close(read)
		synctest.Wait()
		for _, c := range append(placed, others...) {
			c.recv()
			c.cancel()
		}
	})
}

// TestFirstMessageWithoutStatistics asserts that a field that the server does not know, from a
// client of another time, is no load report.
func TestFirstMessageWithoutStatistics(t *testing.T) {
	inBubble(t, lrs.Options{}, func(h *harness) {
		hello := &loadstatsv3.LoadStatsRequest{Node: grpcNode()}
		hello.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1))
		c := h.open()
		c.send(hello)
		synctest.Wait()
		for _, w := range h.srv.Collect(time.Now()) {
			if len(w.Reports) > 0 {
				t.Errorf("it counts as a report: %+v", w.Reports)
			}
		}
		c.cancel()
	})
}
