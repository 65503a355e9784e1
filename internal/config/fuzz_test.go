package config_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
)

func addFixtures(f *testing.F, dir string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yml"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// FuzzDecode: whatever comes in, there is either an error with places, or a
// configuration whose numbers and names keep the rules.
func FuzzDecode(f *testing.F) {
	addFixtures(f, "testdata/config")
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := config.Decode("x", data)
		if err != nil {
			mustHavePlaces(t, err)
			return
		}
		names := map[string]bool{}
		for i := range c.Services {
			s := &c.Services[i]
			if names[s.Name] || s.Name == "" {
				t.Errorf("name %q is empty or given twice", s.Name)
			}
			names[s.Name] = true
			mustBeSound(t, s)
		}
		if err := config.CheckCalls(c.Services); err != nil {
			t.Error(err)
		}
	})
}

func mustHavePlaces(t *testing.T, err error) {
	t.Helper()
	var all *config.Error
	if !errors.As(err, &all) || len(all.Problems) == 0 {
		t.Fatalf("not a list of problems: %v", err)
	}
	for _, p := range all.Problems {
		if p.Line < 1 || p.Column < 1 || p.Text == "" || p.Warning {
			t.Errorf("a problem without place or text: %+v", p)
		}
	}
}

func mustBeSound(t *testing.T, s *isobar.Service) {
	t.Helper()
	mustBeProbeable(t, s)
	mustHaveLimits(t, s)
	sites, addresses := map[isobar.Locality]bool{}, map[string]bool{}
	for i := range s.Localities {
		l := &s.Localities[i]
		if sites[l.Locality] || l.Locality.IsZero() {
			t.Errorf("locality %q is empty or given twice", l.Locality)
		}
		sites[l.Locality] = true
		for _, x := range []float64{l.MaxRate, l.Concurrency, l.Ceiling, l.CapacityScaler, l.UnmanagedLoad} {
			mustBeFinite(t, x)
		}
		var weights uint64
		for _, e := range l.Endpoints {
			if addresses[e.Address] || e.Address == "" {
				t.Errorf("address %q is empty or given twice", e.Address)
			}
			addresses[e.Address] = true
			weights += uint64(max(1, e.Weight))
			mustBeFinite(t, e.MaxRate)
			mustBeFinite(t, e.Concurrency)
		}
		if weights > math.MaxUint32 {
			t.Errorf("weights sum up to %d", weights)
		}
	}
}

func mustHaveLimits(t *testing.T, s *isobar.Service) {
	t.Helper()
	seen := map[isobar.Limit]bool{}
	for _, l := range s.Limits {
		if _, err := isobar.ParseLimitMetric(l.Metric); err != nil || !(l.Max > 0) {
			t.Errorf("limit %+v (%v)", l, err)
		}
		mustBeFinite(t, l.Max)
		if l.Max = 0; seen[l] {
			t.Errorf("limit of %s given twice", l.Metric)
		}
		seen[l] = true
	}
	if len(s.Limits) > isobar.MaxLimits {
		t.Errorf("%d limits", len(s.Limits))
	}
}

func mustBeFinite(t *testing.T, x float64) {
	t.Helper()
	if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
		t.Errorf("%v is no rate", x)
	}
}

// FuzzDecodeProblem: either an error with places, or a problem whose slices
// fit together.
func FuzzDecodeProblem(f *testing.F) {
	addFixtures(f, "testdata/problem")
	f.Fuzz(func(t *testing.T, data []byte) {
		p, _, err := config.DecodeProblem("x", data)
		if err != nil {
			mustHavePlaces(t, err)
			return
		}
		if len(p.Names) != len(p.Problem.Services) || len(p.Names) == 0 {
			t.Fatalf("%d names for %d services", len(p.Names), len(p.Problem.Services))
		}
		for i, s := range p.Problem.Services {
			n := p.Names[i]
			if p.Problem.Sources(i) != len(n.Sources) || len(n.Callers) != len(n.Sources) ||
				len(s.Localities) != len(n.Localities) || len(s.Latency) != len(n.Sources) {
				t.Fatal("slices do not fit together")
			}
			for _, d := range s.Demand {
				mustBeFinite(t, d)
			}
			for _, row := range s.Latency {
				if len(row) != len(s.Localities) {
					t.Fatal("a row of the wrong length")
				}
				for _, ms := range row {
					mustBeFinite(t, ms)
				}
			}
		}
	})
}
