package xds

import (
	"time"

	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// advance brings the stream to a view, and has sent what that leaves to send.
func (s *stream) advance(view *view.View, now time.Time) {
	if s.adjust(view) {
		s.offer(now)
	}
}

// offer has what is pending sent: right here where that cannot block, else by
// the stream's handler. Sending to many streams from one goroutine is what lets
// the transport write them together.
//
// It cannot block when the client has answered all responses so far. A nonce
// can't be guessed and is the last thing in a response, so the client has read
// all of them to the end, and nothing waits for its window.
func (s *stream) offer(now time.Time) {
	if !s.sending.TryLock() {
		s.kick() // the handler is at it
		return
	}
	defer s.sending.Unlock()
	frame, kind, more := s.composeOne(now)
	if frame != nil {
		if err := s.send(frame, kind); err != nil {
			s.fail(err)
			more = true
		}
	}
	if more {
		s.kick()
	}
}

// composeOne gives the next response of a stream that has answered all others,
// and whether something is left for the handler to do.
func (s *stream) composeOne(now time.Time) (frame *rpc.Frame, kind resource.Kind, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, kind, false
	}
	for _, w := range s.watches {
		if w.unacked {
			return nil, kind, s.pending()
		}
	}
	frame, kind = s.next(now)
	s.recount()
	if frame == nil {
		return nil, kind, false
	}
	return frame, kind, s.pending()
}

// fail has the handler end the stream.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// flush sends everything that may be sent now. It may block on the client;
// only the handler calls it.
func (s *stream) flush() error {
	s.sending.Lock()
	defer s.sending.Unlock()
	for {
		frame, kind, err := s.compose()
		if frame == nil {
			return err
		}
		if err := s.send(frame, kind); err != nil {
			return err
		}
	}
}

// compose is next under the stream's lock, which is free again whatever
// happens: the publisher and the end of the stream need it.
func (s *stream) compose() (*rpc.Frame, resource.Kind, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, resource.Other, s.broken
	}
	frame, kind := s.next(time.Now())
	s.recount()
	return frame, kind, nil
}

func (s *stream) send(frame *rpc.Frame, kind resource.Kind) error {
	m := s.server.metrics
	m.pushes[kind].Inc()
	m.bytes[kind].Add(float64(frame.Pieces.Len()))
	err := s.direct.SendMsg(frame)
	frame.Pieces = nil // it is used again, and must not keep what was sent
	if err != nil {
		m.failed.Inc()
	}
	return err
}

// Direct is a stream that stands around another, and passes on as they are
// frames that are sent and requests that are received. To pass by it spares each
// of them a look at memory that nothing else needs.
type Direct interface {
	Direct() grpc.ServerStream // the other one
}

func direct(g grpc.ServerStream) grpc.ServerStream {
	if d, ok := g.(Direct); ok {
		return d.Direct()
	}
	return g
}
