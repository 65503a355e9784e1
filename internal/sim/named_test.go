//go:build !race

package sim

import (
	"fmt"
	"testing"
)

// TestHealthyFleetsNameNoClient: clients of the simulation do what they are told. Where
// nothing fails and nothing is lost, none is said to ignore its weights, whatever the
// delays, the demand, its noise and the changes of shares.
func TestHealthyFleetsNameNoClient(t *testing.T) {
	const fleets = 20
	seed, requests := uint64(0), 0.0
	for n := 0; n < fleets; {
		seed++
		if seed > 100*fleets {
			t.Fatalf("%d of %d random fleets are healthy", n, seed)
		}
		if sc := randomFleet(seed, small); len(sc.Outages)+len(sc.Losses)+len(sc.Troubles) > 0 {
			continue
		}
		n++
		_, err := simulateRandom(t.Context(), seed, small, func(f Frame) error {
			for _, svc := range f.Plan.Services {
				for _, r := range svc.Deviations.Rounds {
					requests += r.Requests
				}
				if found := svc.Deviations.Individual; len(found) > 0 {
					return fmt.Errorf("%s: %+v", svc.Spec.Name, found)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	if requests == 0 {
		t.Fatal("no request was held against shares")
	}
}
