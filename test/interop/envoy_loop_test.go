package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/fleet/envoyloop"
)

// loopLimits are what a run of a scenario has to hold, as parts of requests.
type loopLimits struct {
	scenario string
	below    float64 // most below Envoys alone, of requests that succeed while the fault lasts
	least    float64 // of requests that succeed in the last third of the fault
	bad      float64 // most of a source's requests to the bad zone from the third tick on
}

// Envoys that Isobar steers do no worse than the same Envoys alone when a zone
// refuses connections, and better when one zone gets more than it can serve.
// `make envoy-loop` plays more faults, for longer, with narrower limits.
//
//nolint:tparallel // it measures: other tests wait until it is done
func TestEnvoyLoop(t *testing.T) {
	for _, tt := range []loopLimits{
		{scenario: "zone-1.5", below: 0, least: 0.9, bad: 1},
		{scenario: "refuse", below: 0.05, least: 0.95, bad: 0.05},
	} {
		t.Run(tt.scenario, func(t *testing.T) {
			t.Parallel()
			// One run is a sample of a random process: what counts is missed twice.
			const tries = 2
			for try := 1; ; try++ {
				result, busy := playLoop(t, tt.scenario)
				missed := tt.missed(result, busy)
				if len(missed) == 0 {
					return
				}
				var text strings.Builder
				if err := result.Write(&text); err != nil {
					t.Fatal(err)
				}
				if try == tries {
					t.Fatalf("%s\n%s", strings.Join(missed, "\n"), text.String())
				}
				t.Logf("missed once: %s\n%s", strings.Join(missed, "\n"), text.String())
			}
		})
	}
}

// missed lists the limits that a run did not hold. What a busy machine is at fault
// for counts less.
func (l *loopLimits) missed(result *envoyloop.Result, busy bool) (out []string) {
	isobar, alone, below := &result.Isobar, result.Alone, l.below
	if busy { // what both lack means nothing, and what one of them has little
		below = 0.1
	}
	if isobar.During < alone.During-below {
		out = append(out, fmt.Sprintf("%.3f of requests succeed during the fault, with Envoys alone %.3f", isobar.During, alone.During))
	}
	if busy {
		return out
	}
	if isobar.LastThird < l.least {
		out = append(out, fmt.Sprintf("%.3f of requests succeed in the last third of the fault", isobar.LastThird))
	}
	for zone, share := range isobar.Rest {
		if share > l.bad {
			out = append(out, fmt.Sprintf("%.3f of the requests from %s go to the bad zone from the third tick on", share, envoyloop.Zones[zone]))
		}
	}
	return out
}

// In mode observe nothing is served but the nearest healthy locality: no zone is
// barred because requests time out there.
//
//nolint:paralleltest // it measures: other tests wait until it is done
func TestEnvoyLoopObserve(t *testing.T) {
	result, _ := playLoop(t, "observe-1.5")
	if result.Isobar.During > 0.97 {
		t.Errorf("%.3f of requests succeed: was there too much for the zone at all?", result.Isobar.During)
	}
	for _, aim := range result.Verdicts {
		if !aim.Met {
			t.Errorf("%s: %s", aim.Aim, aim.Detail)
		}
	}
	if t.Failed() {
		if err := result.Write(t.Output()); err != nil {
			t.Error(err)
		}
	}
}

// playLoop plays a scenario, again where the machine was too busy for the figures
// to mean anything: requests were sent late. It reports whether that was so each time.
func playLoop(t *testing.T, scenario string) (result *envoyloop.Result, busy bool) {
	t.Helper()
	const tries, latest = 2, 100 // ms
	i := slices.IndexFunc(envoyloop.Scenarios, func(s envoyloop.Scenario) bool { return s.Name == scenario })
	for range tries {
		var err error
		result, err = envoyloop.Run(t.Context(), &envoyloop.Options{
			Isobar: isobarPath, Envoy: envoyBinary(t, envoy.Newest), Proxies: 1, Seed: 1, Alone: true,
			Tick: time.Second, ReportInterval: time.Second, Warm: 8 * time.Second, Fault: 24 * time.Second, After: 2 * time.Second,
		}, &envoyloop.Scenarios[i])
		if err != nil {
			t.Fatal(err)
		}
		if result.Machine.LateMS <= latest {
			return result, false
		}
		t.Logf("the machine is busy with something else: %s", result.Machine)
	}
	return result, true
}
