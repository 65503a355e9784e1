package hds_test

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
)

const (
	up   = corev3.HealthStatus_HEALTHY
	down = corev3.HealthStatus_UNHEALTHY
	late = corev3.HealthStatus_TIMEOUT
)

// signalled tells whether the server has news, and takes the signal.
func (h *harness) signalled() bool {
	synctest.Wait()
	select {
	case <-h.srv.Changed():
		return true
	default:
		return false
	}
}

func (h *harness) ids() []string {
	var out []string
	for _, c := range h.srv.Checkers(time.Now()) {
		out = append(out, c.ID)
	}
	return out
}

// An hour of one checker: entered, told, reporting every interval.
func TestAnHourOfReports(t *testing.T) {
	inBubble(t, hds.Options{Interval: every(10 * time.Second)}, func(h *harness) {
		c := h.enter("probe-1", "r/a")
		if !h.signalled() {
			t.Error("a checker that came is no news")
		}
		list := h.srv.Checkers(time.Now())
		if len(list) != 1 || list[0].ID != "probe-1" || list[0].Locality != isobar.MustLocality("r/a") ||
			list[0].Protocols.String() != "http+tcp" || list[0].UserAgent != "envoy" {
			t.Fatalf("checkers %+v", list)
		}
		top := topology(service("checkout", 0))
		h.srv.Designate(top, all(top, "probe-1"))
		spec := c.recv()
		if got := spec.GetInterval().AsDuration(); got < 10*time.Second || got >= 10*time.Second+50*time.Millisecond {
			t.Errorf("interval %v", got)
		}
		if got := clusters(spec); !maps.Equal(got, map[string]int{"checkout": 3}) {
			t.Fatalf("clusters %v", got)
		}
		total := 0
		for i := range 360 {
			pass(10 * time.Second)
			s := up
			if i == 100 {
				s = late
			}
			c.report(grouped("checkout", "r/a", endpoint("10.0.0.1:80", up), endpoint("10.0.0.2:80", s)))
			if news, want := h.signalled(), i == 0 || i == 100 || i == 101; news != want {
				t.Errorf("report %d: signalled %v, want %v", i, news, want)
			}
			got := h.srv.Collect(time.Now())
			total += len(got)
			if len(got) != 2 || got[0].Address != "10.0.0.1:80" || got[0].Checker != "probe-1" || got[0].Service != "checkout" ||
				got[0].Locality != isobar.MustLocality("r/a") || got[1].Status != isobar.HealthStatus(s) || !got[1].Arrived.Equal(time.Now()) {
				t.Fatalf("reports %+v", got)
			}
			if again := h.srv.Collect(time.Now()); len(again) != 0 {
				t.Fatalf("collected twice: %+v", again)
			}
		}
		if total != 720 {
			t.Errorf("%d reports", total)
		}
		c.leave()
		if !h.signalled() || len(h.ids()) != 0 {
			t.Error("the checker is still there")
		}
	})
}

// A cluster that went while its checker was away is drained when it is back, with
// nothing of the check that may have ended it.
func TestDrainAfterReconnect(t *testing.T) {
	inBubble(t, hds.Options{}, func(h *harness) {
		c := h.enter("probe-1", "r/a")
		deadly := tcpCheck()
		deadly.Protocol, deadly.TCP, deadly.TLS = isobar.CheckHTTP, nil, true
		deadly.HTTP = &isobar.HTTPCheck{Path: "/deadly", Host: "deadly", Headers: []isobar.Header{{Name: "deadly", Value: "deadly"}}}
		top := topology(service("cart", 1), service("pay", 2, deadly))
		h.srv.Designate(top, all(top, "probe-1"))
		before := c.recv()
		c.leave()
		without := topology(service("cart", 1))
		h.srv.Designate(without, all(without, "probe-1"))
		c = h.enter("probe-1", "r/a")
		after := c.recv()
		if got := clusters(after); !maps.Equal(got, map[string]int{"cart": 3, "pay": 0}) {
			t.Errorf("told %v", got)
		}
		if text := after.String(); strings.Contains(text, "deadly") {
			t.Errorf("the checker is told again of a check that is gone: %s", text)
		}
		if before.GetInterval().AsDuration() == after.GetInterval().AsDuration() {
			t.Error("the interval is the same on a new stream: old builds may fall silent")
		}
		c.leave()
	})
}

// Every new stream of a node gets another interval, 1 ms off.
func TestIntervalIsPerturbed(t *testing.T) {
	inBubble(t, hds.Options{Interval: every(3 * time.Second)}, func(h *harness) {
		top := topology(service("cart", 1))
		h.srv.Designate(top, all(top, "probe-1"))
		last := time.Duration(0)
		for i := range 120 {
			c := h.enter("probe-1", "r/a")
			d := c.recv().GetInterval().AsDuration()
			if step := (d - last).Abs(); i > 0 && step != time.Millisecond && step != 49*time.Millisecond || d < 3*time.Second || d >= 3050*time.Millisecond {
				t.Fatalf("stream %d: interval %v after %v", i, d, last)
			}
			last = d
			c.leave()
		}
	})
}
