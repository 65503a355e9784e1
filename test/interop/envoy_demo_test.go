package interop

import (
	"testing"
	"time"

	vocabulary "github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/fleet/envoy"
)

// The demo's clients send through Envoys, which follow a load step, leave a
// backend that hangs, and a zone that is lost.
func TestEnvoyDemo(t *testing.T) {
	t.Parallel()
	s := fleet.DefaultScenario()
	s.Proxies = &fleet.Proxies{Path: envoyBinary(t, envoy.Newest), Bootstrap: func(c *fleet.ClientOptions) (string, error) {
		return envoyBootstrap(t, "--server", c.Server, "--node-id", c.ID, "--cluster", c.Cluster, "--locality", c.Locality.String()), nil
	}}
	// A quarter of the demo's load: other tests run at the same time.
	s.Clients, s.Concurrency, s.MaxQueue, s.Step.Rate = 1, 1, s.MaxQueue/4, s.Step.Rate/4
	for i := range s.Zones {
		s.Zones[i].Rate /= 4
	}
	run, err := fleet.Start(t.Context(), s, vocabulary.ModeFull, fleet.ServeIsobar)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := run.Play(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	frame := run.Frame()
	run.StopLoad()
	o := run.Outcome()
	for i, z := range frame.Overall.Zones {
		if served := z.Sent[i]; served < s.Zones[i].Rate/10 && z.Locality != s.Loss.Zone {
			t.Errorf("%.1f requests/s from %s were served there, of %.1f", served, z.Locality, z.Demand)
		}
	}
	few := func(what string, failed, of uint64) {
		if float64(failed) > 0.02*float64(of) {
			t.Errorf("%d of %d requests failed %s", failed, of, what)
		}
	}
	few("in the load step", o.Step.Failed, o.Step.Requests)
	few("2 s after the loss and later", o.Loss.Failed, o.Loss.Requests)
	few("outside of step, hang and loss", o.FailedElsewhere, o.Requests)
	if !o.Hang.Found || !o.Hang.Drained || !o.Loss.CheckersFound {
		t.Errorf("hang %+v, loss found %v", o.Hang, o.Loss.CheckersFound)
	}
	if o.Hang.Failed == 0 && o.Hang.DrainedSeconds > time.Second.Seconds() {
		t.Error("no failure is attributed to the backend that hung: Envoy's answers do not name it")
	}
}
