package checker_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

const (
	a1 = "192.0.2.1:80"
	a2 = "192.0.2.2:80"
	a3 = "192.0.2.3:80"
)

// inBubble runs a test in virtual time with a scripted prober.
func inBubble(t *testing.T, f func(*world, *script), change ...func(*checker.Options)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		sc := newScript()
		w := start(t, append([]func(*checker.Options){sc.use}, change...)...)
		f(w, sc)
		w.stop()
		if open, _ := sc.count(); open != 0 {
			t.Errorf("%d probers are still open after the checker has stopped", open)
		}
	})
}

func TestHello(t *testing.T) {
	inBubble(t, func(w *world, _ *script) {
		t := w.t
		hello := w.stream().hello
		n := hello.GetNode()
		if n.GetId() != "checker-1" || n.GetCluster() != "checkers" || n.GetUserAgentName() != checker.UserAgent || n.GetUserAgentVersion() != "test" {
			t.Errorf("node %v", n)
		}
		if !proto.Equal(n.GetLocality(), &corev3.Locality{Region: "us-east", Zone: "b", SubZone: "rack-1"}) {
			t.Errorf("locality %v", n.GetLocality())
		}
		want := &healthv3.Capability{HealthCheckProtocols: []healthv3.Capability_Protocol{
			healthv3.Capability_HTTP, healthv3.Capability_TCP, healthv3.Capability_REDIS,
		}}
		if !proto.Equal(hello.GetCapability(), want) {
			t.Errorf("capability %v", hello.GetCapability())
		}
	})
}

// TestReport looks at the whole of a report: clusters in the order of the
// specifier, their localities, and every endpoint once more in the flat list.
func TestReport(t *testing.T) {
	inBubble(t, func(w *world, sc *script) {
		t := w.t
		sc.set(a2, checker.Broken)
		sc.set(a3, checker.TimedOut)
		s := w.stream()
		c := cluster("shop", check(nil), a1, a2)
		c.LocalityEndpoints = append(c.LocalityEndpoints, group("us-east", "c", a3), group("eu", "a"))
		s.specify(t, spec(c, cluster("pay", check(nil), a1)))
		<-time.After(2 * time.Second)
		for len(s.reports) > 0 {
			<-s.reports
		}
		health := func(a string, st corev3.HealthStatus) *healthv3.EndpointHealth {
			return &healthv3.EndpointHealth{Endpoint: endpoint(a), HealthStatus: st}
		}
		want := &healthv3.EndpointHealthResponse{
			EndpointsHealth: []*healthv3.EndpointHealth{health(a1, healthy), health(a2, unhealthy), health(a3, timeout), health(a1, healthy)}, //nolint:staticcheck // older servers read it
			ClusterEndpointsHealth: []*healthv3.ClusterEndpointsHealth{
				{ClusterName: "shop", LocalityEndpointsHealth: []*healthv3.LocalityEndpointsHealth{
					{Locality: c.LocalityEndpoints[0].GetLocality(), EndpointsHealth: []*healthv3.EndpointHealth{health(a1, healthy), health(a2, unhealthy)}},
					{Locality: c.LocalityEndpoints[1].GetLocality(), EndpointsHealth: []*healthv3.EndpointHealth{health(a3, timeout)}},
				}},
				{ClusterName: "pay", LocalityEndpointsHealth: []*healthv3.LocalityEndpointsHealth{
					{Locality: c.LocalityEndpoints[0].GetLocality(), EndpointsHealth: []*healthv3.EndpointHealth{health(a1, healthy)}},
				}},
			},
		}
		if got := s.next(t).GetEndpointHealthResponse(); !proto.Equal(got, want) {
			t.Errorf("reported\n%v\nwant\n%v", got, want)
		}
	})
}

// TestReportInterval: unset is a second, 0 is never, and a server that sends
// many specifiers hears reports nevertheless.
func TestReportInterval(t *testing.T) {
	inBubble(t, func(w *world, _ *script) {
		t := w.t
		s := w.stream()
		sp := spec(cluster("c", check(nil), a1))
		sp.Interval = nil
		began := time.Now()
		s.specify(t, sp)
		s.next(t)
		s.next(t)
		if got := time.Since(began); got != 2*time.Second {
			t.Errorf("two reports after %s, want 2s", got)
		}
		sp.Interval = durationpb.New(0)
		s.specify(t, sp)
		<-time.After(time.Hour)
		if len(s.reports) > 0 {
			t.Errorf("reports with an interval of 0: %v", <-s.reports)
		}
		for i := range 50 {
			sp.Interval = durationpb.New(100*time.Millisecond + time.Duration(i%2))
			s.specify(t, sp)
			<-time.After(20 * time.Millisecond)
		}
		if got := len(s.reports); got < 9 || got > 11 {
			t.Errorf("%d reports in a second at 100ms", got)
		}
	})
}

// TestReconnect: while there is no stream probing goes on and health is kept;
// a new stream reports even if it gets the same specifier.
func TestReconnect(t *testing.T) {
	inBubble(t, func(w *world, sc *script) {
		t := w.t
		s := w.stream()
		sp := spec(cluster("c", check(nil), a1, a2))
		s.specify(t, sp)
		s.until(t, "c", a1, healthy)
		s.end <- status.Error(codes.Unavailable, "the server stops")
		before := len(sc.times(a1))
		again := w.stream()
		if got := len(sc.times(a1)); got <= before+5 {
			t.Errorf("%d probes before the stream broke, %d after the back-off: probing has stopped", before, got)
		}
		again.specify(t, sp)
		if got, _ := statusIn(again.next(t), "c", a1); got != healthy {
			t.Errorf("the first report of the new stream says %s", got)
		}
		sc.set(a2, checker.Failed)
		again.until(t, "c", a2, unhealthy)
		again.until(t, "c", a1, healthy)
	})
}

// TestBackoff: half of 1, 2, 4 ... 30 seconds and a random part of the other
// half; a server that answers resets it.
func TestBackoff(t *testing.T) {
	inBubble(t, func(w *world, _ *script) {
		t := w.t
		s := w.stream()
		wait := func(ceiling time.Duration) {
			t.Helper()
			began := time.Now()
			s.end <- nil
			s = w.stream()
			if got := time.Since(began); got < ceiling/2 || got > ceiling {
				t.Errorf("tried again after %s, want %s to %s", got, ceiling/2, ceiling)
			}
		}
		for _, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
			wait(time.Duration(seconds) * time.Second)
		}
		s.specify(t, spec())
		s.next(t)
		wait(time.Second)
	})
}

// TestChange: what stays keeps its schedule and its health, what goes is let
// go of, and what comes begins unhealthy.
func TestChange(t *testing.T) {
	inBubble(t, func(w *world, sc *script) {
		t := w.t
		s := w.stream()
		s.specify(t, spec(cluster("c", check(nil), a1, a2)))
		s.until(t, "c", a1, healthy)
		s.until(t, "c", a2, healthy)

		sc.set(a3, checker.Broken)
		s.specify(t, spec(cluster("c", check(nil), a1, a3)))
		s.until(t, "c", a3, unhealthy)
		if _, ok := statusIn(s.next(t), "c", a2); ok {
			t.Error("an endpoint that is gone is reported")
		}
		if open, _ := sc.count(); open != 2 {
			t.Errorf("%d probers are open, want 2", open)
		}

		// Another check: the endpoint keeps its health until that one fails.
		s.specify(t, spec(cluster("c", check(func(hc *corev3.HealthCheck) { hc.Name = "other" }), a1)))
		for range 50 {
			if got, ok := statusIn(s.next(t), "c", a1); ok && got != healthy {
				t.Fatalf("a new check made it %s", got)
			}
		}

		// The same endpoint in another locality is another endpoint.
		moved := cluster("c", check(func(hc *corev3.HealthCheck) { hc.Name = "other" }))
		moved.LocalityEndpoints = []*healthv3.LocalityEndpoints{group("us-east", "c", a1)}
		sc.set(a1, checker.Broken)
		s.specify(t, spec(moved))
		s.until(t, "c", a1, unhealthy)

		// Nothing at all: reports go on, empty.
		s.specify(t, spec())
		for i := 0; ; i++ {
			r := s.next(t)
			if len(r.GetEndpointHealthResponse().GetClusterEndpointsHealth()) == 0 {
				break
			}
			if i > 100 {
				t.Fatalf("after an empty specifier: %v", r)
			}
		}
		synctest.Wait()
		if open, _ := sc.count(); open != 0 {
			t.Errorf("%d probers are open, want none", open)
		}
	})
}

// TestUnnamedClusters are built again with every specifier.
func TestUnnamedClusters(t *testing.T) {
	inBubble(t, func(w *world, sc *script) {
		t := w.t
		s := w.stream()
		s.specify(t, spec(cluster("", check(nil), a1), cluster("", check(nil), a2)))
		s.until(t, "", a1, healthy)
		s.until(t, "", a2, healthy)
		sc.set(a1, checker.Broken)
		s.specify(t, spec(cluster("", check(nil), a1)))
		s.until(t, "", a1, unhealthy)
	})
}

// TestDuplicateCluster: the first of a name counts.
func TestDuplicateCluster(t *testing.T) {
	inBubble(t, func(w *world, _ *script) {
		t := w.t
		s := w.stream()
		s.specify(t, spec(cluster("c", check(nil), a1), cluster("c", check(nil), a2), cluster("d", check(nil), a3)))
		s.until(t, "d", a3, healthy)
		r := s.next(t)
		if _, ok := statusIn(r, "c", a1); !ok || len(r.GetEndpointHealthResponse().GetClusterEndpointsHealth()) != 2 {
			t.Errorf("reported %v", r)
		}
	})
}
