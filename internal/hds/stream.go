package hds

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// stream is one open stream.
type stream struct {
	server *Server
	grpc   grpc.ServerStream
	api    rpc.APIVersion
	peer   string
	opened time.Time
	// checker is set before ready is closed.
	checker *checker
	ready   chan struct{}
	spoke   atomic.Bool // a message came; it may wait for its turn
	left    bool        // the handler has returned; guarded by the server's lock
	denied  chan error  // capacity 1: it is not welcome any more
	pace    rpc.Pace    // of its messages; the receiver's
}

// stream serves one stream: one goroutine reads reports, this one
// tells the checker what to probe. A checker that takes its time to read
// delays nobody else: when it is ready it gets the newest state.
func (s *Server) stream(g grpc.ServerStream, api rpc.APIVersion) error {
	st := &stream{server: s, grpc: g, api: api, peer: rpc.PeerAddress(g.Context()), opened: time.Now(), ready: make(chan struct{}), denied: make(chan error, 1)}
	ended := make(chan error, 1)
	go func() { ended <- st.guarded() }() // ends with the handler: RecvMsg fails then
	defer st.leave()                      // also when serve fails by an internal error, which the gRPC server catches
	return st.serve(ended)
}

// leave takes the checker of a stream that ends out.
func (st *stream) leave() {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.left = true
	if st.checker != nil {
		st.server.remove(st.checker, time.Now())
	}
}

// guarded is read, with a panic as an error: outside of the handler nobody else
// would keep it from ending the process.
func (st *stream) guarded() (err error) {
	defer st.server.panics.Recovered(&err, st.server.log)
	return st.read()
}

// serve waits for what can happen to the stream.
func (st *stream) serve(ended <-chan error) error {
	s := st.server
	silent := time.NewTimer(s.opts.FirstWait)
	defer silent.Stop()
	for unknown := true; unknown; { // until the checker has said who it is
		select {
		case err := <-ended:
			return err
		case <-s.stopped:
			return s.refuse(refusedStopped, codes.Unavailable, "the server is going away")
		case <-silent.C:
			if !st.spoke.Load() {
				return s.refuse(refusedSilent, codes.DeadlineExceeded, "no first message within "+s.opts.FirstWait.String())
			}
		case <-st.ready:
			unknown = false
		}
	}
	t := assigner{stream: st, checker: st.checker, kind: sentFirst}
	waited := time.NewTimer(s.opts.DesignationWait)
	defer waited.Stop()
	var err error
	for first := true; err == nil; first = false {
		if first {
			err = t.send(false)
			continue
		}
		select {
		case err := <-ended:
			if _, ours := status.FromError(err); !ours || st.grpc.Context().Err() != nil {
				s.ends(t.checker, time.Now())
			}
			return err
		case <-s.stopped:
			return s.refuse(refusedStopped, codes.Unavailable, "the server is going away")
		case err := <-st.denied:
			return err
		case <-t.checker.evicted:
			return s.refuse(refusedReplaced, codes.Aborted, "another stream of this checker has taken its place")
		case <-t.checker.wake:
			err = t.send(t.assigned())
		case <-waited.C:
			err = t.send(true)
		case <-t.later:
			err = t.send(true)
		}
	}
	return err
}

// assigner sends specifiers on a stream.
type assigner struct {
	stream  *stream
	checker *checker
	kind    string           // of the next specifier
	later   <-chan time.Time // when to look again
}

func (t *assigner) assigned() bool { return t.kind != sentFirst }

// send sends the specifier that the checker should have, if it does not have
// it yet. A checker without a placement gets nothing, unless it has waited for
// long enough.
func (t *assigner) send(anyway bool) error {
	s := t.stream.server
	o := s.current()
	if !anyway && !o.knows(t.checker.id) {
		return nil
	}
	now := time.Now()
	if wait := t.checker.held(now); wait > 0 {
		t.later = time.After(wait)
		return nil
	}
	m, err := s.prepare(t.checker, o, now)
	if err != nil {
		// The checker keeps what it has: a specifier that breaks a rule could
		// break the checker.
		s.metrics.leftOut.WithLabelValues(leftSpecifier).Inc()
		if skipped, ok := s.limit.Allow(now); ok {
			s.log.Error("a health check specifier was not sent", "checker", t.checker.id, "error", err, "skipped_lines", skipped)
		}
		return nil
	}
	t.later = nil
	if !m.again.IsZero() {
		t.later = time.After(m.again.Sub(now))
	}
	if !m.news {
		return nil
	}
	s.metrics.assignments.WithLabelValues(t.kind).Inc()
	t.kind = sentAgain
	t.checker.hold(now)
	return t.stream.grpc.SendMsg(m.specifier)
}

// read takes messages until the stream ends.
func (st *stream) read() error {
	m := &received{stream: st, first: true}
	for {
		if err := st.grpc.RecvMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if m.late != nil {
			m.enterLate()
		}
		if m.refused == nil {
			st.slowDown()
			continue
		}
		if _, isStatus := status.FromError(m.refused); isStatus {
			return m.refused
		}
		return st.server.refuse(refusedMessage, codes.InvalidArgument, m.refused.Error())
	}
}

// received receives the messages of a stream, one after the other. They are decoded and
// handled within the receiving of them, in turn: those that wait count as unread.
type received struct {
	stream  *stream
	first   bool
	inTurn  bool
	late    *convert.CheckerHello // of a checker that has to be placed, which may take seconds
	refused error                 // ends the stream
}

// Size implements rpc.Sizer.
func (m *received) Size(bytes int) { rpc.Waits(rpc.UnreadOf(m.stream.grpc.Context()), bytes) }

// Wait implements rpc.Waiter.
func (m *received) Wait() error {
	if m.inTurn {
		return nil
	}
	m.stream.spoke.Store(true)
	err := m.stream.server.reading.Take(m.stream.grpc.Context())
	m.inTurn = err == nil
	return err
}

// ReadMessage implements rpc.Reader.
func (m *received) ReadMessage(encoded []byte) error {
	if err := m.Wait(); err != nil {
		return err
	}
	defer func() {
		m.inTurn = false
		m.stream.server.reading.GiveBack()
	}()
	now := time.Now()
	if !m.first {
		m.refused = m.stream.report(encoded, now)
		return nil
	}
	hello, err := m.stream.introduce(encoded)
	if err != nil {
		m.refused = err
		return nil
	}
	if m.stream.server.places(&hello.Node) {
		m.late = &hello
		return nil
	}
	m.enter(hello, now)
	return nil
}

// enterLate places a checker and takes it in. No message is kept meanwhile.
func (m *received) enterLate() {
	hello := *m.late
	m.late = nil
	st := m.stream
	st.server.opts.Place(st.grpc.Context(), st.peer, &hello.Node)
	m.enter(hello, time.Now())
}

// enter takes a checker in, or refuses it.
func (m *received) enter(hello convert.CheckerHello, now time.Time) {
	if m.refused = m.stream.admit(hello, now); m.refused == nil {
		m.first = false
		close(m.stream.ready)
	}
}

// introduce reads the first message, which says who the checker is.
func (st *stream) introduce(data []byte) (convert.CheckerHello, error) {
	m, err := convert.FirstHealthMessage(data)
	if err != nil {
		return convert.CheckerHello{}, err
	}
	hello, err := convert.CheckerFrom(m.Request, st.api)
	return hello.Bounded(st.server.opts.EnvoyEndpoints), err
}

// admit takes a checker in that is allowed.
func (st *stream) admit(hello convert.CheckerHello, now time.Time) error {
	s := st.server
	before := s.reauthorizations.Load()
	if err := s.allowed(st.grpc.Context(), hello.Node); err != nil {
		return err
	}
	c := newChecker(hello, st.api, st.peer, st.opened)
	c.account, c.stream = s.account(st.grpc.Context()), st
	if err := st.enter(c, now); err != nil {
		return err
	}
	if s.reauthorizations.Load() != before { // that one may have missed this stream
		return s.allowed(st.grpc.Context(), hello.Node)
	}
	return nil
}

// enter takes the checker of a stream in.
func (st *stream) enter(c *checker, now time.Time) error {
	s := st.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.left {
		return s.refuse(refusedFull, codes.ResourceExhausted, "too many checkers")
	}
	if err := s.admit(c, now); err != nil {
		return err
	}
	st.checker = c
	return nil
}

// report reads a later message.
func (st *stream) report(data []byte, now time.Time) error {
	m, err := convert.LaterHealthMessage(data)
	if err != nil {
		return err
	}
	switch {
	case m.Response != nil:
		return st.server.report(st.checker, m.Response, now)
	case m.Request != nil:
		return st.server.renew(st.checker, m.Request, now)
	}
	st.checker.mu.Lock() // nothing to report on
	defer st.checker.mu.Unlock()
	st.checker.seen(now)
	return nil
}

// How often a checker may report, in the long run and at once. Real ones report once in an
// interval; what has waited while a connection hung comes at once. Every report counts, since it
// may report a failure, so a checker beyond its pace is read slowly instead: its transport fills
// up, and it has to wait.
const (
	reportsPerInterval = 16
	reportBurst        = 64
)

// slowDown waits after a message of a checker that is beyond its pace.
func (st *stream) slowDown() {
	s, now := st.server, time.Now()
	interval := s.interval()
	each := interval / reportsPerInterval
	wait := st.pace.Wait(now, each, reportBurst)
	st.pace.Take(each)
	if wait == 0 {
		return
	}
	s.excessive(st.checker, st.peer, interval, now)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-st.grpc.Context().Done():
	}
}
