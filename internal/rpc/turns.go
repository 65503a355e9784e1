package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"
)

// Turns bound how many messages are decoded and handled at once: a decoded message takes
// many times its size, and thousands of clients may send one at the same moment. It holds
// a token for each that is under way.
type Turns chan struct{}

// Take waits for a turn, as long as its client is there. The caller gives it back.
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

// In calls f, which must not wait for clients or for time, in a turn for one more message.
func (t Turns) In(ctx context.Context, f func() error) error {
	if err := t.Take(ctx); err != nil {
		return err
	}
	defer t.GiveBack()
	return f()
}

// Out calls f, which may wait, from within In, and lets another message go first. What
// the caller holds of its message meanwhile has to be small, or told by [Keeps].
func (t Turns) Out(f func() error) error {
	t.GiveBack()
	defer func() { t <- struct{}{} }()
	return f()
}

// Decode has gRPC decode the message of a single request in turn. Unless that fails, the
// caller returns the turn back.
func (t Turns) Decode(ctx context.Context, decode func(any) error, m proto.Message) error {
	r := &single{ctx: ctx, turns: t, message: m}
	err := decode(r)
	if err != nil && r.taken {
		t.GiveBack()
	}
	return err
}

// single receives the message of a single request.
type single struct {
	ctx     context.Context //nolint:containedctx // of the request, as long as it is received
	turns   Turns
	message proto.Message
	taken   bool
}

// Size implements [Sizer].
func (s *single) Size(bytes int) { Waits(UnreadOf(s.ctx), bytes) }

// Wait implements [Waiter].
func (s *single) Wait() error {
	if s.taken {
		return nil
	}
	err := s.turns.Take(s.ctx)
	s.taken = err == nil
	return err
}

// ReadMessage implements [Reader].
func (s *single) ReadMessage(encoded []byte) error {
	if err := s.Wait(); err != nil {
		return err
	}
	return Decode(encoded, s.message)
}

type unreadKey struct{}

// Unread counts what a client sent that no handler has taken, or that a handler keeps
// while it waits.
type Unread interface {
	// Waits says how many bytes the message that is being received takes while it waits.
	Waits(bytes int)
	// Keeps says how many bytes the handler keeps from now on of what it has taken, 0 = none.
	Keeps(bytes int)
}

// WithUnread notes in the context of a stream or a request who counts what of it is unread.
func WithUnread(ctx context.Context, u Unread) context.Context {
	return context.WithValue(ctx, unreadKey{}, u)
}

// UnreadOf returns the counter of unread data of this context's stream or request, nil if there is none.
// Streams that receive many messages look it up once.
func UnreadOf(ctx context.Context) Unread {
	u, _ := ctx.Value(unreadKey{}).(Unread)
	return u
}

// Waits tells a counter of unread data, or nil, how many bytes the message that is being received takes
// while it waits for its turn.
func Waits(u Unread, bytes int) {
	if u != nil && bytes >= waitsFrom {
		u.Waits(bytes)
	}
}

// Keeps tells the counter of unread data of this context's stream or request how many bytes its
// handler keeps of messages, until the next call or the end of the stream or request. A handler
// that keeps a message while it waits for others has to call it.
func Keeps(ctx context.Context, bytes int) {
	if bytes < waitsFrom {
		bytes = 0
	}
	if u := UnreadOf(ctx); u != nil {
		u.Keeps(bytes)
	}
}

// waitsFrom is the size from which on a message that waits may take more than what is
// counted of it anyway, in bytes.
const waitsFrom = 1 << 10
