package hds_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// shown gives what operators see beside the vote of a checker on an endpoint.
func (h *harness) shown(checker, service, address string) string {
	reports := []health.ServiceReport{{Service: service, Endpoints: []health.Verdict{{
		Key: health.Key{Service: service, Address: address}, Votes: []health.Vote{{Checker: "other"}, {Checker: checker}},
	}}}}
	h.srv.AddMetadata(reports)
	if got := reports[0].Endpoints[0].Votes[0].Metadata; got != "" {
		h.t.Errorf("a checker that is not there says %q", got)
	}
	return reports[0].Endpoints[0].Votes[1].Metadata
}

// What a checker adds to an entry is shown beside its vote while it is there.
func TestMetadataIsShown(t *testing.T) {
	inBubble(t, hds.Options{}, func(h *harness) {
		c := h.enter("probe-1", "r/a")
		top := topology(service("cart", 1))
		h.srv.Designate(top, all(top, "probe-1"))
		c.recv()
		if got := h.shown("probe-1", "cart", "10.0.1.1:80"); got != "" {
			t.Errorf("before any report: %q", got)
		}
		e := endpoint("10.0.1.1:80", up)
		e.HealthMetadata = metadataOf(t, map[string]any{"rtt_ms": 1.5, "a": "b"})
		huge := endpoint("10.0.1.2:80", down)
		huge.HealthMetadata = metadataOf(t, map[string]any{"text": strings.Repeat("x", 10_000)})
		c.report(grouped("cart", "r/a", e, huge))
		if got := h.srv.Collect(time.Now()); len(got) != 2 || got[1].Status != isobar.Unhealthy {
			t.Errorf("reports %+v", got)
		}
		if got := h.shown("probe-1", "cart", "10.0.1.1:80"); got != `{"a":"b","rtt_ms":1.5}` {
			t.Errorf("shown %q", got)
		}
		if got := h.shown("probe-1", "cart", "10.0.1.2:80") + h.shown("probe-1", "pay", "10.0.1.1:80"); got != "" {
			t.Errorf("of others %q", got)
		}
		c.report(grouped("cart", "r/a", endpoint("10.0.1.1:80", up)))
		if got := h.shown("probe-1", "cart", "10.0.1.1:80"); got != "" {
			t.Errorf("no longer said: %q", got)
		}
		c.report(grouped("cart", "r/a", e))
		c.leave()
		if got := h.shown("probe-1", "cart", "10.0.1.1:80"); got != "" {
			t.Errorf("of a checker that left: %q", got)
		}
	})
}

// All that one checker adds is bounded; what finds no room is dropped, the
// status counts nevertheless, and there is room again when others say less.
func TestMetadataIsBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	inBubble(t, hds.Options{Registerer: reg}, func(h *harness) {
		const endpoints, fit = 300, 262 // of 4,000 bytes each in 1 MiB
		svc := service("cart", 1)
		svc.Localities = svc.Localities[:1]
		svc.Localities[0].Endpoints = nil
		for i := range endpoints {
			svc.Localities[0].Endpoints = append(svc.Localities[0].Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.1.%d.%d:80", i/200, i%200)})
		}
		top := topology(svc)
		c := h.enter("probe-1", "r/a")
		h.srv.Designate(top, all(top, "probe-1"))
		c.recv()
		report := grouped("cart", "r/a")
		text := metadataOf(t, map[string]any{"t": strings.Repeat("x", 4000-8)})
		for _, e := range svc.Localities[0].Endpoints {
			entry := endpoint(e.Address, up)
			entry.HealthMetadata = text
			report.ClusterEndpointsHealth[0].LocalityEndpointsHealth[0].EndpointsHealth = append(report.ClusterEndpointsHealth[0].LocalityEndpointsHealth[0].EndpointsHealth, entry)
		}
		count := func() (n int) {
			for _, e := range svc.Localities[0].Endpoints {
				if h.shown("probe-1", "cart", e.Address) != "" {
					n++
				}
			}
			return n
		}
		for round := range 2 {
			c.report(report)
			if got := h.srv.Collect(time.Now()); len(got) != endpoints {
				t.Fatalf("%d reports count", len(got))
			}
			if got := count(); got != fit {
				t.Errorf("round %d: metadata of %d endpoints is kept, want %d", round, got, fit)
			}
			if got := testhelp.Metric(t, reg, "isobar_hds_rejected_entries_total", "metadata"); got != float64((round+1)*(endpoints-fit)) {
				t.Errorf("round %d: %v are counted as dropped", round, got)
			}
		}
		for _, e := range report.ClusterEndpointsHealth[0].LocalityEndpointsHealth[0].EndpointsHealth[:100] {
			e.HealthMetadata = nil
		}
		c.report(report)
		if got := count(); got != endpoints-100 {
			t.Errorf("metadata of %d endpoints is kept after 100 said none", got)
		}
		c.leave()
	})
}
