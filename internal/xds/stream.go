package xds

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// maxTypes bounds the types that one stream may ask for.
const maxTypes = 16

// stream is one open stream.
type stream struct {
	server    *Server
	raw       grpc.ServerStream
	direct    grpc.ServerStream // by which messages go; see Direct
	id        uint64
	only      string   // type URL of a service for one type; "" = aggregated
	form      rpc.Form // of the method, or as the node's is known to be
	delta     bool
	peer      string
	connected time.Time
	wake      chan struct{} // capacity 1
	spoke     atomic.Bool   // a request came
	behind    atomic.Bool   // it owed an answer when the last set came, and has given none since
	repeated  time.Time     // when it last asked again for what it had; the receiver's
	ack       sotwRequest   // the request that comes next; the receiver's

	sending   sync.Mutex // held while sending; taken before mu
	frameRoom rpc.Frame  // of what is being sent

	// mu guards what follows. It is never held while sending or receiving.
	mu        sync.Mutex
	closed    bool
	node      rpc.Node
	zone      *localityGroup // nil before the first message
	view      *view.View
	watches   []*watch     // in the order of their kinds
	counted   int          // bytes of names that are in the server's budget
	account   *nameAccount // that these count under; nil = none
	broken    error        // why sending failed outside of the handler
	received  error        // why nothing more is received; nil while it is
	heldSince time.Time    // since when removals wait; zero = they do not
	holdTimer *time.Timer  // wakes the stream when they have waited enough
}

// Method is what a stream is opened by.
type Method struct {
	// Only is the URL of the one type that the stream serves; "" = all types.
	// Requests may leave their type out, then.
	Only  string
	Form  rpc.Form // what the client speaks, as far as the method tells
	Delta bool     // else state of the world
}

// Serve runs a stream until it ends.
func (s *Server) Serve(raw grpc.ServerStream, m Method) error {
	st := &stream{
		server:    s,
		raw:       raw,
		direct:    direct(raw),
		only:      m.Only,
		form:      m.Form,
		delta:     m.Delta,
		peer:      rpc.PeerAddress(raw.Context()),
		connected: time.Now(),
		wake:      make(chan struct{}, 1),
	}
	if err := s.admit(st); err != nil {
		return s.statusOf(err)
	}
	st.account = s.names.open(s.accountOf(raw.Context()))
	defer s.release(st)
	return s.statusOf(st.run())
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

// run sends until the stream ends; what it returns ends the stream. It waits on
// one channel only, whatever happens, because thousands of streams do little
// else: a select would take more stack than all the rest of it.
func (s *stream) run() error {
	go func() { s.finish(s.guarded(s.receive)) }() // gRPC ends it when this handler returns
	silent := time.AfterFunc(s.server.options.FirstRequestWait, s.kick)
	defer silent.Stop()
	for {
		<-s.wake
		over, why := s.over()
		if !over || errors.Is(why, io.EOF) {
			// Of a client that asks for nothing more, too: it gets what it
			// asked for.
			if err := s.flush(); err != nil {
				return err
			}
			why = nil
		}
		if over {
			return why
		}
	}
}

// finish notes why there is nothing more to receive.
func (s *stream) finish(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = why
	s.kick()
}

// over tells whether the stream has to end.
func (s *stream) over() (bool, error) {
	select {
	case <-s.server.stop:
		return true, errStopped
	default:
	}
	if !s.spoke.Load() && time.Since(s.connected) >= s.server.options.FirstRequestWait {
		return true, errSilent
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received != nil, s.received
}

// close ends all that the stream takes part in, and gives the zone that it was
// counted in.
func (s *stream) close() *localityGroup {
	s.sending.Lock() // nobody may send once the handler has returned
	defer s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.holdTimer != nil {
		s.holdTimer.Stop()
	}
	s.server.names.add(s.account, -s.counted)
	s.counted = 0
	if s.zone == nil {
		return nil
	}
	s.zone.remove(s)
	for _, w := range s.watches {
		w.unfold()
		s.server.lists.release(w.list)
		if w.kind != resource.Endpoints {
			continue
		}
		for n := range w.each {
			if x := w.subs[n]; x != nil {
				s.zone.unsubscribe(w.key(n), x.acked)
			} else {
				s.zone.unsubscribe(w.key(n), versionOf(s.view, w.key(n)))
			}
		}
	}
	return s.zone
}

// guarded calls f, with a panic as an error: outside of the handler nobody else
// would stop it from ending the process.
func (s *stream) guarded(f func() error) (err error) {
	defer s.server.panics.Recovered(&err, s.server.options.Log)
	return f()
}
