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

// The newest designation is told at once, the next one not before the checker
// has reported: each specifier restarts Envoy's wait for its next report.
func TestChangedDesignations(t *testing.T) {
	inBubble(t, hds.Options{Interval: every(4 * time.Second)}, func(h *harness) {
		c := h.enter("probe-1", "r/a")
		cart, pay := service("cart", 1), service("pay", 2)
		both := topology(cart, pay)
		h.srv.Designate(both, all(topology(cart), "probe-1"))
		if got := clusters(c.recv()); !maps.Equal(got, map[string]int{"cart": 3}) {
			t.Fatalf("first %v", got)
		}
		said := c.next()
		for range 100 { // nothing of this waits for the checker
			h.srv.Designate(both, all(topology(pay), "probe-1"))
			h.srv.Designate(both, all(both, "probe-1"))
		}
		pass(3 * time.Second)
		if len(said) != 0 {
			t.Fatal("told again before a report")
		}
		c.report(grouped("cart", "r/a", endpoint("10.0.1.1:80", up)))
		if got := clusters((<-said).m); !maps.Equal(got, map[string]int{"cart": 3, "pay": 3}) {
			t.Fatalf("after the report %v", got)
		}
		// Without a report it is told after one and a half intervals.
		said = c.next()
		before := time.Now()
		h.srv.Designate(both, all(topology(cart), "probe-1"))
		got := clusters((<-said).m)
		if waited := time.Since(before); !maps.Equal(got, map[string]int{"cart": 3, "pay": 0}) || waited < 6*time.Second || waited > 6100*time.Millisecond {
			t.Fatalf("after silence of %v: %v", waited, got)
		}
		// The same again is no news.
		said = c.next()
		h.srv.Designate(topology(cart, pay), all(topology(cart), "probe-1"))
		<-said // pay goes
		said = c.next()
		h.srv.Designate(topology(cart, pay), all(topology(cart), "probe-1"))
		pass(time.Minute)
		if len(said) != 0 {
			t.Errorf("told the same again: %v", (<-said).m)
		}
		c.leave()
	})
}

// A cluster goes in two steps: first its endpoints, an interval later itself.
func TestDrainOverTwoSpecifiers(t *testing.T) {
	inBubble(t, hds.Options{Interval: every(4 * time.Second)}, func(h *harness) {
		c := h.enter("probe-1", "r/a")
		top := topology(service("cart", 1), service("pay", 2))
		h.srv.Designate(top, all(top, "probe-1"))
		c.recv()
		c.report(&response{})
		without := topology(service("cart", 1))
		h.srv.Designate(without, all(without, "probe-1"))
		first := c.recv()
		if got := clusters(first); !maps.Equal(got, map[string]int{"cart": 3, "pay": 0}) {
			t.Fatalf("first step %v", got)
		}
		for _, cl := range first.GetClusterHealthChecks() {
			if cl.GetClusterName() == "pay" && (len(cl.GetLocalityEndpoints()) != 0 || len(cl.GetHealthChecks()) != 1) {
				t.Errorf("the drained cluster is %v", cl)
			}
		}
		began := time.Now()
		pass(3 * time.Second)
		// A report on it may still be under way; that is no offence.
		c.report(grouped("pay", "r/b", endpoint("10.0.2.3:80", up)))
		if got := h.srv.Checkers(time.Now())[0].Rejected; got != 0 {
			t.Errorf("%d entries rejected", got)
		}
		if got := clusters(c.recv()); !maps.Equal(got, map[string]int{"cart": 3}) || time.Since(began) != 4*time.Second {
			t.Errorf("second step %v after %v", got, time.Since(began))
		}
		// Nothing left: the specifier is empty, its interval is not.
		c.report(&response{})
		h.srv.Designate(topology(), nil)
		if got := clusters(c.recv()); !maps.Equal(got, map[string]int{"cart": 0}) {
			t.Errorf("drained %v", got)
		}
		c.send(&request{}) // Envoy goes on without a member
		if got := c.recv(); len(got.GetClusterHealthChecks()) != 0 || got.GetInterval().AsDuration() < time.Second {
			t.Errorf("empty specifier %v", got)
		}
		pass(time.Second)
		seen := time.Now()
		c.send(&request{})
		synctest.Wait()
		if got := h.srv.Checkers(time.Now())[0]; !got.LastSeen.Equal(seen) || got.Reports != 3 {
			t.Errorf("checker %+v", got)
		}
		c.leave()
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

// A checker that nobody has thought of yet is not told to drop everything.
func TestWaitsForDesignation(t *testing.T) {
	inBubble(t, hds.Options{DesignationWait: 7 * time.Second}, func(h *harness) {
		c := h.enter("probe-1", "r/a")
		said := c.next()
		pass(6 * time.Second)
		if len(said) != 0 {
			t.Fatal("told before it was designated")
		}
		pass(time.Second)
		if got := (<-said).m; len(got.GetClusterHealthChecks()) != 0 || got.GetInterval() == nil {
			t.Errorf("told %v", got)
		}
		c.leave()
	})
}
