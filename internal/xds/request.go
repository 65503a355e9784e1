package xds

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// session is the state of the xDS protocol with one client: what it subscribes to, what it
// was sent, and what it answered. Requests, views and answers go in, responses come out; the
// session itself neither receives nor sends. Its methods are in four files: request.go
// (requests and the answers in them), subscribe.go (changes of what is subscribed), follow.go
// (changes of what is published) and compose.go (responses).
type session struct {
	server *Server
	id     uint64
	api    rpc.APIVersion // of the method, or as the node's is known to be
	delta  bool
	peer   string
	wake   chan struct{} // capacity 1
	behind atomic.Bool   // it owed an answer when the last set came, and has given none since

	response rpc.Frame // what is being sent; guarded by stream.sending

	// mu guards what follows. It is never held while sending or receiving.
	mu        sync.Mutex
	closed    bool
	node      rpc.Node
	group     *localityGroup // nil before the first message
	view      *view.View
	watches   []*watch     // in the order of their kinds
	counted   int          // bytes of names that are in the server's budget
	account   *nameAccount // that these count under; nil = none
	heldSince time.Time    // since when removals wait; zero = they do not
	holdTimer *time.Timer  // wakes the stream when they have waited enough
}

// maxTypes bounds the types that one stream may ask for.
const maxTypes = 16

// request handles a state-of-the-world request.
func (s *session) request(r *resource.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	before := s.ownNames()
	w, first, err := s.watchFor(&r.Head)
	if err != nil {
		return err
	}
	if first {
		// Answered in full, whatever version or nonce it shows: those are of
		// an earlier stream.
		w.owed = true
	} else if s.rejects2017(w, r); !s.acknowledge(w, &r.Head) && w.unacked {
		// It answers a response that another has overtaken; the client will
		// answer that one with all the names it then wants. Where nothing is to
		// be answered it wants these: Envoy's unified mux shows the nonce that it
		// accepted last, also after it has rejected others.
		s.lapse(w, r.Names)
		return nil
	}
	may := s.growth(before, before-s.ownOf(w)+w.leastCost()*len(r.Names))
	if err := may(); err != nil {
		return err
	}
	if err := s.replace(w, r.Names, may); err != nil {
		return err
	}
	w.prune()
	return s.checkNames(before)
}

// deltaRequest handles a delta request.
func (s *session) deltaRequest(r *resource.DeltaRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	before := s.ownNames()
	w, first, err := s.watchFor(&r.Head)
	if err != nil {
		return err
	}
	if first {
		w.owed = w.kind.FullSet() || len(r.Subscribe) > 0
		if len(r.Subscribe) == 0 && len(r.Unsubscribe) == 0 {
			s.setWildcard(w, true) // the wildcard of old clients
		}
	} else {
		// Changes of the subscription count even if the nonce is stale: they
		// are not said again.
		s.acknowledge(w, &r.Head)
	}
	unknown, bytes := w.unknownOf(r.Subscribe)
	may := s.growth(before, before+w.leastCost()*unknown)
	if err := s.reserve(bytes, may); err != nil {
		return err
	}
	for i, n := range r.Subscribe {
		s.deltaSubscribe(w, n)
		if i%checkedNames == checkedNames-1 {
			if err := may(); err != nil {
				return err
			}
		}
	}
	for _, n := range r.Unsubscribe {
		s.deltaUnsubscribe(w, n)
	}
	w.prune()
	if most := s.server.options.Limits.MaxNames() + len(s.view.Set().Names()); len(w.subs) > most {
		return rpc.BadMessage("resource_names_subscribe", fmt.Sprintf("%d names subscribed on one stream, want at most %d", len(w.subs), most))
	}
	if first {
		s.adopt(w, r.Initial)
	}
	return s.checkNames(before)
}

// deltaSubscribe answers a name even if the client should know it: it may have
// forgotten.
func (s *session) deltaSubscribe(w *watch, name string) {
	if name != resource.Wildcard || !w.kind.FullSet() {
		w.demand(s.subscribe(w, name))
		return
	}
	s.setWildcard(w, true)
	w.owed = true
	for _, x := range w.subs {
		if !x.named {
			w.demand(x)
		}
	}
}

func (s *session) deltaUnsubscribe(w *watch, name string) {
	if name == resource.Wildcard && w.kind.FullSet() {
		s.setWildcard(w, false)
		return
	}
	x := w.find(s.view, name)
	if x == nil || !x.named {
		return // never subscribed by name
	}
	if !w.wildcard {
		s.unsubscribe(w, x)
		return
	}
	// The client cannot know whether the wildcard still covers the name: it is
	// told what the name is now, or that it is gone.
	x.named = false
	w.demand(x)
}

// watchFor finds or makes the watch of a request's type.
func (s *session) watchFor(h *resource.Head) (w *watch, first bool, err error) {
	for _, w := range s.watches {
		if w.url == h.TypeURL {
			return w, false, nil
		}
	}
	if len(s.watches) >= maxTypes {
		return nil, false, rpc.BadMessage("type_url", fmt.Sprintf("more than %d types on one stream", maxTypes))
	}
	w = &watch{kind: h.Kind, as: s.as(h.API, h.Kind), client: s.node.Cluster, url: h.TypeURL,
		answersUnknown: h.Kind == resource.Endpoints && !s.delta && s.node.IsEnvoy()}
	if (h.Kind == resource.Listener || h.Kind == resource.Cluster) && s.node.NeedsReturnMark() {
		w.returns = map[string]uint16{}
	}
	if h.Kind == resource.Other {
		w.tail = mem.SliceBuffer(resource.ResponseTail(h.TypeURL, s.server.options.Identifier, s.delta))
	} else {
		w.tail = s.server.tails.of(s.delta, w.as.API, h.Kind)
	}
	at, _ := slices.BinarySearchFunc(s.watches, h.Kind+1, func(w *watch, k resource.Kind) int { return int(w.kind) - int(k) })
	s.watches = slices.Insert(s.watches, at, w)
	return w, true, nil
}

// as returns how the client wants resources of a kind whose type URL is of an API version.
// The URLs of 2017 are those of v2.
func (s *session) as(api rpc.APIVersion, kind resource.Kind) rpc.As {
	as := rpc.As{API: api}
	if kind == resource.Cluster {
		as.GRPC, as.OldEnvoy = s.node.IsGRPC(), s.node.RefusesWRRLocality()
	}
	switch {
	case api == rpc.V2 && s.api == rpc.V2017:
		as.API = rpc.V2017
	case api == rpc.V3:
		as.TTL = s.node.TTL && (s.delta || s.node.Wrapped)
	}
	return as
}

// named returns the node of a stream that has told it, and has not ended.
func (s *session) named() (rpc.Node, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.group != nil && !s.closed
}

// subscribesTo reports whether the stream has a watch of a type.
func (s *session) subscribesTo(url string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		if w.url == url {
			return true
		}
	}
	return false
}

// asksAgain reports whether a delta request, in answering a response, subscribes
// to something that is subscribed and was sent.
func (s *session) asksAgain(r *resource.DeltaRequest) bool {
	if r.Nonce == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		if w.url != r.TypeURL {
			continue
		}
		for _, name := range r.Subscribe {
			if x := w.subs[name]; x != nil && x.named && x.pending != resourcePending {
				return true
			}
			if name == resource.Wildcard && w.wildcard {
				return true
			}
		}
	}
	return false
}

// acceptEncoded handles a request that only accepts the last response, with the
// names of the request before; pending tells whether there is something to send
// now. All other requests are not handled, and nothing is done.
func (s *session) acceptEncoded(request []byte) (handled, pending bool) {
	version, rest, ok := resource.AckHead(request)
	if !ok {
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.acceptedBy(version, rest)
	if w == nil || s.closed {
		return false, false
	}
	s.server.metrics.requests[w.kind].Inc()
	s.answered(w, nil, time.Now())
	s.recount()
	return true, s.pending()
}

// acceptedBy finds the watch whose last response a request accepts, from its
// bytes after version and node; nil when it does anything else.
func (s *session) acceptedBy(version, rest []byte) *watch {
	for _, w := range s.watches {
		if !w.unacked || w.list == nil || len(rest) < len(w.list.raw) || string(rest[:len(w.list.raw)]) != w.list.raw {
			continue
		}
		url, nonce, ok := resource.AckTail(rest[len(w.list.raw):])
		if ok && w.accepted(version, url, nonce) {
			return w
		}
	}
	listed, tail := sumNames(rest) // the order may be another
	url, nonce, ok := resource.AckTail(tail)
	if !ok {
		return nil
	}
	for _, w := range s.watches {
		if w.unacked && w.list != nil && w.list.listed == listed && w.accepted(version, url, nonce) {
			return w
		}
	}
	return nil
}

// rejects2017 takes a request of a client of 2017 as a rejection when it shows
// another version than that of the response which it answers: there was no
// other way to say so.
func (s *session) rejects2017(w *watch, r *resource.Request) {
	if w.as.API == rpc.V2017 && w.unacked && w.nonce.says(r.Nonce) && r.Version != w.sent.version {
		r.Nack, r.Error = true, "rejected; clients of 2017 do not say why"
	}
}

// acknowledge processes a request as the acknowledgement of a response. It returns false
// if the nonce is that of an earlier response.
func (s *session) acknowledge(w *watch, h *resource.Head) bool {
	if h.Nonce == "" {
		return true // answers nothing
	}
	if !w.nonce.says(h.Nonce) {
		s.server.metrics.stale[w.kind].Inc()
		return false
	}
	if w.unacked { // else answered before; this one changes the subscription only
		s.answered(w, h, time.Now())
	}
	return true
}

// answered records that the client accepts the last response of a type, or rejects it, which only
// a head can tell.
func (s *session) answered(w *watch, h *resource.Head, now time.Time) {
	w.unacked = false
	s.behind.Store(false)
	if w.flies != nil && (h == nil || !h.Nack) {
		s.acceptShared(w, now)
		return
	}
	w.unfold()
	carried := w.flight[:0]
	for _, x := range w.flight {
		if x.delivery == unanswered {
			x.delivery = settled
		}
		if w.live(x) {
			carried = append(carried, x)
		}
	}
	if h != nil && h.Nack {
		s.reject(w, h, carried, now)
	} else {
		s.accept(w, carried, now)
	}
	for _, x := range carried {
		w.retire(s.view, x)
	}
	w.flight = nil
}

// acceptShared is accept for a response that others are sent, too.
func (s *session) acceptShared(w *watch, now time.Time) {
	s.server.metrics.acks[w.kind].Inc()
	w.acked = stamp{version: w.sent.version, at: now}
	s.group.acknowledgeShared(w.as, w.flies, now)
	w.acceptShared()
}

func (s *session) accept(w *watch, carried []*sub, now time.Time) {
	s.server.metrics.acks[w.kind].Inc()
	w.acked = stamp{version: w.sent.version, at: now}
	for _, x := range carried {
		w.clear(x)
	}
	if w.kind != resource.Endpoints {
		return
	}
	s.group.acknowledge(w.as, carried, now)
	for _, x := range carried {
		if s.delta && s.view.Gone(x.name) {
			w.enqueue(x) // to be removed, see want
		}
	}
}

// reject remembers what the client said. What it rejected counts as sent: it
// is not sent again before it changes.
func (s *session) reject(w *watch, h *resource.Head, carried []*sub, now time.Time) {
	s.server.metrics.nacks[w.kind].Inc()
	w.nack = Nack{Version: w.sent.version, Text: h.Error, At: now}
	for _, x := range carried {
		if !x.delivery.rejected() {
			w.rejects++
		}
		x.delivery = rejectedAlone
		if len(carried) > 1 {
			x.delivery = rejectedTogether
		}
	}
	if skipped, ok := s.server.nacks.Allow(now); ok {
		s.server.options.Log.Warn("a client rejected a response",
			slog.String("type", w.kind.String()), slog.String("version", w.sent.version), slog.String("error", h.Error),
			slog.String("node", s.node.ID), slog.String("peer", s.peer), slog.Int("skipped_lines", skipped))
	}
}
