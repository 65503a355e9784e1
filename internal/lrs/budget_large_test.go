//go:build !race

package lrs_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestReportsCountUntilTheyAreReleased asserts that reports which the collector has count beside
// those that wait, so that both together stay within the memory for them, and that they take no
// memory once they are released, but for what an ordinary fleet uses again.
func TestReportsCountUntilTheyAreReleased(t *testing.T) {
	const memory, clients = 48 << 20, 12
	reg := prometheus.NewRegistry()
	opts := lrs.Options{ReportMemory: memory, Registerer: reg, Services: func() []string { return []string{"a"} }}
	inBubble(t, opts, func(h *harness) {
		large := slices.Repeat([]*endpointv3.ClusterStats{stats("a", 10, time.Second)}, 20_000) // 3 MB
		overflow := func() int { return int(testhelp.Metric(t, reg, "isobar_lrs_overflow_reports_total")) }
		var all []*client
		for i := range clients {
			c, _ := h.greet(node(fmt.Sprint("client ", i)))
			all = append(all, c)
		}
		report := func(of []*client, stats []*endpointv3.ClusterStats) (ignored int) {
			before := overflow()
			for _, c := range of {
				c.report(stats...)
				synctest.Wait()
			}
			return overflow() - before
		}
		live := func() int {
			var m runtime.MemStats
			runtime.GC() // pools keep memory
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		report(all, large[:1])
		h.srv.Collect(time.Now())
		h.srv.Release()
		empty := live()
		for round := range 3 {
			ignored := report(all, large)
			windows := h.srv.Collect(time.Now())
			beside := report(all, large)
			took := live() - empty
			runtime.KeepAlive(windows)
			if took > memory*5/8 {
				t.Errorf("round %d: reports take %d MiB while the collector has some, want at most half of %d", round, took>>20, memory>>20)
			}
			if used, most, _, _ := h.srv.ReportMemory(); used > most || ignored == clients || beside == 0 {
				t.Errorf("round %d: %d reports are ignored before the collection and %d after it, with %d of %d bytes in use", round, ignored, beside, used, most)
			}
			h.srv.Release()
			if took := live() - empty; took > memory/5 {
				t.Errorf("round %d: %d MiB are in use after the collector has released the reports", round, took>>20)
			}
			if n := report(all[:1], large); n != 0 {
				t.Errorf("round %d: a report after the release is ignored", round)
			}
			h.srv.Collect(time.Now())
			h.srv.Release()
		}
		for _, c := range all {
			c.cancel()
		}
	})
}

// TestReportsFreeMemoryForMessages asserts that messages count beside reports, up to half of what
// reports may use.
func TestReportsFreeMemoryForMessages(t *testing.T) {
	const memory = 12 << 20
	const most = memory / 2
	var messages atomic.Int64
	opts := lrs.Options{ReportMemory: memory, ReportBurst: -1, Services: func() []string { return []string{"a"} }, Messages: messages.Load}
	inBubble(t, opts, func(h *harness) {
		large := slices.Repeat([]*endpointv3.ClusterStats{stats("a", 10, time.Second)}, 2_000) // 300 KB
		c, _ := h.greet(node("client"))
		defer c.cancel()
		for _, x := range []struct{ messages, least, most int64 }{
			{0, most * 3 / 4, most}, {most / 4, most / 2, most * 3 / 4}, {100 * most, most / 4, most / 2},
		} {
			messages.Store(x.messages)
			for range 60 {
				c.report(large...)
			}
			synctest.Wait()
			h.srv.Collect(time.Now())
			h.srv.Release()
			if used, _, _, _ := h.srv.ReportMemory(); used < x.least || used > x.most {
				t.Errorf("with %d KiB of messages, reports take %d KiB, want %d to %d", x.messages>>10, used>>10, x.least>>10, x.most>>10)
			}
		}
	})
}
