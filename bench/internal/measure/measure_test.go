package measure_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/bench/internal/measure"
	"github.com/isobar-xds/isobar/bench/internal/process"
)

// TestMain makes the test binary a server when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		if err := process.Run(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestScenarios runs small ones: every server answers everybody, every time.
func TestScenarios(t *testing.T) {
	isobar, profiles := filepath.Join(t.TempDir(), "isobar"), ""
	build := exec.CommandContext(t.Context(), "go", "build", "-o", isobar, "./cmd/isobar")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, s := range []interface {
		Name() string
		Run(ctx context.Context, rounds int, report func(measure.Result)) error
	}{
		&measure.Push{Streams: 30, PerConnection: 10, Subscriptions: 5, Changes: 3, Servers: []string{"isobar", "isobar-mixed", "linear", "floor"}},
		&measure.Push{Streams: 5, PerConnection: 1, Subscriptions: 100, Changes: 2, Servers: []string{"isobar"}},
		&measure.Hostile{Streams: 30, PerConnection: 10, Subscriptions: 100, Mute: 40, Resets: 200, Changes: 3, Servers: []string{"isobar"}},
		&measure.Serve{
			Isobar: &isobar, Profiles: &profiles, Endpoints: fleet.Few, Streams: 20, PerConnection: 10, Subscriptions: 5, Changes: 2,
			Servers: []string{"isobar", "floor"},
		},
		&measure.ServeLoad{
			Isobar: &isobar, Clusters: 5, Streams: 20, PerConnection: 10, Interval: time.Second, Length: time.Second,
			Servers: []string{"lrs-isobar", "lrs-decode", "lrs-none"},
		},
		&measure.Load{Clusters: 10, Endpoints: true, Streams: 20, PerConnection: 10, Reports: 60, Servers: []string{"lrs-isobar", "lrs-decode", "lrs-none"}},
	} {
		var out measure.Summary
		lines := 0
		if err := s.Run(t.Context(), 2, func(r measure.Result) { out.Add(r); lines++ }); err != nil {
			t.Fatalf("%s: %v", s.Name(), err)
		}
		var table bytes.Buffer
		if err := out.Write(&table); err != nil {
			t.Fatal(err)
		}
		if lines == 0 || !strings.Contains(table.String(), s.Name()) {
			t.Errorf("%s: %d results:\n%s", s.Name(), lines, &table)
		}
	}
}

func TestSummary(t *testing.T) {
	var s measure.Summary
	for _, v := range []float64{5, 1, 3} {
		r := measure.Result{Name: "A/server=isobar", N: 2, Values: []measure.Value{{Number: v, Unit: "ms"}}}
		if want := fmt.Sprintf("BenchmarkA/server=isobar\t2\t%v ms", v); r.String() != want {
			t.Errorf("%q, want %q", r, want)
		}
		s.Add(r)
	}
	if v, ok := s.Quantile("A", "ms", "isobar", 0.5); !ok || v != 3 {
		t.Errorf("the median is %v, %v", v, ok)
	}
	if v, ok := s.Quantile("A", "ms", "isobar", 0.99); !ok || v != 5 {
		t.Errorf("the 99th percentile is %v, %v", v, ok)
	}
	for v := range 300 {
		s.Add(measure.Result{Name: "B/server=isobar", N: 1, Values: []measure.Value{{Number: float64(v + 1), Unit: "ms"}}})
	}
	if v, ok := s.Quantile("B", "ms", "isobar", 0.99); !ok || v != 297 {
		t.Errorf("the 99th percentile of 1 to 300 is %v, %v", v, ok)
	}
	if _, ok := s.Quantile("A", "ms", "linear", 0.5); ok {
		t.Error("a median of nothing")
	}
}
