package lrs_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs"
)

// A collector that stands still loses resolution, not requests, and no memory.
func TestSlowCollector(t *testing.T) {
	inBubble(t, lrs.Options{Interval: every(time.Second)}, func(h *harness) {
		c, _ := h.greet(grpcNode())
		for range 1000 {
			pass(time.Second)
			c.report(stats("checkout", 10, time.Second))
		}
		synctest.Wait()
		w := h.srv.Collect(time.Now())
		if len(w) != 1 || len(w[0].Reports) > 4 {
			t.Fatalf("%d windows of %d reports, want at most 4 in one", len(w), len(w[0].Reports))
		}
		issued, length := uint64(0), time.Duration(0)
		for _, r := range w[0].Reports {
			issued += r.Services[0].Localities[0].Issued
			length += r.Services[0].Interval
		}
		if issued != 10_000 || length != 1000*time.Second {
			t.Errorf("%d requests in %v, want 10000 in 1000s", issued, length)
		}
	})
}

func TestManyStreamsAtOnce(t *testing.T) {
	inBubble(t, lrs.Options{}, func(h *harness) {
		const n = 50
		done := make(chan struct{})
		for range n {
			go func() {
				c, _ := h.greet(grpcNode())
				for range 20 {
					pass(time.Second)
					c.report(stats("checkout", 1, time.Second))
				}
				_ = c.stream.CloseSend()
				_, _ = c.stream.Recv()
				c.cancel()
				done <- struct{}{}
			}()
		}
		issued, closed := uint64(0), 0
		ids := map[load.StreamID]bool{}
		for range 30 {
			pass(700 * time.Millisecond)
			for _, w := range h.srv.Collect(time.Now()) {
				ids[w.Stream] = true
				if !w.Closed.IsZero() {
					closed++
				}
				for _, r := range w.Reports {
					issued += r.Services[0].Localities[0].Issued
				}
			}
			h.srv.Clients()
		}
		for range n {
			<-done
		}
		synctest.Wait()
		for _, w := range h.srv.Collect(time.Now()) {
			closed++
			for _, r := range w.Reports {
				issued += r.Services[0].Localities[0].Issued
			}
		}
		if issued != 20*n || closed != n || len(ids) != n {
			t.Errorf("%d requests, %d ends, %d streams; want %d, %d, %d", issued, closed, len(ids), 20*n, n, n)
		}
	})
}
