package lrs_test

import (
	"testing"
	"testing/synctest"
	"time"

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
