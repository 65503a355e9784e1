package assign_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/internal/assign"
)

// twinOscillation finds a cycle in all that was seen, from the beginning, without
// keeping anything: the extremes of a series, and whether the last five are a
// cycle.
func twinOscillation(parts []float64, demand [][]float64) bool {
	type extreme struct{ at int }
	var out []extreme
	at, dir := 0, 0.0
	for i, v := range parts {
		d := v - parts[at]
		switch {
		case dir != 0 && d*dir > 0:
			at = i
		case math.Abs(d) < assign.OscillationShare:
		default:
			if dir != 0 {
				out = append(out, extreme{at})
			}
			dir, at = math.Copysign(1, d), i
		}
	}
	if len(out) < 5 || at != len(parts)-1 {
		return false
	}
	out = out[len(out)-5:]
	if len(parts)-1-out[0].at > 60 {
		return false
	}
	var steps []float64
	mean := 0.0
	for i := 1; i < 5; i++ {
		a := math.Abs(parts[out[i].at] - parts[out[i-1].at])
		diff, all := 0.0, 0.0
		for s := range demand[0] {
			x, y := demand[out[i].at][s], demand[out[i-1].at][s]
			diff += math.Abs(x - y)
			all += math.Max(x, y)
		}
		if all > 0 && diff/all > a/2 {
			return false
		}
		steps, mean = append(steps, a), mean+a/4
	}
	least, most := steps[0], steps[0]
	for _, a := range steps {
		least, most = math.Min(least, a), math.Max(most, a)
	}
	for i := 2; i < 5; i++ {
		if math.Abs(parts[out[i].at]-parts[out[i-2].at]) > mean/2 {
			return false
		}
	}
	return most <= 3*least
}

// TestOscillationsAreFoundAsATwinFindsThem: step by step the same is found as by a
// twin that looks at everything again each time.
func TestOscillationsAreFoundAsATwinFindsThem(t *testing.T) {
	cycles := 0
	rapid.Check(t, func(rt *rapid.T) {
		half := rapid.IntRange(1, 8).Draw(rt, "half a period")
		amplitude := rapid.Float64Range(0, 0.2).Draw(rt, "amplitude")
		noise := rapid.Float64Range(0, 0.03).Draw(rt, "noise")
		moves := rapid.Float64Range(0, 0.2).Draw(rt, "demand moves")
		var s *assign.Oscillations
		var parts, rest []float64
		var demand [][]float64
		for i := range rapid.IntRange(1, 120).Draw(rt, "ticks") {
			a := 0.5 + amplitude/2*[]float64{1, -1}[i/half%2] + noise*rapid.Float64Range(-1, 1).Draw(rt, "off")
			now := []float64{100 * (1 + moves*rapid.Float64Range(-1, 1).Draw(rt, "more")), 50}
			load := []float64{100 * a, 100 * (1 - a)}
			parts, rest, demand = append(parts, load[0]/(load[0]+load[1])), append(rest, load[1]/(load[0]+load[1])), append(demand, now)
			next, found := s.Observe(load, now)
			want := twinOscillation(parts, demand) || twinOscillation(rest, demand)
			if (found != nil) != want {
				rt.Fatalf("after %d ticks: found %+v, the twin %v; %v", i+1, found, want, parts)
			}
			if s = next; found != nil {
				cycles++
				if found.Amplitude < assign.OscillationShare || found.Amplitude > amplitude+2*noise+1e-9 || found.Ticks < 2 {
					rt.Fatalf("%+v of %v in %d ticks", found, amplitude, 2*half)
				}
				last := len(parts) - 1
				parts, rest, demand = parts[last:], rest[last:], demand[last:]
			}
		}
	})
	if cycles == 0 {
		t.Error("nothing was found in any of them")
	}
}

func TestOscillationsThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		part   func(i int) float64
		demand func(i int) float64
		want   bool
	}{
		"to and fro":             {func(i int) float64 { return 0.5 + 0.05*float64(i/3%2) }, func(int) float64 { return 100 }, true},
		"less than is published": {func(i int) float64 { return 0.5 + 0.009*float64(i/3%2) }, func(int) float64 { return 100 }, false},
		"with demand":            {func(i int) float64 { return 0.5 + 0.05*float64(i/3%2) }, func(i int) float64 { return 100 + 10*float64(i/3%2) }, false},
		"a little of demand":     {func(i int) float64 { return 0.5 + 0.05*float64(i/3%2) }, func(i int) float64 { return 100 + float64(i/3%2) }, true},
		"over hours":             {func(i int) float64 { return 0.5 + 0.2*math.Sin(float64(i)/200) }, func(int) float64 { return 100 }, false},
		"further and further":    {func(i int) float64 { return 0.1 + 0.01*float64(i) + 0.02*float64(i/3%2) }, func(int) float64 { return 100 }, false},
		"dying out":              {func(i int) float64 { return 0.5 + 0.2*math.Pow(-0.6, float64(i)) }, func(int) float64 { return 100 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var s *assign.Oscillations
			found := 0
			for i := range 80 {
				a := c.part(i)
				next, f := s.Observe([]float64{300 * a, 300 * (1 - a)}, []float64{c.demand(i)})
				if s = next; f != nil {
					found++
				}
			}
			if found > 0 != c.want {
				t.Errorf("found %d", found)
			}
		})
	}
}
