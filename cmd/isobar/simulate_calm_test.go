//go:build !race

package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar/internal/sim"
)

// TestLibraryHasNoCycles: demand that moves, failures, liars and capacities that
// are learned are not taken for shares that oscillate by themselves.
func TestLibraryHasNoCycles(t *testing.T) {
	files, err := scenarioFiles([]string{"../../examples/scenarios"})
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	scenarios, err := readScenarios(files, 0, nil, &stderr)
	if err != nil {
		t.Fatal(err, stderr.String())
	}
	for i, sc := range scenarios {
		_, err := sim.Run(t.Context(), simScenario(sc), sim.Isobar(), func(f sim.Frame) error {
			for _, s := range f.Plan.Services {
				if s.Damping != nil && s.Damping.Found > 0 {
					return fmt.Errorf("%s at %v: %s", s.Spec.Name, f.At, s.Damping)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", files[i], err)
		}
	}
}
