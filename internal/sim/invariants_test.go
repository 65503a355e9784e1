//go:build !race

package sim

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isobar-xds/isobar"
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
		a, errA := simulateRandom(t, *onlySeed, size)
		b, errB := simulateRandom(t, *onlySeed, size)
		if errA != nil || !reflect.DeepEqual(a, b) || (errA == nil) != (errB == nil) {
			t.Fatalf("errors %v, %v; the same result twice: %v", errA, errB, reflect.DeepEqual(a, b))
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
				if _, err := simulateRandom(t, seed, size); err != nil {
					failed.Add(1)
					t.Errorf("seed %d: %v\nrepeat it by: go test ./internal/sim -run TestSimulations -seed %d%s", seed, err, seed, extra)
				}
			}
		})
	}
	wait.Wait()
}

func simulateRandom(t *testing.T, seed uint64, size bounds) (*Result, error) {
	t.Helper()
	sc := randomFleet(seed, size)
	var w *world
	set := func(made *world) (balancer, error) {
		w = made
		return newIsobar(made)
	}
	var before *plan.Plan
	return runOne(t.Context(), sc, Isobar(), set, func(f Frame) error {
		err := errors.Join(soundPlan(before, f.Plan), w.sound(), soundSample(&f.Sample))
		before = f.Plan
		return err
	})
}

// soundPlan: the plan's own check found nothing, versions grow, what had
// endpoints keeps some, and drops stay within bounds.
func soundPlan(before, p *plan.Plan) error {
	for _, v := range p.Violations {
		return fmt.Errorf("%s of %s from %s: %s", v.Rule, v.Service, v.Source, v.Text)
	}
	if before != nil && p.Version <= before.Version {
		return fmt.Errorf("version %d after %d", p.Version, before.Version)
	}
	for _, s := range p.Services {
		if s.Result.Drop > s.Spec.MaxShed+1e-9 {
			return fmt.Errorf("%s drops %v of at most %v", s.Spec.Name, s.Result.Drop, s.Spec.MaxShed)
		}
		for i := range s.Result.Sources {
			r := &s.Result.Sources[i]
			if err := soundAssignment(s.Spec, r.Source, r.Assignment); err != nil {
				return fmt.Errorf("%s from %s: %w", s.Spec.Name, r.Source, err)
			}
		}
	}
	return nil
}

// soundAssignment: no empty tier, no weight of 0, no locality twice, and a first
// tier that can serve as long as anything can; and nothing that is not allowed.
func soundAssignment(spec *isobar.Service, from isobar.Locality, a *isobar.Assignment) error {
	allowed := 0
	for i := range spec.Localities {
		if spec.Allows(from, spec.Localities[i].Locality) {
			allowed++
		}
	}
	seen := map[isobar.Locality]bool{}
	usable, first := 0, 0
	for p, tier := range a.Priorities {
		if len(tier) == 0 {
			return fmt.Errorf("priority %d is empty", p)
		}
		for _, lw := range tier {
			if !spec.Allows(from, lw.Locality) {
				return fmt.Errorf("%s is not allowed", lw.Locality)
			}
			if lw.Weight == 0 || seen[lw.Locality] {
				return fmt.Errorf("%s with weight %d, there before: %v", lw.Locality, lw.Weight, seen[lw.Locality])
			}
			seen[lw.Locality] = true
			usable += lw.Usable()
			if p == 0 {
				first += lw.Usable()
			}
		}
	}
	if allowed > 0 && (len(a.Priorities) == 0 || (usable > 0 && first == 0)) {
		return fmt.Errorf("%d priorities, %d usable endpoints, %d in the first", len(a.Priorities), usable, first)
	}
	return nil
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
