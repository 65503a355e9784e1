package control

import (
	"context"
	"errors"
)

// errLeft answers operators who ask while the server stops.
var errLeft = errors.New("the server is stopping")

// ask has something answered by the loop's goroutine, which owns the state.
func ask[T any](ctx context.Context, l *Loop, do func() T) (T, error) {
	answer := make(chan T, 1)
	var none T
	select {
	case l.asked <- func() { answer <- do() }:
	case <-l.left:
		return none, errLeft
	case <-ctx.Done():
		return none, ctx.Err()
	}
	select {
	case v := <-answer:
		return v, nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
