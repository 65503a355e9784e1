package interop

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/plan"
)

// learnedMetrics are what Envoy is to pass on in its load reports for Isobar to
// learn capacity from. Clusters from Isobar say so themselves.
var learnedMetrics = []string{"application_utilization", "cpu_utilization", "mem_utilization"}

// everyProtocol returns an Envoy of each version and protocol that this run tests, without
// a bootstrap file.
func everyProtocol() (out []*gateway) {
	for _, version := range []string{envoy.Newest, envoy.Oldest} {
		for _, protocol := range []string{adsStream, adsDelta, restPolls, edsBeside} {
			if version == envoy.Newest || protocol == adsStream || interopAll() {
				out = append(out, &gateway{version: version, protocol: protocol})
			}
		}
	}
	return out
}

// begin starts the Envoy in us/a as a client of a server.
func (g *gateway) begin(t *testing.T, s *isobar, xds string, services ...string) {
	t.Helper()
	g.zone, g.services = "us/a", services
	g.id = strings.ReplaceAll(g.name(), " ", "-")
	other := ""
	if g.protocol == edsBeside {
		other = startClusterServer(t, services)
	}
	g.bootstrap = g.configure(t, xds, s.rest, other)
	g.client.Transport = &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(g.client.CloseIdleConnections)
	g.start(t)
}

// TestEnvoyORCA: backends report their utilization with each answer, Envoys add
// it up in their load reports, and Isobar learns from them what the endpoints can
// serve, which nobody has declared. Envoy 1.36 refuses wrr_locality, so its clusters
// are without. Envoys with clusters from Isobar also weigh endpoints by what these
// report out of band.
func TestEnvoyORCA(t *testing.T) {
	t.Parallel()
	const capacity = 100.0
	idle, busy := startReporter(t, "idle", 0.2), startReporter(t, "busy", 0.8)
	services := "services:\n- {name: apart, orca: {out_of_band: 1s}, localities: [{locality: us/a, max_rate: 1000, endpoints: " + reporting(idle, busy) + "}]}\n"
	gateways := everyProtocol()
	measured := func(i int) string { return fmt.Sprint("measured-", i) }
	for i := range gateways {
		b := startWebBackend(t, measured(i))
		b.capacity = capacity
		services += fmt.Sprintf("- {name: %s, orca: true, localities: [{locality: us/a, endpoints: [%q]}]}\n", measured(i), b.address)
	}
	s := startIsobar(t, services)
	for i, g := range gateways {
		g.begin(t, s, s.xds, measured(i), "apart")
	}
	var all sync.WaitGroup
	for i, g := range gateways {
		all.Go(func() {
			err := poll(t, func() error { return g.learned(t, s, measured(i), capacity) })
			seen.ran(g.name(), orcaWeights, err == nil)
			if err == nil && !excused(g.name(), outOfBand) {
				err = poll(t, func() error { return g.prefersIdle(t) })
				seen.ran(g.name(), outOfBand, err == nil)
			}
			if err != nil {
				t.Errorf("%s: %v", g.name(), err)
			}
		})
	}
	all.Wait()
}

// learned sends at two rates, so that the line through the reports can be seen, and
// returns an error until the capacity is known.
func (g *gateway) learned(t *testing.T, s *isobar, service string, capacity float64) error {
	t.Helper()
	for _, rate := range []int{60, 25} {
		stop := g.steady(t.Context(), service, rate)
		pause(t.Context(), 4*time.Second)
		if o := stop(); len(o.Failed) > 0 {
			return fmt.Errorf("failed: %v", o.Failed)
		}
	}
	var e plan.Explanation
	if err := s.get("/v1/explain?service="+service+"&from=us/a", &e); err != nil {
		return err
	}
	l := e.Localities[0]
	if l.Learned == nil {
		return errors.New("no utilization in the load reports")
	}
	if math.Abs(l.Learned.Capacity-capacity) > 0.3*capacity || l.Learned.InUse == 0 || l.Capacity != l.Learned.InUse {
		return fmt.Errorf("capacity %.0f, %v", l.Capacity, l.Learned)
	}
	return nil
}

// prefersIdle returns an error until the endpoint that says that it is idle gets
// most requests.
func (g *gateway) prefersIdle(t *testing.T) error {
	t.Helper()
	if o := g.requests(t.Context(), "apart", 240); o.share("idle") < 0.7 || o.Served["busy"] == 0 || len(o.Failed) > 0 {
		return fmt.Errorf("%+v", o)
	}
	return nil
}
