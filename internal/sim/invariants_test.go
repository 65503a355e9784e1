//go:build !race

package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isobar-xds/isobar/internal/plan"
)

var (
	simulations = flag.Int("simulations", 1000, "how many random fleets to simulate")
	firstSeed   = flag.Uint64("first", 1, "the seed of the first of them")
	largeFleets = flag.Bool("large", false, "make them larger")
	onlySeed    = flag.Uint64("seed", 0, "simulate the fleet of this seed only, twice")
)

// TestSimulations runs random fleets through random trouble and asserts at every
// tick what must hold always. Each fleet follows from its seed; a failure says
// how to repeat it.
func TestSimulations(t *testing.T) {
	size, extra := small, ""
	if *largeFleets {
		size, extra = large, " -large"
	}
	if *onlySeed > 0 {
		first, err := simulateRandom(t.Context(), *onlySeed, size)
		second, again := simulateRandom(t.Context(), *onlySeed, size)
		if err != nil || again != nil || first != second {
			t.Fatalf("transcript %s: %v\ntranscript %s: %v", first, err, second, again)
		}
		return
	}
	const enough = 10 // failures to report
	var begun, failed atomic.Uint64
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for {
				n := begun.Add(1) - 1
				if n >= uint64(*simulations) || failed.Load() >= enough {
					return
				}
				if n > 0 && n%1000 == 0 {
					t.Logf("%d of %d fleets, %d failures", n, *simulations, failed.Load())
				}
				seed := *firstSeed + n
				if _, err := simulateRandom(t.Context(), seed, size); err != nil {
					failed.Add(1)
					t.Errorf("seed %d: %v\nrepeat it by: go test ./internal/sim -run TestSimulations -seed %d%s", seed, err, seed, extra)
				}
			}
		})
	}
	wait.Wait()
}

// TestLargeFleets are fleets of the soak in which something rare happens: clients of
// a low class come while others of it are told to drop, a full service with
// shares that are too small for the wire, and shares of which less moves than is
// told from nothing.
func TestLargeFleets(t *testing.T) {
	for _, seed := range []uint64{1271, 4253, 1012} {
		if _, err := simulateRandom(t.Context(), seed, large); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// simulateRandom runs the fleet of a seed. What happened is told to the last bit
// by the transcript, up to the failure if there was one.
func simulateRandom(ctx context.Context, seed uint64, size bounds, more ...func(Frame) error) (transcript string, err error) {
	sc := randomFleet(seed, size)
	var w *world
	set := func(made *world) (balancer, error) {
		w = made
		b, err := newIsobar(made)
		if err != nil {
			return nil, err
		}
		return &watchedLoop{isobarLoop: b.(*isobarLoop)}, nil
	}
	sum := sha256.New()
	_, err = runOne(ctx, sc, Isobar(), set, func(f Frame) error {
		if err := json.NewEncoder(sum).Encode(struct {
			Plan   plan.Saved
			Sample Sample
		}{f.Plan.Save(), f.Sample}); err != nil {
			return err
		}
		err := errors.Join(w.sound(), soundSample(&f.Sample))
		for _, check := range more {
			err = errors.Join(err, check(f))
		}
		if err != nil {
			return fmt.Errorf("at %v: %w", f.At, err)
		}
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// TestAFailureReplays: what fails with a seed fails again with it, at the same
// moment, with the same words, and after the same plans to the last bit; beside
// others as alone.
func TestAFailureReplays(t *testing.T) {
	// An invariant that does not hold for long: no locality is ever so full.
	tooFull := func(f Frame) error {
		if f.At > small.length/2 && f.Sample.Fullest > 0.95 {
			return fmt.Errorf("a locality is %v full, in version %d", f.Sample.Fullest, f.Plan.Version)
		}
		return nil
	}
	type end struct{ transcript, err string }
	play := func(seed uint64) end {
		transcript, err := simulateRandom(t.Context(), seed, small, tooFull)
		return end{transcript, fmt.Sprint(err)}
	}
	const seeds = 24
	var first, second [seeds]end
	var wait sync.WaitGroup
	for i := range seeds {
		wait.Go(func() { first[i] = play(uint64(i + 1)) })
	}
	wait.Wait()
	failed := 0
	for i := range seeds {
		if strings.Contains(first[i].err, "full, in version") {
			failed++
			second[i] = play(uint64(i + 1))
			if first[i] != second[i] {
				t.Errorf("seed %d: first %v, then %v", i+1, first[i], second[i])
			}
		}
	}
	if failed == 0 {
		t.Error("no seed failed; the test proves nothing")
	}
}

// sound: clients neither lose nor invent requests, and queues hold what they can.
func (w *world) sound() error {
	for _, c := range w.clients {
		sum := c.route.dropped + c.route.lost
		for _, x := range c.route.endpoint {
			if !(x >= 0) {
				return fmt.Errorf("client %d sends a share of %v", c.id, x)
			}
			sum += x
		}
		if math.Abs(sum-1) > 1e-6 {
			return fmt.Errorf("the shares of client %d sum to %v", c.id, sum)
		}
	}
	for _, s := range w.services {
		for i := range s.endpoints {
			e := &s.endpoints[i]
			most := e.declared * s.sites[e.at].factor * w.timeout()
			if x := e.queue.present; !(x >= 0) || x > most*(1+1e-9)+1e-9 && e.queue.capacity*w.timeout() < x {
				return fmt.Errorf("%s holds %v requests of at most %v", e.address, x, most)
			}
			if !(e.ok >= 0 && e.ok <= 1) || !(e.stay >= 0) || math.IsInf(e.stay, 0) {
				return fmt.Errorf("%s serves a share of %v within %v ms", e.address, e.ok, e.stay)
			}
		}
	}
	return nil
}

func soundSample(s *Sample) error {
	for _, x := range []float64{s.Demand, s.MeanMS, s.P99MS, s.Fullest, s.Utilization, s.CrossRegion, s.Failed, s.Shed} {
		if !(x >= 0) || math.IsInf(x, 0) {
			return fmt.Errorf("sample %+v", *s)
		}
	}
	if s.Failed+s.Shed > 1+1e-9 || s.CrossRegion > 1+1e-9 {
		return fmt.Errorf("sample %+v", *s)
	}
	return nil
}
