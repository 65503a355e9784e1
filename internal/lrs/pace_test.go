package lrs_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// issued adds up the requests of reports, and counts these.
func issued(windows []load.StreamWindow, service string) (requests uint64, reports int) {
	for _, w := range windows {
		for _, r := range w.Reports {
			for _, s := range r.Services {
				if s.Service != service {
					continue
				}
				reports++
				for _, l := range s.Localities {
					requests += l.Issued
				}
			}
		}
	}
	return requests, reports
}

// A client that reports without pause is slowed down and mostly ignored; that
// shows, and others on its connection notice nothing.
func TestFlood(t *testing.T) {
	reg := prometheus.NewRegistry()
	var log bytes.Buffer
	opts := lrs.Options{Registerer: reg, Log: slog.New(slog.NewTextHandler(&log, nil))}
	inBubble(t, opts, func(h *harness) {
		flood, _ := h.greet(grpcNode())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for flood.stream.Send(&loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{stats("flood", 1, time.Second)}}) == nil {
			}
		}()
		other, _ := h.greet(grpcNode())
		const seconds, interval = 100, 5
		var flooded, honest uint64
		for range seconds / interval {
			pass(interval * time.Second)
			other.report(stats("honest", 10, interval*time.Second))
			synctest.Wait()
			w := h.srv.Collect(time.Now())
			n, _ := issued(w, "flood")
			flooded += n
			n, _ = issued(w, "honest")
			honest += n
		}
		if honest != 10*seconds/interval {
			t.Errorf("%d requests of the other client, want all %d", honest, 10*seconds/interval)
		}
		const most = 64 + 4*seconds/interval
		if flooded < most-1 || flooded > most+1 {
			t.Errorf("%d reports of the flood counted, want %d", flooded, most)
		}
		c := h.srv.Clients()
		if len(c) != 2 || c[1].Excess != 0 || c[0].Reports != flooded || c[0].Excess < 100 || c[0].Excess > 64*seconds/interval+1 {
			t.Errorf("clients %+v: want at most 64 reports ignored in an interval, of the first", c)
		}
		if got := testhelp.Metric(t, reg, "isobar_lrs_excess_reports_total"); got != float64(c[0].Excess) {
			t.Errorf("the metric counts %v reports, and the client's state %d", got, c[0].Excess)
		}
		flood.cancel()
		<-stopped
	})
	lines := strings.Count(log.String(), "far more often than requested")
	if lines == 0 || lines > 20*11 || !strings.Contains(log.String(), "node=node-1") || !strings.Contains(log.String(), "interval=5s") {
		t.Errorf("%d lines in the log: %.500s", lines, log.String())
	}
}

// What clients do that mean well is not too much.
func TestNoFlood(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(h *harness) (requests uint64) // on the service "checkout"
	}{
		{"a heartbeat at each interval for an hour, and now and then a report", func(h *harness) uint64 {
			c, _ := h.greet(grpcNode())
			for i := range 720 {
				pass(5 * time.Second)
				if i%10 == 0 {
					c.report(stats("checkout", 1, 5*time.Second))
				} else {
					c.report()
				}
			}
			return 72
		}},
		{"the last report comes at once when the client stops", func(h *harness) uint64 {
			c, _ := h.greet(grpcNode())
			for range 100 {
				pass(5 * time.Second)
				c.report(stats("checkout", 1, 5*time.Second))
			}
			c.report(stats("checkout", 1, time.Millisecond))
			if err := c.stream.CloseSend(); err != nil {
				h.t.Fatal(err)
			}
			if said := <-c.next(); said.err == nil {
				h.t.Errorf("the stream goes on with %v", said.m)
			}
			return 101
		}},
		{"many reconnects with several reports each", func(h *harness) uint64 {
			for range 20 {
				c, _ := h.greet(grpcNode(), stats("checkout", 1, time.Second))
				for range 10 {
					c.report(stats("checkout", 1, time.Millisecond))
				}
				synctest.Wait()
				c.cancel()
				synctest.Wait()
			}
			return 220
		}},
		{"what has waited for five minutes comes at once", func(h *harness) uint64 {
			c, _ := h.greet(grpcNode())
			for range 3 {
				pass(5 * time.Minute)
				for range 60 {
					c.report(stats("checkout", 1, 5*time.Second))
				}
			}
			return 180
		}},
		{"twice in an interval", func(h *harness) uint64 {
			c, _ := h.greet(grpcNode())
			for range 1000 {
				pass(2500 * time.Millisecond)
				c.report(stats("checkout", 1, 5*time.Second))
			}
			return 1000
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			inBubble(t, lrs.Options{Registerer: reg}, func(h *harness) {
				want := tc.run(h)
				synctest.Wait()
				if got, _ := issued(h.srv.Collect(time.Now()), "checkout"); got != want {
					t.Errorf("%d requests, want %d", got, want)
				}
			})
			if got := testhelp.Metric(t, reg, "isobar_lrs_excess_reports_total"); got != 0 {
				t.Errorf("%v reports ignored", got)
			}
		})
	}
}

// The pace is that of the interval which the client was told.
func TestPaceFollowsTheInterval(t *testing.T) {
	for _, told := range []time.Duration{time.Second, 10 * time.Second} {
		inBubble(t, lrs.Options{Interval: every(told)}, func(h *harness) {
			c, _ := h.greet(grpcNode())
			for range 400 {
				pass(time.Second / 4)
				c.report(stats("checkout", 1, time.Second))
			}
			synctest.Wait()
			got := h.srv.Clients()[0]
			if excessive := got.Excess > 0; excessive != (told > time.Second) {
				t.Errorf("four reports a second at an interval of %v: %d ignored", told, got.Excess)
			}
		})
	}
}

// A client that had used up its burst when its interval became shorter has the pace of the
// new one at once.
func TestPaceOfAShorterInterval(t *testing.T) {
	const burst, before, after = 64, time.Minute, time.Second
	var interval atomic.Int64
	interval.Store(int64(before))
	inBubble(t, lrs.Options{Interval: func() time.Duration { return time.Duration(interval.Load()) }}, func(h *harness) {
		c, _ := h.greet(node("envoy"))
		for range burst {
			c.report(stats("checkout", 1, time.Second))
		}
		synctest.Wait()
		interval.Store(int64(after))
		h.srv.Refresh()
		synctest.Wait()
		for range 16 {
			pass(after / 4)
			c.report(stats("checkout", 1, time.Second))
		}
		synctest.Wait()
		if got := h.srv.Clients()[0]; got.Excess > 1 { // the first report finds an empty bucket
			t.Errorf("%d reports at the pace of the new interval are ignored", got.Excess)
		}
	})
}

// Who measures how fast reports can be read may have them all.
func TestNoPace(t *testing.T) {
	inBubble(t, lrs.Options{ReportBurst: -1}, func(h *harness) {
		c, _ := h.greet(grpcNode())
		for range 1000 {
			c.report(stats("checkout", 1, time.Second))
		}
		synctest.Wait()
		if got, _ := issued(h.srv.Collect(time.Now()), "checkout"); got != 1000 {
			t.Errorf("%d reports, want 1000", got)
		}
	})
}
