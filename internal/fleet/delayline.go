package fleet

import (
	"context"
	"time"
)

// delayLineDepth bounds what is under way in a delay line; a full line blocks
// its sender, which is what a full pipe does.
const delayLineDepth = 1024

// delayLine hands on values in order, each a fixed delay after it was put in.
// It models distance, not bandwidth: any number of values are under way at once.
type delayLine[T any] struct {
	delay time.Duration
	queue chan delayed[T]
}

type delayed[T any] struct {
	value T
	due   time.Time
}

func newDelayLine[T any](delay time.Duration) *delayLine[T] {
	return &delayLine[T]{delay: delay, queue: make(chan delayed[T], delayLineDepth)}
}

// put adds a value; it fails only when the context ends.
func (d *delayLine[T]) put(ctx context.Context, v T) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case d.queue <- delayed[T]{value: v, due: time.Now().Add(d.delay)}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run hands each value to deliver when it is due, until the context ends or
// deliver fails.
func (d *delayLine[T]) run(ctx context.Context, deliver func(T) error) error {
	for {
		select {
		case item := <-d.queue:
			if err := waitUntil(ctx, item.due); err != nil {
				return err
			}
			if err := deliver(item.value); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waitUntil returns at t, or earlier with the cause when the context ends.
func waitUntil(ctx context.Context, t time.Time) error {
	d := time.Until(t)
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
