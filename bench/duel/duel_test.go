package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoyloop"
)

func testFleet(name string) *fleet {
	f := &fleet{
		options: &settings{warm: 20 * time.Second, length: 20 * time.Second, proxies: 1, tick: 2 * time.Second, seed: 1},
		policy:  &policy{Name: "p"}, zoneOf: map[string]int{"a": 0, "b": 1, "c": 2},
	}
	for i := range scenarios {
		if scenarios[i].Name == name {
			f.scenario = &scenarios[i]
		}
	}
	return f
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	f := testFleet("step")
	var requests []envoyloop.Request
	add := func(at float64, source int, upstream string, took time.Duration, o envoyloop.Outcome) {
		requests = append(requests, envoyloop.Request{
			At: time.Duration(at * float64(time.Second)), Source: source, Upstream: upstream, Took: took, Outcome: o, Bytes: 1000,
		})
	}
	add(5, 0, "a", 9*time.Second, envoyloop.Succeeded) // while the fleet starts
	add(15, 0, "a", 50*time.Millisecond, envoyloop.Succeeded)
	for i := range 1600 { // 80/s, all that one zone can do, of one region from the other
		add(20+float64(i)/80, 2, "b", 100*time.Millisecond, envoyloop.Succeeded)
	}
	for i := range 400 {
		add(20+float64(i)/20, 0, "", 10*time.Millisecond, envoyloop.Failed)
	}
	got := f.measure(requests)
	for _, tt := range []struct {
		name      string
		got, want float64
	}{
		{"before", got.Before, 50},
		{"mean", got.MeanMS, (1600*100 + 400*1000) / 2000.0},
		{"settled", got.Settled, 280},
		{"p99", got.P99MS, 1000},
		{"failed", got.Failed, 0.2},
		{"fullest", got.Fullest, 1},
		{"peak", got.Peak, 1},
		{"cross", got.Cross, 0.8},
		{"MB", got.CrossMB, 1.6},
	} {
		if math.Abs(tt.got-tt.want) > 0.02*tt.want {
			t.Errorf("%s: %g, want %g", tt.name, tt.got, tt.want)
		}
	}
}

// Static weights keep most at home, and nobody's weight is 0.
func TestWeights(t *testing.T) {
	t.Parallel()
	f := testFleet("step")
	f.backends = make([][]*envoyloop.Backend, len(zones))
	text, err := weighted(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	var weights []int
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "load_balancing_weight: "); found {
			w, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			weights = append(weights, w)
		}
	}
	if len(weights) != len(zones) || weights[0] < 500 || slices.Min(weights) < 1 {
		t.Errorf("weights %v, want one for each zone, most at home", weights)
	}
}

func TestWithLBPolicy(t *testing.T) {
	t.Parallel()
	if _, err := withLBPolicy("static_resources:\n  clusters: []\n", loadAwarePolicy); err == nil {
		t.Error("no error without a cluster")
	}
}

// The simulator plays the scenarios with the same demand and capacity, under all
// policies that it has.
func TestSimulated(t *testing.T) {
	t.Parallel()
	for i := range scenarios {
		s := &scenarios[i]
		results, err := simulate(t.Context(), testFleet(s.Name).options, s)
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		for _, p := range policies {
			if p.simulated == "" {
				continue
			}
			r := results[p.simulated]
			if len(r) != repetitions {
				t.Fatalf("%s, %s: %+v, want %d results", s.Name, p.Name, r, repetitions)
			}
			if low, _, _ := r.spread(meanOf); low < 90 {
				t.Errorf("%s, %s: %+v; service alone takes 100 ms", s.Name, p.Name, r)
			}
		}
	}
}

// A real result is near where it is within 15% and 1 point of what one repetition finds.
func TestNear(t *testing.T) {
	t.Parallel()
	s := simulations{{300, 0.08}, {200, 0.02}, {250, 0.05}}
	if got := s.String(); got != "250 (200 to 300), 5.0% (2.0 to 8.0%)" {
		t.Error(got)
	}
	for _, tt := range []struct {
		real simulation
		near bool
	}{
		{simulation{250, 0.05}, true}, {simulation{175, 0.02}, true}, {simulation{350, 0.08}, true},
		{simulation{170, 0.02}, false}, {simulation{360, 0.08}, false},
		{simulation{250, 0.011}, true}, {simulation{250, 0.009}, false}, {simulation{250, 0.089}, true}, {simulation{250, 0.091}, false},
	} {
		if got := s.near(tt.real); got != tt.near {
			t.Errorf("%+v near: %v, want %v", tt.real, got, tt.near)
		}
	}
}
