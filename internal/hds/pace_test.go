package hds_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestCheckerThatFloods asserts that a checker which reports without pause is read slowly, that
// its newest word counts nevertheless once it has stopped, and that a checker with many reports
// at once that had to wait is not slowed down.
func TestCheckerThatFloods(t *testing.T) {
	const interval, intervals, burst, each = 10 * time.Second, 20, 64, 16
	reg := prometheus.NewRegistry()
	inBubble(t, hds.Options{Interval: every(interval), Registerer: reg}, func(h *harness) {
		flood, other := h.enter("flood", "r/a"), h.enter("other", "r/a")
		top := topology(service("checkout", 0))
		h.srv.Designate(top, all(top, "flood", "other"))
		flood.recv()
		other.recv()
		reports := func() int { return int(testhelp.Metric(t, reg, "isobar_hds_reports_total")) }
		for range burst - 1 { // the first message was the request
			other.report(grouped("checkout", "r/a", endpoint("10.0.0.1:80", up)))
		}
		synctest.Wait()
		if n := reports(); n != burst-1 {
			t.Errorf("%d reports at once are read, want all %d", n, burst-1)
		}
		if n := testhelp.Metric(t, reg, "isobar_hds_excess_messages_total"); n != 0 {
			t.Errorf("%v messages of a checker that had to wait are too many", n)
		}
		before := reports()
		up80 := &request{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{
			EndpointHealthResponse: grouped("checkout", "r/a", endpoint("10.0.0.1:80", up)),
		}}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for flood.stream.Send(up80) == nil {
			}
		}()
		pass(intervals * interval)
		if n, most := reports()-before, burst+each*intervals; n < most/2 || n > most+1 {
			t.Errorf("%d reports of the flood in %d intervals are read, want %d", n, intervals, most)
		}
		flood.cancel()
		<-stopped
		h.srv.Collect(time.Now())
		for range 2 * burst {
			other.report(grouped("checkout", "r/a", endpoint("10.0.0.1:80", up)))
		}
		other.report(grouped("checkout", "r/a", endpoint("10.0.0.1:80", late)))
		pass(5 * interval)
		if got := h.srv.Collect(time.Now()); len(got) != 1 || got[0].Status != isobar.HealthStatus(late) {
			t.Errorf("the newest word of a checker that was slowed down: %+v", got)
		}
		if testhelp.Metric(t, reg, "isobar_hds_excess_messages_total") == 0 {
			t.Error("no message was too many")
		}
		other.leave()
	})
}

// TestPaceOfAShorterInterval asserts that a checker which had used up its burst when the
// interval became shorter is read at the pace of the new one at once.
func TestPaceOfAShorterInterval(t *testing.T) {
	const burst, before, after = 64, time.Minute, time.Second
	var interval atomic.Int64
	interval.Store(int64(before))
	reg := prometheus.NewRegistry()
	inBubble(t, hds.Options{Interval: func() time.Duration { return time.Duration(interval.Load()) }, Registerer: reg}, func(h *harness) {
		checker := h.enter("checker", "r/a")
		top := topology(service("checkout", 0))
		h.srv.Designate(top, all(top, "checker"))
		checker.recv()
		for range burst - 1 { // the first message was the request
			checker.report(grouped("checkout", "r/a", endpoint("10.0.0.1:80", up)))
		}
		synctest.Wait()
		interval.Store(int64(after))
		for range 16 {
			checker.report(grouped("checkout", "r/a", endpoint("10.0.0.1:80", up)))
		}
		pass(after + after/16)
		if n := int(testhelp.Metric(t, reg, "isobar_hds_reports_total")); n != burst-1+16 {
			t.Errorf("%d reports are read in an interval, want %d", n, burst-1+16)
		}
		checker.leave()
	})
}

// TestCheckerThatPollsWithoutPause asserts that polls of a checker beyond its pace are refused,
// that those of others are served, and that its newest word counts once it polls more slowly.
func TestCheckerThatPollsWithoutPause(t *testing.T) {
	const interval, burst, each = 10 * time.Second, 64, 16
	reg := prometheus.NewRegistry()
	inBubble(t, hds.Options{Interval: every(interval), Registerer: reg}, func(h *harness) {
		api := healthv3.NewHealthDiscoveryServiceClient(h.conn)
		greet := func(name string) (id string) {
			var header metadata.MD
			if _, err := api.FetchHealthCheck(h.t.Context(), hello(name, "r/a"), grpc.Header(&header)); err != nil {
				t.Fatal(err)
			}
			return header.Get(hds.CheckerHeader)[0]
		}
		report := func(id string, s corev3.HealthStatus) error {
			_, err := api.FetchHealthCheck(metadata.AppendToOutgoingContext(h.t.Context(), hds.CheckerHeader, id), &request{
				RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{
					EndpointHealthResponse: grouped("checkout", "r/a", endpoint("10.0.0.1:80", s)),
				},
			})
			return err
		}
		flood := func(id string) (served int) {
			for range 2 * burst {
				switch err := report(id, up); status.Code(err) {
				case codes.OK:
					served++
				case codes.ResourceExhausted:
				default:
					t.Fatal(err)
				}
			}
			return served
		}
		one, other := greet("one"), greet("other")
		top := topology(service("checkout", 0))
		h.srv.Designate(top, all(top, one, other))
		if n := flood(one); n != burst-1 { // the first message was the request
			t.Errorf("%d polls at once are served, want %d", n, burst-1)
		}
		if err := report(other, up); err != nil {
			t.Errorf("another checker: %v", err)
		}
		if n := testhelp.Metric(t, reg, "isobar_hds_excess_messages_total"); n != burst+1 {
			t.Errorf("%v messages are too many, want %d", n, burst+1)
		}
		pass(interval)
		if n := flood(one); n != each {
			t.Errorf("%d polls are served an interval later, want %d", n, each)
		}
		h.srv.Collect(time.Now())
		pass(interval)
		if err := report(one, late); err != nil {
			t.Error(err)
		}
		if got := h.srv.Collect(time.Now()); len(got) != 1 || got[0].Status != isobar.HealthStatus(late) {
			t.Errorf("its newest word: %+v", got)
		}
	})
}
