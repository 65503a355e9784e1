package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/bench/internal/process"
	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// Hostile is a scenario in which healthy streams get changes, in turn alone and
// beside clients that misbehave. The healthy streams, their connections and the
// server are the same both ways.
type Hostile struct {
	Streams       int // healthy ones
	PerConnection int
	Subscriptions int // of each stream
	// Mute is how many streams that never read are beside them; see mute.
	Mute    int
	Resets  int // a second: streams that are opened, ask, and are reset
	Changes int // in a round, each way
	Servers []string
}

// Bounds and steps of a round.
const (
	resetStep   = 10 * time.Millisecond
	restBetween = 10 * time.Millisecond // between changes, so that all are acknowledged
	settleFor   = 150 * time.Millisecond
)

// Name is the scenario's name in results.
func (h *Hostile) Name() string {
	return fmt.Sprintf("Hostile/streams=%d/subs=%d/mute=%d/resets=%d", h.Streams, h.Subscriptions, h.Mute, h.Resets)
}

// Run measures all servers, one after the other.
func (h *Hostile) Run(ctx context.Context, rounds int, report func(Result)) error {
	for _, kind := range h.Servers {
		if err := h.server(ctx, kind, rounds, report); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

func (h *Hostile) server(ctx context.Context, kind string, rounds int, report func(Result)) error {
	push := Push{Streams: h.Streams, PerConnection: h.PerConnection, Subscriptions: h.Subscriptions}
	c, err := push.start(ctx, kind)
	if err != nil {
		return err
	}
	defer c.close()
	for round := range rounds + 1 {
		result, err := h.round(ctx, c)
		if err != nil {
			return err
		}
		if round > 0 { // the first warms up
			report(result)
		}
	}
	return nil
}

// blocks is into how many parts a round is divided, alone and beside the others
// in turn, so that what else the machine does meets both.
const blocks = 5

// betweenCollections is how many changes there are at most between two garbage
// collections of the server.
const betweenCollections = 40

// round measures the healthy streams alone and beside the others, in turn, and
// then waits until these have left no trace.
func (h *Hostile) round(ctx context.Context, c *crowd) (Result, error) {
	before, err := c.process.Goroutines()
	if err != nil {
		return Result{}, err
	}
	var alone, beside waves
	nobody := &Hostile{Streams: h.Streams, Subscriptions: h.Subscriptions, Changes: h.Changes}
	changes := max(1, h.Changes/blocks)
	for i := range min(blocks, h.Changes) {
		skip := i * min(changes, betweenCollections) / blocks
		if err := errors.Join(nobody.block(ctx, c, &alone, skip, changes), h.block(ctx, c, &beside, skip, changes)); err != nil {
			return Result{}, err
		}
	}
	left, err := goroutinesLeft(c.process, before)
	n := float64(len(alone.took))
	return Result{Name: h.Name() + "/server=" + c.kind, N: int64(n), Values: []Value{
		{alone.quantile(0.5), "alone-50%-ms"}, {beside.quantile(0.5), "50%-ms"}, {beside.quantile(0.5) / alone.quantile(0.5), "50%-times"},
		{alone.quantile(0.99), "alone-99%-ms"}, {beside.quantile(0.99), "99%-ms"}, {beside.quantile(0.99) / alone.quantile(0.99), "99%-times"},
		{float64(alone.cpu) / n, "alone-cpu-ns/response"}, {float64(beside.cpu) / n, "cpu-ns/response"}, {float64(left), "goroutines-left"},
	}}, err
}

// block measures one part of a round. It begins when what came before has left
// no trace, the others have been there for a while, and server and clients have
// collected their garbage, so that what connecting leaves behind is not taken for
// the cost of being there. The slowest changes are those during which the server
// collects garbage, every so many of them; the first ones are skipped, in each
// block another number, so that these fall in a block as often as they happen.
func (h *Hostile) block(ctx context.Context, c *crowd, w *waves, skip, changes int) error {
	if _, err := c.process.Quiet(); err != nil {
		return err
	}
	end, err := h.misbehave(ctx, c)
	if err != nil {
		return err
	}
	<-time.After(settleFor)
	runtime.GC()
	var skipped waves
	return errors.Join(c.process.Collect(), skipped.run(ctx, c, h, skip), w.run(ctx, c, h, changes), end())
}

// waves is how long changes took to all healthy streams.
type waves struct {
	took []int64       // each, in nanoseconds
	cpu  time.Duration // of the server, meanwhile
}

// run changes endpoints one after the other.
func (w *waves) run(ctx context.Context, c *crowd, h *Hostile, changes int) error {
	c.each = make([]atomic.Int64, h.Streams*changes)
	c.noted.Store(0)
	before, err := c.process.Stats()
	if err != nil {
		return err
	}
	for i := range changes {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		<-time.After(restBetween)
		c.begun.Store(time.Now().UnixNano())
		if err := c.process.Change(i % h.Subscriptions); err != nil {
			return err
		}
		if err := c.wait(); err != nil {
			return err
		}
	}
	after, err := c.process.Stats()
	w.cpu += after.CPU - before.CPU
	for i := range c.each {
		w.took = append(w.took, c.each[i].Load())
	}
	return err
}

// quantile is that of all streams and changes, in milliseconds.
func (w *waves) quantile(q float64) float64 {
	slices.Sort(w.took)
	return milliseconds(time.Duration(nearest(w.took, q)))
}

// misbehave begins to, and returns what ends it.
func (h *Hostile) misbehave(ctx context.Context, c *crowd) (end func() error, err error) {
	s, err := rawclient.NewSubscriber(rawclient.V3, fleet.Names(h.Subscriptions), node, nil)
	if err != nil {
		return nil, err
	}
	ends, err := h.mute(ctx, c, s)
	if err == nil && h.Resets > 0 {
		var stop func() error
		if stop, err = h.reset(ctx, c, s); err == nil {
			ends = append(ends, stop)
		}
	}
	if err != nil {
		return nil, errors.Join(err, ends.all())
	}
	return ends.all, nil
}

// endings end what was begun.
type endings []func() error

func (e endings) all() (err error) {
	for _, end := range e {
		err = errors.Join(err, end())
	}
	return err
}

// reset opens and resets streams on a connection of their own.
func (h *Hostile) reset(ctx context.Context, c *crowd, s *rawclient.Subscriber) (end func() error, err error) {
	r, err := rawclient.NewResetter(ctx, c.process.Address, rawclient.V3.Method, s.First)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		err := rawclient.Every(ctx, resetStep, func() error { return r.Reset(h.Resets * int(resetStep) / int(time.Second)) })
		done <- errors.Join(err, r.Close())
	}()
	return func() error { cancel(); return <-done }, nil
}

// leaveWithin is how long connections that have ended may take to leave no trace.
const leaveWithin = 10 * time.Second

// goroutinesLeft waits until there are as many goroutines as before, for a
// bounded time, and returns how many there are more.
func goroutinesLeft(p *process.Process, before int) (int, error) {
	for begun := time.Now(); ; {
		now, err := p.Goroutines()
		if err != nil || now <= before || time.Since(begun) > leaveWithin {
			return max(0, now-before), err
		}
		<-time.After(restBetween)
	}
}
