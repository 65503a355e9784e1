//go:build !race

package capacity_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/capacity"
)

// course is a station, what is declared of it, and the utilization over time.
type course struct {
	station

	seed uint64
	kind string
	used func(window int) float64
}

// draw makes a random course.
func draw(seed uint64) course {
	r := rand.New(rand.NewPCG(seed, 7))
	pods := 1 << r.IntN(5)
	c := course{seed: seed, station: station{
		pods: pods, workers: 1 + r.IntN(4), service: 0.005 * math.Exp2(4*r.Float64()), cv2: []float64{0.1, 0.25, 0.5, 1, 2, 4}[r.IntN(6)],
		timeout: []float64{0.25, 0.5, 1, 2, 5}[r.IntN(5)], abandons: r.IntN(2) == 0, clients: 1 + r.IntN(12), window: 5,
	}}
	if r.IntN(3) == 0 {
		c.limit = 1 + r.IntN(8)
	}
	if r.IntN(5) == 0 {
		c.failing = 0.2 * r.Float64()
	}
	base := 0.2 + 0.75*r.Float64()
	switch r.IntN(4) {
	case 0:
		c.kind, c.used = "constant", func(int) float64 { return base }
	case 1:
		c.kind, c.used = "wave", func(w int) float64 { return base * (1 + 0.4*math.Sin(float64(w)/6)) }
	case 2:
		c.kind, c.used = "overload", func(w int) float64 {
			if w > 20 {
				return 0.9 + base/2
			}
			return base
		}
	default:
		c.kind, c.used = "walk", nil
		path := []float64{base}
		for len(path) < 200 {
			path = append(path, min(1.4, max(0.1, path[len(path)-1]*math.Exp(0.1*r.NormFloat64()))))
		}
		c.used = func(w int) float64 { return path[w] }
	}
	return c
}

// tally counts what was told in one kind of windows.
type tally struct {
	windows, told, right, low int
	safe                      []float64 // of the truth
}

func (s *tally) add(e *capacity.Estimate, truth float64) {
	s.windows++
	s.safe = append(s.safe, e.Safe/truth)
	if !e.Known {
		return
	}
	s.told++
	switch {
	case e.Low > truth:
		s.low++
	case e.High >= truth:
		s.right++
	}
}

// kinds names what a window counts for.
func (c *course) kinds(window int, undeclared bool) []string {
	out := []string{"all", c.kind, "queues", "declared"}
	if c.limit > 0 {
		out[2] = "sheds"
	}
	if undeclared {
		out[3] = "undeclared"
	}
	switch u := c.used(window); {
	case u < 0.5:
		return append(out, "used up to 50%")
	case u < 0.65:
		return append(out, "used 50 to 65%")
	case u < 0.85:
		return append(out, "used 65 to 85%")
	case u < 1:
		return append(out, "used 85 to 100%")
	default:
		return append(out, "used above 100%")
	}
}

// TestIntervalsHoldTheTruth plays random stations request by request, with
// declarations that are wrong by a factor of 1.7 (standard deviation), or none.
// No constant of the model was chosen on these seeds.
func TestIntervalsHoldTheTruth(t *testing.T) {
	sums := map[string]*tally{}
	for seed := range uint64(120) {
		follow(5000+seed, sums)
	}
	for _, kind := range slices.Sorted(maps.Keys(sums)) {
		s := sums[kind]
		slices.Sort(s.safe)
		n := len(s.safe)
		right := float64(s.right) / float64(max(1, s.told))
		t.Logf("%-16s %5d windows, %3.0f%% told, of them %3.0f%% right (%.0f%% above the truth); quarter quantile %.2f of the truth (%.2f to %.2f)",
			kind, s.windows, 100*float64(s.told)/float64(s.windows), 100*right, 100*float64(s.low)/float64(max(1, s.told)), s.safe[n/2], s.safe[n/20], s.safe[n*19/20])
		want := 0.9
		if strings.HasPrefix(kind, "used") || kind == "constant" || kind == "wave" { // told of a few stations only
			want = 0.8
		}
		if right < want {
			t.Errorf("%s: the interval holds the truth in %.0f%% of the windows in which it is told, want at least %.0f%%", kind, 100*right, 100*want)
		}
		if over := s.safe[n*3/4]; over > 1.5 {
			t.Errorf("%s: in a quarter of the windows the quantile is %.2f of the truth or more, want at most 1.5", kind, over)
		}
	}
	for kind, least := range map[string]float64{"used above 100%": 0.5, "used 85 to 100%": 0.35} {
		if told := float64(sums[kind].told) / float64(sums[kind].windows); told < least {
			t.Errorf("%s: an interval is told in %.0f%% of the windows, want at least %.0f%%", kind, 100*told, 100*least)
		}
	}
}

// follow plays one station, and books what was told of it.
func follow(seed uint64, sums map[string]*tally) {
	c := draw(seed)
	c.start(seed)
	r := rand.New(rand.NewPCG(seed, 9))
	truth := c.capacity() / float64(c.pods)
	prior := capacity.Prior{PerUnit: truth * math.Exp2(0.8*r.NormFloat64()), Width: 2, Service: c.service * math.Exp2(0.3*r.NormFloat64())}
	undeclared := seed%3 == 0
	if undeclared {
		prior.PerUnit, prior.Width = 2.5*truth*c.used(0), 4
	}
	var m capacity.Model
	for w := range 60 {
		got := c.play(c.used(w) * c.capacity())
		m.Observe(&got, &prior)
		if w < 5 {
			continue
		}
		e := m.Estimate(&prior)
		for _, kind := range c.kinds(w, undeclared) {
			if sums[kind] == nil {
				sums[kind] = &tally{}
			}
			sums[kind].add(&e, truth)
		}
	}
}

// near reports whether a value is within a factor of another.
