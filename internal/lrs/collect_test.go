package lrs_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// Ends of streams wait for the collector too, but not without bound.
func TestEndsAreBounded(t *testing.T) {
	inBubble(t, lrs.Options{MaxStreams: 2}, func(h *harness) {
		for range 5 {
			c, _ := h.greet(grpcNode())
			c.cancel()
			synctest.Wait()
		}
		w := h.srv.Collect(time.Now())
		if len(w) != 2 || w[0].Stream != 4 || w[1].Stream != 5 {
			t.Errorf("windows %+v, want those of the last two streams", w)
		}
	})
}

// Statistics by endpoint are many: who sends them unasked gains nothing by it.
func TestEndpointsCountWhenAskedFor(t *testing.T) {
	for _, asked := range []bool{false, true} {
		inBubble(t, lrs.Options{EndpointGranularity: asked}, func(h *harness) {
			c, _ := h.greet(grpcNode())
			s := stats("checkout", 10, time.Second)
			s.UpstreamLocalityStats[0].UpstreamEndpointStats = []*endpointv3.UpstreamEndpointStats{{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
				}}}, TotalIssuedRequests: 10,
			}}
			c.report(s)
			synctest.Wait()
			l := h.srv.Collect(time.Now())[0].Reports[0].Services[0].Localities[0]
			if l.Issued != 10 || asked != (l.Details != nil && len(l.Details.Endpoints) == 1) {
				t.Errorf("asked %v: %+v", asked, l)
			}
		})
	}
}

// A client that has to come back for its configuration does so within an
// interval, however often the configuration changes meanwhile.
func TestFurtherChangesDoNotPutOffTheFarewell(t *testing.T) {
	var seconds atomic.Int64
	seconds.Store(5)
	opts := lrs.Options{Interval: func() time.Duration { return time.Duration(seconds.Load()) * time.Second }}
	inBubble(t, opts, func(h *harness) {
		c, _ := h.greet(grpcNode())
		said := c.next()
		for i := range int64(2000) { // 20 s
			seconds.Store(9 + i%2)
			h.srv.Refresh()
			pass(10 * time.Millisecond)
		}
		synctest.Wait()
		select {
		case a := <-said:
			if status.Code(a.err) != codes.Unavailable {
				t.Errorf("ended with %v", a.err)
			}
		default:
			t.Error("the client still reports at the old interval")
		}
		c.cancel()
	})
}
