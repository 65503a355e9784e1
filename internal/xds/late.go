package xds

import (
	"time"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// late is a request that has to wait for the locality of its client, for the first plan or
// for a version before it is handled. Thousands of streams may wait, each for seconds:
// neither the message nor what was decoded of it is kept, but for what it asks for, and
// that counts as unread.
type late struct {
	node    rpc.Node
	enters  bool   // the node has to enter yet
	version string // to wait for, "" = none
	bytes   int    // that the request takes
	handle  func() error
}

// catchUp waits until a request can be handled, and handles it. No message is being
// received, and nothing of this client's is until it returns.
func (s *stream) catchUp(l *late) error {
	ctx := s.raw.Context()
	rpc.Keeps(ctx, l.bytes)
	defer rpc.Keeps(ctx, 0)
	if l.enters {
		if err := s.enterLate(l.node); err != nil {
			return err
		}
	}
	if l.version != "" {
		if err := s.server.options.Await(ctx, s.peer, l.version); err != nil {
			return err
		}
	}
	return s.inTurn(func() error {
		if l.version != "" {
			s.advance(s.group.update(s.server.published.Load()), time.Now())
		}
		return l.handle()
	})
}

// enterLate lets a client in when its locality is known and there is a plan.
func (s *stream) enterLate(node rpc.Node) error {
	ctx := s.raw.Context()
	if place := s.server.options.Place; place != nil && node.Machine != "" {
		place(ctx, s.peer, &node)
	}
	before := s.server.reauthorizations.Load()
	if err := s.server.welcome(s, node); err != nil { // before it may wait for a plan
		return err
	}
	if err := s.server.ready(ctx); err != nil {
		return err
	}
	return s.inTurn(func() error { return s.enter(node, before) })
}

// inTurn calls f in turn, on a stack of its own as [inTurn.handle] does.
func (s *stream) inTurn(f func() error) error {
	return s.server.handling.In(s.raw.Context(), func() error {
		done := make(chan error, 1)
		go func() { done <- s.guarded(f) }()
		return <-done
	})
}

// identify takes the node from the first message, and from no other, and makes
// the stream follow its locality; it reports whether that has to wait. It is called in turn.
func (s *stream) identify(h *resource.Head) (node rpc.Node, waits bool, err error) {
	from := h.Node
	h.Node = nil // it may take much
	s.server.metrics.requests[h.Kind].Inc()
	s.spoke.Store(true)
	if s.group != nil { // written by this goroutine and by those that it waits for only
		return node, false, nil
	}
	if node, err = rpc.NodeFrom(from); err != nil {
		return node, false, err
	}
	if s.server.options.Place != nil && node.Machine != "" || s.server.published.Load() == nil {
		return node, true, nil
	}
	before := s.server.reauthorizations.Load()
	if err := s.server.welcome(s, node); err != nil {
		return node, false, err
	}
	return node, false, s.enter(node, before)
}

// enter makes a stream that is welcome take part in the group of its node; before is how
// often Reauthorize had been called before it was welcome. It is called in turn.
func (s *stream) enter(node rpc.Node, before uint64) error {
	if err := s.takePart(node); err != nil {
		return err
	}
	if s.server.reauthorizations.Load() != before { // that one may have missed this stream
		return s.server.welcome(s, node)
	}
	return nil
}
