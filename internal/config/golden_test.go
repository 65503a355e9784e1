package config_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each fixture NAME.bad.yml or NAME.good.yml stands beside NAME.*.golden, which
// holds its exact errors and warnings, or what was read.

func TestConfigFixtures(t *testing.T) {
	fixtures(t, "testdata/config", 60, func(name string, data []byte) (any, []config.Problem, error) {
		c, warnings, err := config.Decode(name, data)
		if err != nil {
			return nil, warnings, err
		}
		return struct {
			*config.Config

			Network []isobar.LatencyRule
			Egress  []isobar.EgressRule `json:",omitempty"` //nolint:tagliatelle // called as its neighbours
		}{c, c.Network.Rules(), c.Network.Egress()}, warnings, nil
	})
}

func TestServiceFixtures(t *testing.T) {
	fixtures(t, "testdata/service", 4, func(_ string, data []byte) (any, []config.Problem, error) {
		return anyOf(config.DecodeService("checkout", data, config.Defaults{Mode: isobar.ModeBounded, Ceiling: 0.5}))
	})
}

func TestProblemFixtures(t *testing.T) {
	fixtures(t, "testdata/problem", 14, func(name string, data []byte) (any, []config.Problem, error) {
		return anyOf(config.DecodeProblem(name, data))
	})
}

func anyOf[T any](v T, warnings []config.Problem, err error) (any, []config.Problem, error) {
	return v, warnings, err
}

func fixtures(t *testing.T, dir string, atLeast int, decode func(string, []byte) (any, []config.Problem, error)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yml"))
	if err != nil || len(files) < atLeast {
		t.Fatalf("%d fixtures in %s (%v), want at least %d", len(files), dir, err, atLeast)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			v, warnings, err := decode(filepath.Base(file), data)
			if bad := strings.HasSuffix(file, ".bad.yml"); bad != (err != nil) {
				t.Errorf("error is %v", err)
			}
			compare(t, strings.TrimSuffix(file, ".yml")+".golden", render(t, v, warnings, err))
		})
	}
}

func render(t *testing.T, v any, warnings []config.Problem, err error) string {
	t.Helper()
	var b strings.Builder
	for _, w := range warnings {
		fmt.Fprintln(&b, w)
	}
	if err != nil {
		fmt.Fprintln(&b, err)
		return b.String()
	}
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return b.String() + string(out) + "\n"
}

func compare(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
