package hds_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// A checker may report only on what it was told to probe.
func TestReportsOnOthersDoNotCount(t *testing.T) {
	reg := prometheus.NewRegistry()
	inBubble(t, hds.Options{Registerer: reg}, func(h *harness) {
		c := h.enter("probe-1", "r/a")
		top := topology(service("cart", 1), service("pay", 2))
		h.srv.Designate(top, []health.Designation{{Checker: "probe-1", Endpoints: []health.Key{{Service: "cart", Address: "10.0.1.1:80"}}}})
		c.recv()
		for _, m := range []*response{
			grouped("cart", "r/a", endpoint("10.0.1.2:80", down)),   // another's endpoint
			grouped("cart", "r/b", endpoint("10.0.1.1:80", down)),   // not where it is
			grouped("cart", "r/a", endpoint("10.0.1.1:81", down)),   // another port
			grouped("pay", "r/a", endpoint("10.0.1.1:80", down)),    // another service
			grouped("nobody", "r/a", endpoint("10.0.1.1:80", down)), // no service
		} {
			c.report(m)
			if got := h.srv.Collect(time.Now()); len(got) != 0 {
				t.Errorf("%v counts: %+v", m, got)
			}
		}
		got := h.srv.Checkers(time.Now())[0]
		if got.Rejected != 5 || !strings.Contains(got.LastReason, "not to be probed") || got.Reports != 5 || got.Designated != 1 {
			t.Errorf("checker %+v", got)
		}
		c.report(grouped("cart", "r/a", endpoint("10.0.1.1:80", down)))
		if got := h.srv.Collect(time.Now()); len(got) != 1 {
			t.Errorf("its own does not count: %+v", got)
		}
		if n := testhelp.Metric(t, reg, "isobar_hds_rejected_entries_total", "not_designated"); n != 5 {
			t.Errorf("%v entries counted", n)
		}
		// Bad entries are named, the others stand.
		unknown := endpoint("10.0.1.1:80", 0)
		c.report(grouped("cart", "r/a", unknown, endpoint("10.0.1.1:80", up), endpoint("10.0.1.1:80", 99)))
		if got := h.srv.Collect(time.Now()); len(got) != 1 || got[0].Status != isobar.Healthy {
			t.Errorf("reports %+v", got)
		}
		if n := testhelp.Metric(t, reg, "isobar_hds_rejected_entries_total", "status"); n != 2 {
			t.Errorf("%v statuses counted", n)
		}
		c.leave()
	})
}

// Builds that know only the flat form name an address alone.
func TestFlatReports(t *testing.T) {
	reg := prometheus.NewRegistry()
	inBubble(t, hds.Options{Registerer: reg, Interval: every(2 * time.Second)}, func(h *harness) {
		c := h.enter("probe-1", "r/a")
		cart, pay := service("cart", 1), service("pay", 2)
		pay.Localities[0].Endpoints[0].Address = "10.0.1.1:80" // shared by both
		top := topology(cart, pay)
		h.srv.Designate(top, all(top, "probe-1"))
		c.recv()
		c.report(flat(
			endpoint("10.0.1.1:80", down), endpoint("10.0.1.2:80", up), endpoint("10.0.1.3:80", late),
			endpoint("10.0.1.1:80", down), endpoint("10.9.9.9:80", up),
		))
		if !h.signalled() {
			t.Error("no news")
		}
		got := map[health.Key]isobar.HealthStatus{}
		for _, r := range h.srv.Collect(time.Now()) {
			got[health.Key{Service: r.Service, Address: r.Address}] = r.Status
		}
		want := map[health.Key]isobar.HealthStatus{
			{Service: "cart", Address: "10.0.1.1:80"}: isobar.Unhealthy, {Service: "cart", Address: "10.0.1.2:80"}: isobar.Healthy,
			{Service: "cart", Address: "10.0.1.3:80"}: isobar.Timeout, {Service: "pay", Address: "10.0.1.1:80"}: isobar.Unhealthy,
		}
		if len(got) != len(want) {
			t.Errorf("reports %v", got)
		}
		for k, s := range want {
			if got[k] != s {
				t.Errorf("%v is %v, want %v", k, got[k], s)
			}
		}
		// Divided entries on one address: nobody knows which is which.
		c.report(flat(
			endpoint("10.0.1.1:80", down), endpoint("10.0.1.1:80", up), endpoint("10.0.1.2:80", up),
		))
		if got := h.srv.Collect(time.Now()); len(got) != 1 || got[0].Address != "10.0.1.2:80" {
			t.Errorf("reports %+v", got)
		}
		if n := testhelp.Metric(t, reg, "isobar_hds_rejected_entries_total", "ambiguous"); n != 2 {
			t.Errorf("%v entries ambiguous", n)
		}
		// What was taken off is no offence.
		h.srv.Designate(top, all(topology(cart), "probe-1"))
		c.recv()
		c.report(flat(endpoint("10.0.2.2:80", up)))
		if n := testhelp.Metric(t, reg, "isobar_hds_former_entries_total"); n != 1 {
			t.Errorf("%v former entries", n)
		}
		if n := testhelp.Metric(t, reg, "isobar_hds_rejected_entries_total", "not_designated"); n != 1 {
			t.Errorf("%v foreign entries", n)
		}
		c.leave()
	})
}

// Services that a checker can't probe, or that break a rule, are kept from it.
func TestUnfitServicesAreLeftOut(t *testing.T) {
	grpcCheck, redisCheck := tcpCheck(), tcpCheck()
	grpcCheck.Protocol, grpcCheck.TCP, grpcCheck.GRPC = isobar.CheckGRPC, nil, &isobar.GRPCCheck{}
	redisCheck.Protocol, redisCheck.TCP, redisCheck.Redis = isobar.CheckRedis, nil, &isobar.RedisCheck{}
	endless := tcpCheck()
	endless.Timeout = 0
	named := service("named", 5)
	named.Localities[0].Endpoints[0].Address = "backend.example:80"
	disabled := service("disabled", 6)
	for i := range disabled.Localities[0].Endpoints {
		disabled.Localities[0].Endpoints[i].Check = &isobar.EndpointCheck{Disabled: true}
	}
	unchecked := service("unchecked", 7)
	unchecked.HealthChecks = nil
	top := topology(service("rpc", 1, grpcCheck), service("cache", 2, redisCheck), service("plain", 3), service("endless", 4, endless),
		named, disabled, unchecked)
	for _, tc := range []struct {
		protocols []healthv3.Capability_Protocol
		want      map[string]int
		unfit     float64
	}{
		{nil, map[string]int{"plain": 3, "disabled": 1}, 2},
		{
			[]healthv3.Capability_Protocol{healthv3.Capability_TCP, healthv3.Capability_REDIS, 77},
			map[string]int{"plain": 3, "disabled": 1, "cache": 3}, 1,
		},
		{[]healthv3.Capability_Protocol{}, map[string]int{}, 6},
	} {
		reg := prometheus.NewRegistry()
		inBubble(t, hds.Options{Registerer: reg}, func(h *harness) {
			h.srv.Designate(top, all(top, "probe-1"))
			c := h.enter("probe-1", "r/a", tc.protocols...)
			got := clusters(c.recv())
			for name, n := range tc.want {
				if got[name] != n {
					t.Errorf("%s: %d endpoints, want %d", name, got[name], n)
				}
			}
			if len(got) != len(tc.want) {
				t.Errorf("told %v, want %v", got, tc.want)
			}
			if n := testhelp.Metric(t, reg, "isobar_hds_left_out_total", "capability"); n != tc.unfit {
				t.Errorf("%v services unfit, want %v", n, tc.unfit)
			}
			c.leave()
		})
	}
}

// A checker that does not read gets the newest state when it does, and holds
// up neither the control loop nor others.
func TestSlowCheckerCoalesces(t *testing.T) {
	inBubble(t, hds.Options{Interval: every(time.Second)}, func(h *harness) {
		var services []isobar.Service
		for i := range 200 {
			services = append(services, service(strings.Repeat("x", 200)+string(rune('a'+i%26))+string(rune('a'+i/26)), byte(i)))
		}
		slow, quick := h.enter("slow", "r/a"), h.enter("quick", "r/b")
		for i := range 50 {
			top := topology(services[:100+i]...)
			h.srv.Designate(top, all(top, "slow", "quick"))
			if got := len(clusters(quick.recv())); got != 100+i {
				t.Fatalf("quick is told of %d clusters at step %d", got, i)
			}
			quick.send(&request{})
			slow.send(&request{}) // alive, but it does not read
			pass(2 * time.Second)
		}
		told := 0
		for last := 0; last != 149; told++ {
			last = len(clusters(slow.recv()))
			synctest.Wait()
		}
		if told > 10 {
			t.Errorf("%d specifiers waited for the slow one", told)
		}
		slow.leave()
		quick.leave()
	})
}
