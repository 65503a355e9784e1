package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// balancer decides where clients send; one serves one run.
type balancer interface {
	// health is called at the beginning, and whenever what is known about
	// endpoints changed.
	health(now time.Duration) error
	// step is called before every step.
	step(now time.Duration) error
	// tick is called after every tick.
	tick(now time.Duration) error
}

// idle is what balancers embed that do nothing at some of these moments.
type idle struct{}

func (idle) health(time.Duration) error { return nil }

func (idle) step(time.Duration) error { return nil }

func (idle) tick(time.Duration) error { return nil }

// Frame is what an observer sees after each tick.
type Frame struct {
	At     time.Duration
	Plan   *plan.Plan // nil for policies that are not Isobar's
	Sample Sample
}

// Run lets a policy balance a scenario's fleet. observe, where it is not nil,
// sees every tick; its error, and the end of ctx, end the run. A policy that may
// be set up in several ways is run in each, and the best result counts.
func Run(ctx context.Context, sc *Scenario, p Policy, observe func(Frame) error) (*Result, error) {
	var best *Result
	for _, m := range p.make {
		r, err := runOne(ctx, sc, p, m, observe)
		if err != nil {
			return nil, err
		}
		if best == nil || r.better(best) {
			best = r
		}
	}
	return best, nil
}

func runOne(ctx context.Context, sc *Scenario, p Policy, set maker, observe func(Frame) error) (*Result, error) {
	w, err := newWorld(sc)
	if err != nil {
		return nil, err
	}
	b, err := set(w)
	if err != nil {
		return nil, fmt.Errorf("sim: %s: %w", p.Name, err)
	}
	m := newMeter(w)
	nextTick := sc.Tick
	for w.now = 0; w.now < sc.Length; w.now += w.step {
		if err := w.advance(b); err != nil {
			return nil, fmt.Errorf("sim: %s at %v: %w", p.Name, w.now, err)
		}
		m.step()
		now := w.now + w.step
		w.report(now)
		if now < nextTick {
			continue
		}
		nextTick += sc.Tick
		m.endTick(now)
		if err := b.tick(now); err != nil {
			return nil, fmt.Errorf("sim: %s at %v: %w", p.Name, now, err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if observe != nil {
			if err := observe(Frame{At: now, Plan: planOf(b), Sample: m.samples[len(m.samples)-1]}); err != nil {
				return nil, err
			}
		}
	}
	return m.result(p), nil
}

func planOf(b balancer) *plan.Plan {
	if x, ok := b.(interface{ current() *plan.Plan }); ok {
		return x.current()
	}
	return nil
}
