//go:build !race

package load_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/load"
)

// crowd is clients of one source that report at different times.
type crowd struct {
	clients int
	each    float64                     // requests/s of one client on average
	shape   func(time.Duration) float64 // of all of them
	alone   float64                     // how far each client varies by itself, from window to window, as a fraction
	chance  bool                        // what a window counts is drawn; else it is the mean, rounded
	seed    uint64
}

// seen plays a crowd for some intervals, and returns the last variability that the table
// tells of it, and the largest.
func (c *crowd) seen(tab *load.Table, from, intervals int) (last, most float64) {
	rng := rand.New(rand.NewPCG(c.seed, 7))
	for k := from + 1; k <= from+intervals; k++ {
		now := at(float64(k))
		var windows []load.StreamWindow
		for i := range c.clients {
			late := interval * time.Duration(i) / time.Duration(c.clients)
			until := now.Add(-late)
			mean := 0.0
			const parts = 50
			for p := range parts {
				when := until.Add(-interval * time.Duration(2*p+1) / (2 * parts)).Sub(at(0))
				mean += c.each * c.shape(when) * interval.Seconds() / parts
			}
			mean *= 1 + c.alone*(2*rng.Float64()-1)
			count := mean
			if c.chance { // Poisson, by its normal approximation
				count = max(0, mean+math.Sqrt(mean)*rng.NormFloat64())
			}
			node := newClient(load.StreamID(i+1), load.AgentEnvoy)
			windows = append(windows, node.window(report(until, sent(interval, uint64(count+0.5)))))
		}
		tab.Merge(windows)
		last = tab.Snapshot(now).Service("checkout").Source(zoneA).Variability
		most = max(most, last)
	}
	return last, most
}

func steady(time.Duration) float64 { return 1 }

func square(period time.Duration, amplitude float64) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		if (at%period+period)%period < period/2 {
			return 1 + amplitude
		}
		return 1 - amplitude
	}
}

// Variability is seen, whatever its period, unless it is as fast as a window: those
// hide it. Slow ones are followed.
func TestVariabilityIsSeen(t *testing.T) {
	for _, tt := range []struct {
		period            time.Duration
		amplitude, lo, hi float64
		clients           int
		alone             float64
	}{
		{period: 7 * time.Second, amplitude: 0.5, lo: 0.15, hi: 0.6, clients: 40},
		{period: 10 * time.Second, amplitude: 0.5, lo: 0.35, hi: 0.6, clients: 10},
		{period: 10 * time.Second, amplitude: 0.5, lo: 0.35, hi: 0.6, clients: 10, alone: 0.5},
		{period: 10 * time.Second, amplitude: 0.2, lo: 0.14, hi: 0.24, clients: 40},
		{period: 15 * time.Second, amplitude: 0.5, lo: 0.35, hi: 0.6, clients: 10},
		{period: 20 * time.Second, amplitude: 0.5, lo: 0.35, hi: 0.65, clients: 40},
		{period: 60 * time.Second, amplitude: 0.5, lo: 0.2, hi: 0.8, clients: 40},
		{period: 5 * time.Second, amplitude: 0.5, clients: 40},                      // as fast as a window
		{period: 2 * time.Hour, amplitude: 0.5, clients: 40},                        // one step an hour is no variability
		{period: 10 * time.Second, amplitude: 0.5, clients: 1},                      // one client tells nothing
		{period: 10 * time.Second, amplitude: 0, clients: 40, alone: 0.9},           // each for itself
		{period: 10 * time.Second, amplitude: 0.02, lo: 0, hi: 0.0001, clients: 40}, // not worth planning for
	} {
		for seed := range uint64(5) {
			c := crowd{clients: tt.clients, each: 100, shape: square(tt.period, tt.amplitude), alone: tt.alone, chance: true, seed: seed}
			tab := table()
			if last, most := c.seen(tab, 0, 60); last < tt.lo || (tt.hi > 0 && last > tt.hi) || (tt.hi == 0 && most > 0) {
				t.Errorf("period %v, amplitude %v, %d clients, seed %d: seen %v, at most %v", tt.period, tt.amplitude, tt.clients, seed, last, most)
			}
		}
	}
}

// Chance is no variability, however small the counts are.
func TestNoiseIsNoVariability(t *testing.T) {
	for _, clients := range []int{2, 3, 10, 40} {
		for _, each := range []float64{0.5, 2, 10, 1000} {
			for seed := range uint64(10) {
				c := crowd{clients: clients, each: each, shape: steady, alone: 0.3, chance: true, seed: seed}
				tab := table()
				if _, most := c.seen(tab, 0, 200); most > 0 {
					t.Errorf("%d clients of %v requests/s, seed %d: a variability of %v in steady demand", clients, each, seed, most)
				}
			}
		}
	}
}

// A single change of demand is no variability: a step, or a flash crowd that leaves again.
func TestEventsAreNoVariability(t *testing.T) {
	for name, shape := range map[string]func(time.Duration) float64{
		"step up": func(at time.Duration) float64 {
			return 1 + max(0, min(1, float64((at-2*time.Minute)/time.Microsecond)))
		},
		"step down": func(at time.Duration) float64 {
			return 2 - max(0, min(1, float64((at-2*time.Minute)/time.Microsecond)))
		},
		"flash": func(at time.Duration) float64 {
			if at > 3*time.Minute && at < 3*time.Minute+18*time.Second {
				return 2.25
			}
			return 1
		},
		"ramp": func(at time.Duration) float64 { return 1 + at.Minutes()/20 },
		"evacuation": func(at time.Duration) float64 {
			return max(0.01, math.Exp(-max(0, float64((at-7*time.Minute)/time.Second))/50))
		},
		"growth": func(at time.Duration) float64 {
			return min(1, 0.03*math.Exp(max(0, float64((at-7*time.Minute)/time.Second))/120))
		},
		"all leave": func(at time.Duration) float64 {
			return 1 - max(0, min(1, float64((at-7*time.Minute)/time.Microsecond)))
		},
		"nearly all leave": func(at time.Duration) float64 {
			return 1 - 0.999*max(0, min(1, float64((at-7*time.Minute)/time.Microsecond)))
		},
		"all leave and come back": func(at time.Duration) float64 {
			if at > 7*time.Minute && at < 20*time.Minute {
				return 0
			}
			return 1
		},
	} {
		c := crowd{clients: 20, each: 100, shape: shape, chance: true}
		tab := table()
		if last, most := c.seen(tab, 0, 200); most > 0 {
			t.Errorf("%s: a variability of %v, %v at last", name, most, last)
		}
	}
}

// What there was little of is no reason to miss variability of what has come since.
func TestVariabilityIsSeenAfterAQuietTime(t *testing.T) {
	for _, quiet := range []float64{0, 0.001, 0.02} {
		tab := table()
		calm := crowd{clients: 20, each: 100, shape: steady, chance: true}
		calm.seen(tab, 0, 30)
		calm.each *= quiet
		calm.seen(tab, 30, 60)
		varying := crowd{clients: 20, each: 100, shape: square(2*interval, 0.5), chance: true}
		if last, _ := varying.seen(tab, 90, 60); last < 0.3 {
			t.Errorf("variability %v after %v of the demand", last, quiet)
		}
	}
}

// Variability that ends is forgotten, and variability that an earlier process saw is believed
// until this one knows better.
func TestVariabilityEndsAndIsRemembered(t *testing.T) {
	tab := table()
	varying := crowd{clients: 20, each: 100, shape: square(2*interval, 0.5), chance: true}
	calm := crowd{clients: 20, each: 100, shape: steady, chance: true}
	variability, _ := varying.seen(tab, 0, 40)
	saved := tab.Snapshot(at(40)).Saved()
	if variability == 0 || len(saved) != 1 || saved[0].Variability != variability {
		t.Fatalf("seen %v, saved %+v", variability, saved)
	}
	if last, _ := calm.seen(tab, 40, 60); last != 0 {
		t.Errorf("a variability of %v a long time after its end", last)
	}
	again := table(saved...)
	if last, _ := varying.seen(again, 0, 3); last != variability {
		t.Errorf("variability %v of %v after a restart", last, variability)
	}
	if last, _ := calm.seen(again, 3, 60); last != 0 {
		t.Errorf("a variability of %v that an earlier process saw", last)
	}
	for _, bad := range []float64{-1, 2, math.NaN(), math.Inf(1)} {
		saved[0].Variability = bad
		if last, _ := calm.seen(table(saved...), 0, 2); last != 0 {
			t.Errorf("saved variability %v is believed: %v", bad, last)
		}
	}
}
