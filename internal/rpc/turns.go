package rpc

import "context"

// Turns bound how many messages are decoded and handled at once: a decoded message takes
// many times its size, and thousands of clients may send one at the same moment. It holds
// a token for each that is under way.
type Turns chan struct{}

// Take waits for a turn, as long as its client is there. Whoever gets one gives it back.
func (t Turns) Take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// GiveBack gives a turn back.
func (t Turns) GiveBack() { <-t }

// In calls f, which must not wait for clients or for time, when there is room for one
// more message.
func (t Turns) In(ctx context.Context, f func() error) error {
	if err := t.Take(ctx); err != nil {
		return err
	}
	defer t.GiveBack()
	return f()
}

// Out calls f, which may wait, from within In, and lets another message go first.
func (t Turns) Out(f func() error) error {
	t.GiveBack()
	defer func() { t <- struct{}{} }()
	return f()
}
