package lrs_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/lrs"
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
		enter("envoy", true, 10, large...) // a fleet is often one identity
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
		before = overflow()
		enter("10.0.0.1", false, 2, large...)
		if n := overflow() - before; n != 0 {
			t.Errorf("%d reports are ignored after a collection", n)
		}
	})
}
