package hds_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/testhelp"
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

// Whatever changed on the way, and whatever of it was no news: what a checker that
// stayed was told last is what one that comes now is told.
func TestToldAsANewcomer(t *testing.T) {
	for seed := range uint64(20) {
		inBubble(t, hds.Options{Interval: every(2 * time.Second)}, func(h *harness) {
			rng := rand.New(rand.NewPCG(seed, 0))
			var told atomic.Pointer[healthv3.HealthCheckSpecifier]
			messages := 0
			c := h.enter("stays", "r/a")
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					m, err := c.stream.Recv()
					if err != nil {
						return
					}
					told.Store(m)
					messages++
				}
			}()
			world := topology(service("a", 1), service("b", 2), service("c", 3), service("d", 4))
			for step := range 25 {
				world = altered(rng, world)
				keys := all(world, "stays")[0].Endpoints
				if rng.IntN(3) == 0 { // it probes a part only
					keys = slices.DeleteFunc(slices.Clone(keys), func(health.Key) bool { return rng.IntN(2) == 0 })
				}
				id := fmt.Sprintf("new-%d", step)
				h.srv.Designate(world, []health.Designation{{Checker: id, Endpoints: keys}, {Checker: "stays", Endpoints: keys}})
				pass(10 * time.Second) // it is not told too often, and services drain
				n := h.enter(id, "r/b")
				want := n.recv().GetClusterHealthChecks()
				if got := told.Load().GetClusterHealthChecks(); !slices.EqualFunc(got, want, func(a, b *healthv3.ClusterHealthCheck) bool { return proto.Equal(a, b) }) {
					t.Fatalf("seed %d, step %d: told %v\na newcomer %v", seed, step, got, want)
				}
				n.leave()
			}
			c.leave()
			<-done
			if messages < 5 || messages > 60 {
				t.Errorf("seed %d: %d messages after 25 changes", seed, messages)
			}
		})
	}
}

// altered changes one service, or none: parts that stay keep their identity.
func altered(rng *rand.Rand, t *isobar.Topology) *isobar.Topology {
	out := *t
	out.Services = slices.Clone(t.Services)
	if len(out.Services) == 0 {
		return topology(service("a", 1), service("b", 2))
	}
	i := rng.IntN(len(out.Services))
	s := &out.Services[i]
	switch rng.IntN(6) {
	case 0: // nothing that concerns checkers
		s.MaxShed = rng.Float64()
	case 1: // the same, in other memory
		s.Localities = slices.Clone(s.Localities)
	case 2: // another endpoint
		s.Localities = slices.Clone(s.Localities)
		l := &s.Localities[rng.IntN(len(s.Localities))]
		l.Endpoints = append(slices.Clone(l.Endpoints), isobar.Endpoint{Address: fmt.Sprintf("10.9.%d.%d:80", i, 1+rng.IntN(250))})
	case 3: // probed otherwise
		check := tcpCheck()
		check.UnhealthyThreshold = 2 + uint32(rng.IntN(3))
		s.HealthChecks = []isobar.HealthCheck{check}
	case 4: // without the endpoints of a locality
		s.Localities = slices.Clone(s.Localities)
		s.Localities[rng.IntN(len(s.Localities))].Endpoints = nil
	case 5:
		out.Services = slices.Delete(out.Services, i, i+1)
	}
	return &out
}

// shown returns what operators see beside the vote of a checker on an endpoint.
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
