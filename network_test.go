package isobar_test

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
)

func rule(from, to string, ms float64) isobar.LatencyRule {
	return isobar.LatencyRule{From: isobar.MustLocality(from), To: isobar.MustLocality(to), MS: ms}
}

func TestLatency(t *testing.T) {
	n, err := isobar.NewNetwork([]isobar.LatencyRule{
		rule("us", "eu", 80),
		rule("us/a", "eu", 75),
		rule("us", "eu/x", 77),
		rule("us", "eu/x/1", 70),
		rule("eu", "us/c", 90),
		rule("us", "us", 2),
		rule("eu/x", "eu/x", 0.3),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		from, to string
		ms       float64
		assumed  bool
	}{
		{"us/b", "eu/y", 80, false},
		{"eu/y", "us/b", 80, false},   // given one way, holds both ways
		{"us/a", "eu/y", 75, false},   // the zone is more specific than the region
		{"us/a", "eu/x", 75, false},   // as many parts: the source's count first
		{"us/a", "eu/x/1", 70, false}, // four parts before three
		{"eu/x/1", "us/a", 70, false},
		{"us/c", "eu/y", 90, false},
		{"us/a", "us/b", 2, false},
		{"us/a", "us/a", 0, false},
		{"us/a/1", "us/a/2", 0, false}, // the rule of a region speaks of its zones
		{"eu/x/1", "eu/x/2", 0.3, false},
		{"eu/x", "eu/y", 1, false},
		{"us/a", "asia/a", 100, true},
		{"", "asia/a", 0, false},
		{"us/a", "", 0, false},
	} {
		ms, assumed := n.Latency(isobar.MustLocality(row.from), isobar.MustLocality(row.to))
		if ms != row.ms || assumed != row.assumed {
			t.Errorf("%q to %q: %v, assumed %v; want %v, %v", row.from, row.to, ms, assumed, row.ms, row.assumed)
		}
	}
	if got := n.Rules(); len(got) != 7 || got[0].From.Region != "eu" {
		t.Errorf("rules %v", got)
	}
	var none *isobar.Network
	if ms, assumed := none.Latency(isobar.MustLocality("a/1"), isobar.MustLocality("b/1")); ms != 100 || !assumed || none.Rules() != nil {
		t.Errorf("without a network: %v, %v", ms, assumed)
	}
}

func TestBadNetworks(t *testing.T) {
	for _, rules := range [][]isobar.LatencyRule{
		{rule("a", "b", -1)},
		{rule("a", "b", math.NaN())},
		{rule("a", "b", math.Inf(1))},
		{rule("a", "b", 4e6)},
		{rule("", "b", 1)},
		{rule("a", "", 1)},
		{rule("a", "b", 1), rule("a", "b", 2)},
	} {
		if _, err := isobar.NewNetwork(rules); !errors.Is(err, isobar.ErrBadLatency) {
			t.Errorf("%v: %v, want ErrBadLatency", rules, err)
		}
	}
}

// covers tells whether scope names l or something around it.
func covers(scope, l isobar.Locality) bool {
	return scope.Region == l.Region && (scope.Zone == "" || scope.Zone == l.Zone) && (scope.SubZone == "" || scope.SubZone == l.SubZone)
}

func parts(l isobar.Locality) int {
	n := 0
	for _, p := range []string{l.Region, l.Zone, l.SubZone} {
		if p != "" {
			n++
		}
	}
	return n
}

// twinLatency looks at every rule in both directions and keeps the best.
func twinLatency(rules []isobar.LatencyRule, from, to isobar.Locality) (ms float64, found bool) {
	best := -1
	for _, way := range []bool{true, false} {
		for _, r := range rules {
			a, b := r.From, r.To
			if !way {
				a, b = b, a
			}
			if !covers(a, from) || !covers(b, to) || (a == b && a.Zone == "" && from.Zone == to.Zone) {
				continue
			}
			// A rule of its own for this direction is looked at first.
			if rank := 10*(parts(a)+parts(b)) + parts(a); rank > best {
				best, ms = rank, r.MS
			}
		}
	}
	return ms, best >= 0
}

func TestLatencyMatchesTheDumbTwin(t *testing.T) {
	scope := rapid.Custom(func(t *rapid.T) isobar.Locality {
		l := isobar.Locality{Region: rapid.SampledFrom([]string{"r", "s"}).Draw(t, "region")}
		if l.Zone = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "zone"); l.Zone != "" {
			l.SubZone = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "sub_zone")
		}
		return l
	})
	rapid.Check(t, func(t *rapid.T) {
		var rules []isobar.LatencyRule
		seen := map[[2]isobar.Locality]bool{}
		for i := range rapid.IntRange(0, 8).Draw(t, "rules") {
			r := isobar.LatencyRule{From: scope.Draw(t, "from"), To: scope.Draw(t, "to"), MS: float64(10 + i)}
			if k := [2]isobar.Locality{r.From, r.To}; !seen[k] {
				seen[k] = true
				rules = append(rules, r)
			}
		}
		n, err := isobar.NewNetwork(rules)
		if err != nil {
			t.Fatal(err)
		}
		from, to := scope.Draw(t, "a"), scope.Draw(t, "b")
		got, _ := n.Latency(from, to)
		if want, found := twinLatency(rules, from, to); found && from != to && got != want {
			t.Fatalf("%q to %q: %v, want %v by %v", from, to, got, want, rules)
		}
	})
}
