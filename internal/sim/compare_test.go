//go:build !race

package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/sim"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// hotZone sends 15% more than it serves to one zone of four.
func hotZone(t *testing.T) *sim.Scenario {
	t.Helper()
	sc := &sim.Scenario{
		Seed: 1, Topology: testhelp.FourZones(t), Tick: interval, Interval: interval, Length: 5 * time.Minute, Warmup: time.Minute,
		ReportDelay: sim.Delay{Base: 100 * time.Millisecond, Jitter: 200 * time.Millisecond},
		PushDelay:   sim.Delay{Base: 100 * time.Millisecond, Jitter: 400 * time.Millisecond},
	}
	for i, z := range []string{"eu/a", "eu/b", "us/a", "us/b"} {
		kind := dataplane.Envoy
		if i%2 == 1 {
			kind = dataplane.GRPC
		}
		rate := []float64{500, 400, 1150, 200}[i]
		sc.Sources = append(sc.Sources, sim.Source{Service: "checkout", From: loc(z), Demand: sim.Constant(rate), Noise: 0.02, Clients: 8, Kind: kind})
	}
	return sc
}

func byName(t *testing.T, all []*sim.Result) map[string]*sim.Result {
	t.Helper()
	out := map[string]*sim.Result{}
	for _, r := range all {
		out[r.Policy] = r
	}
	return out
}

func TestHotZone(t *testing.T) {
	all, err := sim.Compare(t.Context(), hotZone(t), sim.Policies(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := byName(t, all)
	is, best := r[sim.NameIsobar], r[sim.NameClairvoyant]
	if is.MeanMS > 1.05*best.MeanMS || is.MeanMS < 0.999*best.MeanMS {
		t.Errorf("isobar's mean %v ms, the optimum %v ms", is.MeanMS, best.MeanMS)
	}
	if is.Peak > isobar.DefaultCeiling || is.Failed > 0 {
		t.Errorf("isobar: peak %v, failed %v", is.Peak, is.Failed)
	}
	for _, name := range []string{"closest", "failover"} {
		if x := r[name]; x.Peak < 1.1 || x.Failed < 0.05 || x.MeanMS < 4*is.MeanMS {
			t.Errorf("%s: peak %v, failed %v, mean %v ms", name, x.Peak, x.Failed, x.MeanMS)
		}
	}
}

// TestReplay: the same seed gives the same bytes, another one does not.
func TestReplay(t *testing.T) {
	run := func(seed uint64) []byte {
		sc := hotZone(t)
		sc.Seed = seed
		sc.UtilizationNoise = 0.1
		all, err := sim.Compare(t.Context(), sc, sim.Policies(), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := run(1)
	if !slices.Equal(first, run(1)) {
		t.Error("the same seed gives another result")
	}
	if slices.Equal(first, run(2)) {
		t.Error("another seed gives the same result")
	}
}

func TestCompareStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sim.Compare(ctx, hotZone(t), sim.Policies(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	bad := hotZone(t)
	bad.Sources[0].Service = "nowhere"
	if _, err := sim.Compare(t.Context(), bad, sim.Policies(), nil); !errors.Is(err, isobar.ErrInvalid) {
		t.Errorf("error %v", err)
	}
}

// TestOutage: an endpoint that fails is sent to until its failure is known, and
// then no more, by every policy.
func TestOutage(t *testing.T) {
	sc := hotZone(t)
	sc.Outages = []sim.Outage{{Locality: loc("us"), Share: 0.25, From: 2 * time.Minute, To: 4 * time.Minute}}
	sc.HealthDelay = 10 * time.Second
	sc.Marks = []time.Duration{2 * time.Minute, 4 * time.Minute}
	for _, p := range sim.Policies() {
		if p.Name == sim.NameClairvoyant {
			continue // knows at once
		}
		var during, after float64
		_, err := sim.Run(t.Context(), sc, p, func(f sim.Frame) error {
			if f.At == 2*time.Minute+interval {
				during = f.Sample.Failed
			}
			if f.At == 3*time.Minute {
				after = f.Sample.Failed
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if during < 0.05 || (p.Name == sim.NameIsobar && after > 0.001) {
			t.Errorf("%s: %v failed at first, %v later", p.Name, during, after)
		}
	}
}
