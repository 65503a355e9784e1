package config_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
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

// mustBeProbeable holds the health checks of a service against what may be
// sent to checkers.
func mustBeProbeable(t *testing.T, s *isobar.Service) {
	t.Helper()
	mustComeBack(t, s)
	for _, c := range s.HealthChecks {
		protocols := 0
		for p, given := range []bool{c.HTTP != nil, c.TCP != nil, c.GRPC != nil, c.Redis != nil} {
			if given {
				protocols++
				if int(c.Protocol) != p {
					t.Errorf("protocol %v stands beside another check: %+v", c.Protocol, c)
				}
			}
		}
		if protocols != 1 {
			t.Errorf("%d protocols in %+v", protocols, c)
		}
		if c.Timeout <= 0 || c.Timeout > c.Interval || c.Jitter < 0 || c.Jitter > c.Interval || c.UnhealthyThreshold == 0 || c.HealthyThreshold == 0 {
			t.Errorf("times or thresholds of %+v", c)
		}
		if c.HTTP == nil {
			continue
		}
		if c.HTTP.Path == "" || c.HTTP.Path[0] != '/' {
			t.Errorf("path %q", c.HTTP.Path)
		}
		for _, r := range c.HTTP.Expected {
			if r.Start < 100 || r.End > 600 || r.Start >= r.End {
				t.Errorf("statuses %+v", r)
			}
		}
	}
	if len(s.HealthChecks) > 0 && (s.Checkers.Domains < 1 || s.Checkers.Domains > s.Checkers.Count) {
		t.Errorf("checkers %+v", s.Checkers)
	}
}

// mustComeBack: what the API shows of a service can be sent to it again.
func mustComeBack(t *testing.T, s *isobar.Service) {
	t.Helper()
	shown, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var read isobar.Service
	if err := json.Unmarshal(shown, &read); err != nil {
		t.Fatalf("%s: %v", shown, err)
	}
	again, _, err := config.DecodeService(s.Name, shown, config.Defaults{})
	if err != nil {
		t.Fatalf("%s is refused: %v", shown, err)
	}
	for what, got := range map[string][]isobar.HealthCheck{"read": read.HealthChecks, "sent again": again.HealthChecks} {
		if !reflect.DeepEqual(got, s.HealthChecks) {
			t.Errorf("%s: %+v, %s becomes %+v", shown, s.HealthChecks, what, got)
		}
	}
	if !reflect.DeepEqual(again.Checkers, s.Checkers) {
		t.Errorf("checkers %+v became %+v", s.Checkers, again.Checkers)
	}
}

func TestShownServicesCanBeSentAgain(t *testing.T) {
	data, err := os.ReadFile("testdata/config/health-checks.good.yml")
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Decode("x", data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Services {
		mustBeProbeable(t, &c.Services[i])
	}
}
