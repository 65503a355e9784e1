package interop

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestEnvoyORCA: backends report their utilization with each answer, Envoy adds
// it up in its load reports, and Isobar learns from them what the endpoints can
// serve, which nobody has declared. The clusters come from Isobar. Envoy 1.36 refuses
// wrr_locality, so its clusters are without.
func TestEnvoyORCA(t *testing.T) {
	t.Parallel()
	for _, version := range []string{envoy.Newest, envoy.Oldest} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			testEnvoyORCA(t, version)
		})
	}
}

func testEnvoyORCA(t *testing.T, version string) {
	t.Helper()
	const capacity = 100.0
	b := startWebBackend(t, "measured")
	b.capacity = capacity
	s := startIsobar(t, fmt.Sprintf("services: [{name: measured, orca: true, localities: [{locality: us/a, endpoints: [%q]}]}]\n", b.address))
	g := &gateway{version: version, form: adsStream, zone: "us/a", id: "orca"}
	g.bootstrap = withListeners(t, envoyBootstrap(t, "--server", s.xds, "--node-id", g.id, "--locality", g.zone), routesTo([]string{"measured"}), "")
	g.client.Transport = &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(g.client.CloseIdleConnections)
	g.start(t)
	await(t, "learned capacity", func() error {
		// The rate has to change for the line through the reports to be seen.
		for _, rate := range []int{60, 25} {
			stop := g.steady(t.Context(), "measured", rate)
			pause(t.Context(), 4*time.Second)
			if o := stop(); len(o.Failed) > 0 {
				return fmt.Errorf("failed: %v", o.Failed)
			}
		}
		var e plan.Explanation
		if err := s.get("/v1/explain?service=measured&from=us/a", &e); err != nil {
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
	})
	seen.passed(g.name(), orcaWeights)
}
