package lrs_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/lrs"
)

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
