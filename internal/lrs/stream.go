package lrs

import (
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// maxReports is how many reports of a stream wait for the collector apart from
// each other.
const maxReports = 4

// stream is one client.
type stream struct {
	server *Server
	grpc   grpc.ServerStream
	form   rpc.Form
	node   rpc.Node
	once   bool   // it reads one configuration only
	peer   string // address
	opened time.Time
	left   bool       // the handler has returned; guarded by the server's lock
	denied chan error // capacity 1: it is not welcome any more

	mu       sync.Mutex          // guards what follows; window.Stream is written before the stream is shared
	window   load.StreamWindow   //
	buffers  [maxReports]*buffer // of the window's reports
	last     time.Time           // arrival of the newest report
	reports  uint64
	rejected uint64
	excess   uint64 // reports that were ignored
	exceeded time.Time
	reason   string
	interval time.Duration // as told
	clock    clock         // of a client that does not tell how long it counted
	pace     pace
}

// stream serves one stream: one goroutine reads and books, this one answers and
// watches for changes of what is asked for.
func (s *Server) stream(g grpc.ServerStream, form rpc.Form) error {
	st := &stream{server: s, grpc: g, form: form, peer: rpc.PeerAddress(g.Context()), opened: time.Now(), denied: make(chan error, 1)}
	st.window.Opened = st.opened
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- st.guarded(func() error { return st.read(ready) }) }() // ends with the handler: Recv fails then
	err := st.serve(ready, ended)
	s.leave(st, time.Now())
	return err
}

// serve waits for what can happen to the stream.
func (st *stream) serve(ready <-chan struct{}, ended <-chan error) error {
	s := st.server
	silent := time.NewTimer(s.opts.FirstWait)
	defer silent.Stop()
	t := teller{stream: st}
	for {
		var err error
		select {
		case err := <-ended:
			return err
		case err := <-st.denied:
			return err
		case <-s.stopped:
			return s.refuse(refusedStopped, codes.Unavailable, "the server is going away")
		case <-silent.C:
			return s.refuse(refusedSilent, codes.DeadlineExceeded, "no first message within "+s.opts.FirstWait.String())
		case <-ready:
			ready = nil
			silent.Stop()
			err = t.look()
		case <-t.changed:
			err = t.look()
		case <-t.farewell:
			s.metrics.told.WithLabelValues(toldClosed).Inc()
			return status.Error(codes.Unavailable, "the services to report on have changed: open a new stream")
		}
		if err != nil {
			return err
		}
	}
}

// guarded calls f, with a panic as an error: outside of the handler nobody else
// would stop it from ending the process.
func (st *stream) guarded(f func() error) (err error) {
	defer st.server.panics.Recovered(&err, st.server.log)
	return f()
}

// apart calls f, guarded, where its stack goes with it: one that has grown for
// calls as deep as come once in the life of a stream would stay with the stream,
// which spends its life waiting.
func (st *stream) apart(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- st.guarded(f) }()
	return <-done
}

// read takes messages until the stream ends. The first one names the node and
// may hold statistics already; ready is closed after it. Reports are read from
// their bytes, within the receiving of them.
func (st *stream) read(ready chan<- struct{}) error {
	m := &message{stream: st, ready: ready}
	for {
		if err := st.grpc.RecvMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if m.refused != nil {
			return m.refused
		}
		if m.excessive {
			m.excessive = false
			st.pause()
		}
	}
}

// message receives the messages of a stream, one after the other.
type message struct {
	stream  *stream
	ready   chan<- struct{} // nil after the first message
	refused error           // ends the stream

	excessive bool // the message was ignored: there are too many
}

// Skips implements rpc.Skipper: the node counts in the first message only.
func (m *message) Skips() protowire.Number {
	if m.ready != nil {
		return 0
	}
	return reader.ReportNode
}

// ReadMessage implements rpc.Reader.
func (m *message) ReadMessage(encoded []byte) error {
	st, s := m.stream, m.stream.server
	now := time.Now()
	if m.ready != nil {
		statistics, err := false, error(nil)
		if broken := st.apart(func() error {
			statistics, err = m.greet(encoded)
			return nil
		}); broken != nil {
			m.refused = broken
		}
		if err != nil || m.refused != nil || !statistics {
			return err
		}
	}
	if m.excessive = st.excessive(now); m.excessive {
		return nil
	}
	if err := st.book(encoded, now); err != nil {
		m.refused = s.refuse(refusedMessage, codes.InvalidArgument, err.Error())
	}
	return nil
}

func (st *stream) client() Client {
	st.mu.Lock()
	defer st.mu.Unlock()
	return Client{
		Stream: st.window.Stream, Form: st.form, Node: st.node.Node, UserAgent: st.node.UserAgent, Address: st.peer,
		Since: st.opened, LastReport: st.last, Reports: st.reports,
		Rejected: st.rejected, LastReason: st.reason, Excess: st.excess, LastExcess: st.exceeded, Interval: st.interval,
	}
}

// refuse counts and logs why a stream is ended, and makes its status.
func (s *Server) refuse(reason string, code codes.Code, text string) error {
	s.metrics.refused.WithLabelValues(reason).Inc()
	if skipped, ok := s.limit.Allow(time.Now()); ok && reason != refusedStopped {
		s.log.Warn("a load reporting stream was ended", "reason", reason, "text", text, "skipped_lines", skipped)
	}
	return status.Error(code, text)
}
