package xds

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// answer is what one response will carry.
type answer struct {
	carried []*sub           // as they are sent
	beats   []*view.Resource // that still hold; delta only
	removed []string         // delta only
	size    int
	apart   bool // it takes nothing more
}

// full reports whether one more resource, or the name of one that is gone, would
// make the answer larger than limit, or has to go apart. A single one always fits.
func (a *answer) full(x *sub, r *view.Resource, limit int) bool {
	if a.apart || x.delivery == rejectedTogether && same(r, x.sent) && a.size > 0 {
		return true
	}
	more := len(x.name)
	if r != nil {
		more = len(r.SotW)
	}
	return a.size > 0 && a.size+more > limit
}

func (a *answer) add(w *watch, x *sub, r *view.Resource) {
	a.size += len(r.SotW)
	a.apart = a.apart || x.delivery == rejectedTogether && same(r, x.sent) // what has changed since may be as good as all else
	w.clear(x)
	x.sent, x.pending = r, min(x.pending, comparePending)
	a.carried = append(a.carried, x)
}

// still ends what is pending of a resource that has not changed, with a heartbeat if
// one is pending.
func (a *answer) still(x *sub, r *view.Resource) {
	if x.pending == heartbeatPending && r != nil && r.Beat != nil {
		a.beats = append(a.beats, r)
		a.size += len(r.Beat)
	}
	x.pending = nothingPending
}

// next composes the next response, or returns nil when there is none to send.
//
// Make before break: first what is new or changed, in the order of the kinds
// (clusters before the listeners and routes that lead to them), then what is
// removed.
func (s *session) next(now time.Time) (*rpc.Frame, resource.Kind) {
	for _, breaking := range []bool{false, true} {
		if breaking && !s.mayBreak(now) {
			break
		}
		for _, w := range s.watches {
			if !w.pending() || s.held(w) {
				continue
			}
			if w.waits != nil {
				return s.frameShared(w, now), w.kind
			}
			var a answer
			if s.collect(w, breaking, &a) {
				return s.frame(w, &a, now), w.kind
			}
		}
	}
	return nil, resource.Other
}

// mayBreak reports whether clusters and endpoints may be removed: not while
// changes of listeners or routes wait for the client, and yet after a bounded
// time.
func (s *session) mayBreak(now time.Time) bool {
	waiting, wanted := false, false
	for _, w := range s.watches {
		switch w.kind {
		case resource.Listener, resource.Route:
			waiting = waiting || len(w.queue) > 0
		case resource.Cluster, resource.Endpoints:
			wanted = wanted || w.pending()
		case resource.Other:
		}
	}
	if !waiting || !wanted {
		s.heldSince = time.Time{}
		return wanted
	}
	if s.heldSince.IsZero() {
		s.heldSince = now
		if s.holdTimer != nil {
			s.holdTimer.Stop()
		}
		s.holdTimer = time.AfterFunc(s.server.options.RemovalWait, s.kick)
	}
	return now.Sub(s.heldSince) >= s.server.options.RemovalWait
}

// kick wakes the handler to send; a signal that waits already is enough.
func (s *session) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pending reports whether any type has something to send; the lock is held.
func (s *session) pending() bool {
	for _, w := range s.watches {
		if w.pending() {
			return true
		}
	}
	return false
}

// collect takes from the queue what the next response of a type carries; false
// when it would say nothing.
func (s *session) collect(w *watch, breaking bool, a *answer) bool {
	byName := func(a, b *sub) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(w.queue, byName) {
		slices.SortFunc(w.queue, byName)
	}
	if w.kind.FullSet() && !s.delta {
		return s.collectAll(w, breaking, a)
	}
	return s.collectChanged(w, breaking, a)
}

// collectChanged carries what changed: state-of-the-world assignments and
// routes, whose absence deletes nothing, and all of delta.
func (s *session) collectChanged(w *watch, breaking bool, a *answer) bool {
	left := w.queue[:0]
	for _, x := range w.queue {
		if !w.live(x) {
			x.pending = nothingPending
			continue
		}
		want := s.want(w, x)
		switch {
		case a.full(x, want, s.server.options.ResponseSize), !breaking && s.vanishes(w, x, want), s.withheld(w, x):
			left = append(left, x)
		case x.pending != resourcePending && same(want, x.sent):
			a.still(x, want)
			w.retire(s.view, x)
		default:
			s.change(w, x, want, a)
		}
	}
	w.keep(left)
	if len(a.carried) > 0 || len(a.removed) > 0 || len(a.beats) > 0 {
		w.owed = false
		return true
	}
	if w.owed && s.delta && len(left) == 0 {
		w.owed = false
		return true // that there is nothing is an answer, too
	}
	w.owed = w.owed && s.delta
	return false
}

// change adds what became of one resource to an answer.
func (s *session) change(w *watch, x *sub, want *view.Resource, a *answer) {
	x.pending = nothingPending
	switch {
	case want != nil:
		s.refreshEndpoints(w, x, want)
		a.add(w, x, want)
	case s.delta:
		s.remove(w, x, a)
	default: // unknown: remembered, and sent when it appears
		w.retire(s.view, x)
	}
}

// remove tells a delta client that a resource is gone or unknown.
func (s *session) remove(w *watch, x *sub, a *answer) {
	a.removed = append(a.removed, x.name)
	a.size += len(x.name)
	w.clear(x)
	x.sent = nil
	if !x.named {
		s.forget(w, x)
	}
}

// collectAll carries everything that is subscribed, as soon as any of it
// changed: clients of state-of-the-world clusters and listeners delete what a
// response leaves out.
func (s *session) collectAll(w *watch, breaking bool, a *answer) bool {
	send := w.owed
	left := w.queue[:0]
	for _, x := range w.queue {
		if !w.live(x) {
			x.pending = nothingPending
			continue
		}
		want := s.want(w, x)
		if !breaking && s.vanishes(w, x, want) {
			left = append(left, x)
			continue
		}
		demanded := x.pending == resourcePending
		x.pending = nothingPending
		send = send || demanded || !same(want, x.sent)
		if !demanded { // it is carried, and its state is needed
			w.retire(s.view, x)
		}
	}
	w.keep(left)
	w.owed = false
	if !send {
		return false
	}
	for _, n := range slices.Sorted(w.each) {
		s.carry(w, w.find(s.view, n), a)
	}
	return true
}

// carry adds one resource to a full set. A resource that waits for its
// removal is in the set until then.
func (s *session) carry(w *watch, x *sub, a *answer) {
	want := s.want(w, x)
	switch {
	case want != nil:
		s.refreshEndpoints(w, x, want)
		a.add(w, x, want)
	case x.pending != nothingPending:
		a.add(w, x, x.sent)
	default:
		w.clear(x)
		w.absent(x, s.view.Set().Version())
		x.sent = nil
		if !x.named {
			s.forget(w, x)
		}
		w.retire(s.view, x)
	}
}

// refreshEndpoints has the endpoints of a new or changed cluster sent after
// it, even if they did not change: Envoy warms a changed cluster until it gets
// them again.
func (s *session) refreshEndpoints(w *watch, x *sub, want *view.Resource) {
	if w.kind != resource.Cluster || same(want, x.sent) {
		return
	}
	x.renewed = true // for endpoints that are subscribed to later
	name := resource.Renamed(x.name, resource.Endpoints)
	for _, other := range s.watches {
		if other.kind != resource.Endpoints {
			continue
		}
		if e := other.find(s.view, name); e != nil {
			other.demand(e)
		}
	}
}

// frame assembles a response from its pieces.
func (s *session) frame(w *watch, a *answer, now time.Time) *rpc.Frame {
	w.flight = a.carried
	for _, x := range a.carried {
		x.delivery = unanswered
	}
	n := len(a.carried)
	if s.delta {
		n *= 2
	}
	pieces := make(mem.BufferSlice, 0, n+len(a.beats)+3) // exactly: it stays until the client has read it
	pieces = append(pieces, s.view.Set().Head())
	for _, x := range a.carried {
		if s.delta {
			pieces = x.sent.AppendDelta(pieces)
		} else {
			pieces = x.sent.AppendSotW(pieces)
		}
	}
	for _, r := range a.beats {
		pieces = append(pieces, mem.SliceBuffer(r.Beat))
	}
	var end []byte
	for _, n := range a.removed {
		end = resource.AppendRemoved(end, n)
	}
	return s.number(w, append(pieces, w.tail), end, now)
}

// frameShared sends what waits.
func (s *session) frameShared(w *watch, now time.Time) *rpc.Frame {
	a := w.waits
	w.size -= a.size()
	w.waits, w.flies, w.owed = nil, a, false
	w.size += a.cost
	if len(a.pieces) > 1 {
		return s.number(w, append(make(mem.BufferSlice, 0, len(a.pieces)+1), a.pieces...), nil, now)
	}
	s.draw(w, now)
	// One allocation for all that the transport keeps until the client has read it.
	out := &struct {
		pieces  [2]mem.Buffer
		nonce   mem.SliceBuffer
		encoded [len(w.nonce.encoded)]byte
	}{encoded: w.nonce.encoded}
	out.nonce = out.encoded[:]
	out.pieces = [...]mem.Buffer{a.pieces[0], &out.nonce}
	s.response.Pieces = out.pieces[:]
	return &s.response
}

// draw gives a response a new nonce, and notes it as sent.
func (s *session) draw(w *watch, now time.Time) {
	w.nonce.draw()
	w.unacked = true
	w.sent = stamp{version: s.view.Set().Version(), at: now}
}

// number ends a response with its nonce, which goes after end, and notes it as sent.
func (s *session) number(w *watch, pieces mem.BufferSlice, end []byte, now time.Time) *rpc.Frame {
	s.draw(w, now)
	pieces = append(pieces, mem.SliceBuffer(append(end, w.nonce.encoded[:]...)))
	s.response.Pieces = pieces
	return &s.response
}

// tails are the ends of responses, encoded once.
type tails [2][rpc.APIVersions][resource.Kinds]mem.Buffer // delta last

func newTails(identifier string) tails {
	var t tails
	for delta := range t {
		for f := range t[delta] {
			name := identifier
			if rpc.APIVersion(f) == rpc.V2017 {
				name = "" // there was no such field
			}
			for k := range t[delta][f] {
				t[delta][f][k] = mem.SliceBuffer(resource.ResponseTail(resource.Kind(k).URLIn(rpc.APIVersion(f)), name, delta == 1))
			}
		}
	}
	return t
}

func (t *tails) of(delta bool, api rpc.APIVersion, kind resource.Kind) mem.Buffer {
	if delta {
		return t[1][api][kind]
	}
	return t[0][api][kind]
}

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

// composeOne returns the next response of a stream that has answered all others,
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
