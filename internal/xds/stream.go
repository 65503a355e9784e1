package xds

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// stream is one open stream: a session with a client over gRPC. It receives requests and
// sends responses; what they mean is the session's.
type stream struct {
	session

	raw       grpc.ServerStream
	direct    grpc.ServerStream // by which messages go; see Direct
	unread    rpc.Unread        // of raw
	only      string            // type URL of a service for one type; "" = aggregated
	connected time.Time
	spoke     atomic.Bool // a request came
	repeated  time.Time   // when it last asked again for what it had; the receiver's
	ack       sotwRequest // the request that comes next; the receiver's
	place     int         // among the streams of its group, whose lock guards it

	sending sync.Mutex // held while sending; taken before mu

	// Guarded by session.mu.
	broken   error // why sending failed outside of the handler
	received error // why nothing more is received; nil while it is
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

// over reports whether the stream has to end.
func (s *stream) over() (bool, error) {
	select {
	case <-s.server.stop:
		return true, errStopped
	default:
	}
	if !s.spoke.Load() && time.Since(s.connected) >= s.server.options.FirstRequestWait {
		return true, errNoRequest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received != nil, s.received
}

// close ends all that the stream takes part in, and returns the group that it was
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
	if s.group == nil {
		return nil
	}
	s.group.remove(s)
	for _, w := range s.watches {
		w.unfold()
		s.server.lists.release(w.list)
		if w.kind != resource.Endpoints {
			continue
		}
		for n := range w.each {
			if x := w.subs[n]; x != nil {
				s.group.unsubscribe(w.key(n), x.acked)
			} else {
				s.group.unsubscribe(w.key(n), versionOf(s.view, w.key(n)))
			}
		}
	}
	return s.group
}

// guarded calls f, with a panic as an error: outside of the handler nobody else
// would stop it from ending the process.
func (s *stream) guarded(f func() error) (err error) {
	defer s.server.panics.Recovered(&err, s.server.options.Log)
	return f()
}

// takePart has the stream take part in the group of its node.
func (s *stream) takePart(node rpc.Node) error {
	g, err := s.server.join(node.Locality)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // by the handler, meanwhile
		s.server.leave(g)
		return errStopped
	}
	s.node, s.group = node, g
	s.server.met(s)
	if is := s.server.options.Is2017; is != nil && s.api == rpc.V2 && is(node) {
		s.api = rpc.V2017
	}
	s.view = g.add(s)
	return nil
}

// receive handles requests until the client or an error ends the stream.
func (s *stream) receive() error {
	for {
		var err error
		if s.delta {
			err = s.receiveDelta()
		} else {
			err = s.receiveSotW()
		}
		if err != nil {
			return err
		}
	}
}

func (s *stream) receiveSotW() error {
	m := &s.ack
	*m = sotwRequest{inTurn: inTurn{stream: s}}
	if err := s.direct.RecvMsg(m); err != nil {
		return err
	}
	if m.pending {
		s.offer(time.Now())
	}
	if m.late != nil {
		late := m.late
		m.late = nil // the stream keeps m
		return s.catchUp(late)
	}
	return m.refused
}

// sotwRequest receives a state-of-the-world request. Nearly all of them accept
// the last response and list the names that the request before listed, in this
// order or another: those are handled from their bytes, and nothing is decoded.
type sotwRequest struct {
	inTurn

	pending bool  // there is something to send now
	late    *late // it has to wait
	refused error // ends the stream
}

// ReadMessage implements rpc.Reader.
func (r *sotwRequest) ReadMessage(encoded []byte) (malformed error) {
	defer r.giveBack()
	handled, pending := r.stream.acceptEncoded(encoded)
	if handled {
		r.pending = pending
		return nil
	}
	m := &discoveryv3.DiscoveryRequest{}
	r.refused, malformed = r.handle(encoded, m, func() (err error) {
		r.late, err = r.stream.decoded(m)
		return err
	})
	return malformed
}

// inTurn is a request that is handled in turn.
type inTurn struct {
	stream *stream
	taken  bool
}

// Size implements rpc.Sizer.
func (t *inTurn) Size(bytes int) { rpc.Waits(t.stream.unread, bytes) }

// Wait implements rpc.Waiter. Until its turn comes, a stream holds only the message as it
// was sent, and nothing of it once its connection is closed.
func (t *inTurn) Wait() error {
	if t.taken {
		return nil
	}
	t.stream.spoke.Store(true) // though its turn may come late
	err := t.stream.server.handling.Take(t.stream.raw.Context())
	t.taken = err == nil
	return err
}

func (t *inTurn) giveBack() {
	if t.taken {
		t.taken = false
		<-t.stream.server.handling
	}
}

// handle decodes a request and calls f for it, in turn. That takes deep calls, and a stack
// that has grown for them would stay: they get one of their own, which is given back.
func (t *inTurn) handle(encoded []byte, m proto.Message, f func() error) (refused, malformed error) {
	if err := t.Wait(); err != nil {
		return err, nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.giveBack()
		refused = t.stream.guarded(func() error {
			if malformed = rpc.Decode(encoded, m); malformed == nil {
				return f()
			}
			return nil
		})
	}()
	<-done
	return refused, malformed
}

// decoded handles a state-of-the-world request that had to be decoded, unless it has to wait.
func (s *stream) decoded(m *discoveryv3.DiscoveryRequest) (*late, error) {
	r, err := resource.RequestFrom(m, s.only, s.server.options.Limits)
	if err != nil {
		return nil, err
	}
	handle := func() error {
		if err := s.request(&r); err != nil {
			return err
		}
		s.offer(time.Now())
		return nil
	}
	node, waits, err := s.identify(&r.Head)
	if err != nil {
		return nil, err
	}
	awaited := r.Version
	if s.server.options.Await == nil || s.subscribesTo(r.TypeURL) {
		awaited = ""
	}
	if waits || awaited != "" {
		return &late{node: node, enters: waits, version: awaited, bytes: r.Size(), handle: handle}, nil
	}
	return nil, handle()
}

func (s *stream) receiveDelta() error {
	m := &deltaRequest{inTurn: inTurn{stream: s}}
	if err := s.direct.RecvMsg(m); err != nil {
		return err
	}
	if m.refused != nil {
		return m.refused
	}
	if m.late != nil {
		if err := s.catchUp(m.late); err != nil {
			return err
		}
	}
	if m.again {
		r := &m.request
		rpc.Keeps(s.raw.Context(), r.Size())
		defer rpc.Keeps(s.raw.Context(), 0)
		if err := s.slowDown(r); err != nil {
			return err
		}
		if err := s.server.handling.In(s.raw.Context(), func() error { return s.deltaRequest(r) }); err != nil {
			return err
		}
	}
	s.offer(time.Now())
	return nil
}

// deltaRequest receives a delta request, and handles it unless it asks again for what
// the client has.
type deltaRequest struct {
	inTurn

	request resource.DeltaRequest
	again   bool
	late    *late // it has to wait
	refused error // ends the stream
}

// ReadMessage implements rpc.Reader.
func (r *deltaRequest) ReadMessage(encoded []byte) (malformed error) {
	defer r.giveBack()
	m := &discoveryv3.DeltaDiscoveryRequest{}
	r.refused, malformed = r.handle(encoded, m, func() error { return r.decoded(m) })
	return malformed
}

// decoded handles a request, unless it has to wait.
func (r *deltaRequest) decoded(m *discoveryv3.DeltaDiscoveryRequest) (err error) {
	s := r.stream
	if r.request, err = resource.DeltaRequestFrom(m, s.only, s.server.options.Limits); err != nil {
		return err
	}
	node, waits, err := s.identify(&r.request.Head)
	switch {
	case err != nil:
		return err
	case waits:
		r.late = &late{node: node, enters: true, bytes: r.request.Size(), handle: r.identified}
		return nil
	}
	return r.identified()
}

// identified handles a request of a client that the stream knows.
func (r *deltaRequest) identified() error {
	s := r.stream
	if returns := s.server.options.Returns; returns != nil && len(r.request.Initial) > 0 && !s.subscribesTo(r.request.TypeURL) {
		if err := returns(); err != nil {
			return err
		}
		s.advance(s.group.update(s.server.published.Load()), time.Now()) // publishing may not have reached the group yet
	}
	if r.again = s.asksAgain(&r.request); r.again {
		return nil
	}
	return s.deltaRequest(&r.request)
}

// repeatPause is the least time between two answers to a client that subscribes
// in its answers, again and again, to what it has been sent. It is obeyed, since
// it may have forgotten in between; but a client that names in each answer all
// that it wants, as contour's command line does, would else be sent the same as
// fast as the network goes, also what it refuses.
const repeatPause = time.Second

// slowDown takes a request as an answer, and waits until what it subscribes to,
// which is all that it leaves of it, may be sent again. Nothing is received from
// the client meanwhile: its stream alone waits. Called by the receiver only.
func (s *stream) slowDown(r *resource.DeltaRequest) error {
	answer := *r
	answer.Subscribe, answer.Unsubscribe = nil, nil
	if err := s.deltaRequest(&answer); err != nil {
		return err
	}
	s.kick()
	r.Nonce, r.Nack, r.Error = "", false, ""
	timer := time.NewTimer(time.Until(s.repeated.Add(repeatPause)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.server.stop:
		return errStopped
	case <-s.raw.Context().Done():
		return s.raw.Context().Err()
	}
	s.repeated = time.Now()
	return nil
}

// What may be decoded and handled at once, of requests that do more than to accept a
// response. A decoded request and the stack that has grown for it take many times the
// size of its message, and thousands of streams may ask at the same moment; those that
// wait hold only the message, which counts as unread meanwhile.
const (
	leastAtOnce    = 4
	requestsPerCPU = 2
	mostAtOnce     = 16
)

// handledAtOnce is how many requests keep all processors busy, and no more: one of 20,000
// names takes 10 MiB while it is handled.
func handledAtOnce() int {
	return min(mostAtOnce, max(leastAtOnce, requestsPerCPU*runtime.GOMAXPROCS(0)))
}
