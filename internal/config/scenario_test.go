package config_test

import (
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
)

func TestScenarioFixtures(t *testing.T) {
	fixtures(t, "testdata/scenario", 7, func(name string, data []byte) (any, []config.Problem, error) {
		s, warnings, err := config.DecodeScenario(name, data)
		if err != nil {
			return nil, warnings, err
		}
		return struct {
			*config.Scenario

			Network []isobar.LatencyRule
		}{s, s.Network.Rules()}, warnings, nil
	})
}

// FuzzDecodeScenario: either an error with places, or a fleet that can be run:
// all that is referred to is there, and numbers are finite.
func FuzzDecodeScenario(f *testing.F) {
	addFixtures(f, "testdata/scenario")
	f.Fuzz(func(t *testing.T, data []byte) {
		s, _, err := config.DecodeScenario("x", data)
		if err != nil {
			mustHavePlaces(t, err)
			return
		}
		known := map[string]bool{}
		for i := range s.Services {
			known[s.Services[i].Name] = true
			mustHaveCapacity(t, &s.Services[i])
		}
		if err := config.CheckCalls(s.Services); err != nil {
			t.Error(err)
		}
		if s.Warmup >= s.Length || s.Tick <= 0 || s.ReportInterval <= 0 || s.Timeout <= 0 {
			t.Errorf("warm-up %v, length %v, tick %v, interval %v, timeout %v", s.Warmup, s.Length, s.Tick, s.ReportInterval, s.Timeout)
		}
		for i := range s.Demand {
			d := &s.Demand[i]
			if !known[d.Service] || d.From.IsZero() || d.Clients < 1 || d.Silent+d.Liars > d.Clients {
				t.Errorf("demand %+v", d)
			}
			mustBeFinite(t, d.Rate)
			mustBeFinite(t, d.Lie)
		}
		for _, x := range s.Losses {
			if x.What == "" || x.From < 0 || x.To < x.From {
				t.Errorf("loss %+v", x)
			}
		}
		for _, c := range s.Capacity {
			mustBeFinite(t, c.Factor)
		}
	})
}

// mustHaveCapacity: each locality is there once, has endpoints of its own and a rate.
func mustHaveCapacity(t *testing.T, s *isobar.Service) {
	t.Helper()
	sites := map[isobar.Locality]bool{}
	for i := range s.Localities {
		l := &s.Localities[i]
		if sites[l.Locality] || l.Locality.IsZero() || len(l.Endpoints) == 0 || l.MaxRate <= 0 {
			t.Errorf("locality %+v", l)
		}
		sites[l.Locality] = true
		for _, x := range []float64{l.MaxRate, l.Concurrency, l.Ceiling, l.CapacityScaler, l.UnmanagedLoad} {
			mustBeFinite(t, x)
		}
	}
}
