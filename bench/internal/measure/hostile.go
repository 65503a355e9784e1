package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/bench/internal/process"
	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// Hostile is a scenario in which healthy streams get changes, in turn alone and
// beside clients that misbehave.
type Hostile struct {
	Streams       int // healthy ones
	PerConnection int
	Subscriptions int // of each stream
	Mute          int // streams that never read, beside them
	Resets        int // a second: streams that are opened, ask, and are reset
	Changes       int // in a round, each way
	Servers       []string
}

// Bounds and steps of a round.
const (
	mutePerConnection = 20 // so that their first messages fit into the server's window
	largeWindow       = 1<<31 - 1
	smallWindow       = 65_535
	resetStep         = 10 * time.Millisecond
	restBetween       = 50 * time.Millisecond // between changes
	settleFor         = 500 * time.Millisecond
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

// round measures the healthy streams alone, then beside the others, then waits
// until these have left no trace.
func (h *Hostile) round(ctx context.Context, c *crowd) (Result, error) {
	before, err := c.process.Goroutines()
	if err != nil {
		return Result{}, err
	}
	alone, err := h.waves(ctx, c)
	if err != nil {
		return Result{}, err
	}
	end, err := h.misbehave(ctx, c.process)
	if err != nil {
		return Result{}, err
	}
	<-time.After(settleFor)
	beside, err := h.waves(ctx, c)
	if err = errors.Join(err, end()); err != nil {
		return Result{}, err
	}
	left, err := goroutinesLeft(c.process, before)
	return Result{Name: h.Name() + "/server=" + c.kind, N: int64(h.Streams) * int64(h.Changes), Values: []Value{
		{milliseconds(alone), "alone-99%-ms"}, {milliseconds(beside), "99%-ms"},
		{float64(beside) / float64(alone), "times"}, {float64(left), "goroutines-left"},
	}}, err
}

// waves changes endpoints one after the other and gives the 99th percentile of
// how long it took to a healthy stream, of all streams and changes.
func (h *Hostile) waves(ctx context.Context, c *crowd) (time.Duration, error) {
	c.each = slices.Grow(c.each[:0:0], h.Streams*h.Changes)[:h.Streams*h.Changes]
	c.noted.Store(0)
	for i := range h.Changes {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		<-time.After(restBetween)
		c.begun.Store(time.Now().UnixNano())
		if err := c.process.Change(i % h.Subscriptions); err != nil {
			return 0, err
		}
		if err := c.wait(); err != nil {
			return 0, err
		}
	}
	took := make([]int64, len(c.each))
	for i := range took {
		took[i] = c.each[i].Load()
	}
	slices.Sort(took)
	return time.Duration(took[len(took)*99/100]), nil
}

// misbehave begins to, and gives what ends it.
func (h *Hostile) misbehave(ctx context.Context, p *process.Process) (end func() error, err error) {
	names := fleet.Names(h.Subscriptions)
	s, err := rawclient.NewSubscriber(rawclient.V3, names, node, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var mute []*rawclient.Conn
	resets := make(chan error, 1)
	end = func() error {
		cancel()
		err := <-resets
		for _, c := range mute {
			err = errors.Join(err, c.Close())
		}
		return err
	}
	if h.Resets == 0 {
		close(resets)
	} else {
		r, err := rawclient.NewResetter(ctx, p.Address, rawclient.V3.Method, s.First)
		if err != nil {
			cancel()
			return nil, err
		}
		go func() {
			err := rawclient.Every(ctx, resetStep, func() error { return r.Reset(h.Resets * int(resetStep) / int(time.Second)) })
			resets <- errors.Join(err, r.Close())
		}()
	}
	for i := 0; i < h.Mute; i += mutePerConnection {
		window := smallWindow
		if len(mute)%2 == 1 {
			window = largeWindow
		}
		c, err := rawclient.Mute(ctx, p.Address, rawclient.V3.Method, min(mutePerConnection, h.Mute-i), s.First, window)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		mute = append(mute, c)
	}
	return end, nil
}

// spare is how many goroutines may come and go by themselves.
const spare = 3

// goroutinesLeft waits until there are as many goroutines as before, for a
// bounded time, and gives how many there are more.
func goroutinesLeft(p *process.Process, before int) (int, error) {
	for begun := time.Now(); ; {
		now, err := p.Goroutines()
		if err != nil || now-before <= spare || time.Since(begun) > 2*patience/3 {
			return max(0, now-before), err
		}
		<-time.After(restBetween)
	}
}
