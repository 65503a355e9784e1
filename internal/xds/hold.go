package xds

import (
	"context"
	"time"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// A server that belongs to a group of replicas may lag behind the others, or be cut
// off from them. It then must not tell a client that something is gone which another
// server has, and must not show a client an older version than another server did.

// HoldRemovals holds back everything that tells clients of something being absent,
// until it is called with false: listeners and clusters that a response leaves out,
// removed resources of delta, assignments without endpoints of services that are gone.
// Everything else goes on.
func (s *Server) HoldRemovals(hold bool) {
	if s.holds.Swap(hold) == hold || hold {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		st.kick()
	}
}

// Version returns the version of what is published; "" before the first publication.
func (s *Server) Version() string {
	if set := s.published.Load(); set != nil {
		return set.Version()
	}
	return ""
}

// await waits until the server has what a client shows in its first request of a type,
// and brings the stream there. It is called in turn.
func (s *stream) await(ctx context.Context, h *resource.Head, shown string) error {
	wait := s.server.options.Await
	if wait == nil || shown == "" || s.subscribesTo(h.TypeURL) {
		return nil
	}
	if err := s.server.outOfTurn(func() error { return wait(ctx, s.peer, shown) }); err != nil {
		return err
	}
	s.advance(s.zone.update(s.server.published.Load()), time.Now())
	return nil
}

// subscribesTo reports whether the stream has a watch of a type.
func (s *stream) subscribesTo(url string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		if w.url == url {
			return true
		}
	}
	return false
}

// held reports whether the next response of a type has to wait because it would tell
// the client of an absence. Only full sets wait as a whole: other responses leave out
// what waits; see [stream.withheld].
func (s *stream) held(w *watch) bool {
	if !s.server.holds.Load() {
		return false
	}
	if w.waits != nil && len(w.waits.missing) > 0 {
		w.unfold() // name by name
	}
	if !w.kind.FullSet() || s.delta {
		return false
	}
	for _, x := range w.subs {
		if (x.due || x.sent != nil) && s.wanted(w, x) && s.want(w, x) == nil {
			return true
		}
	}
	return false
}

// wanted reports whether a resource is one that the client asks for: a listener that
// only the wildcard covers is never sent.
func (s *stream) wanted(w *watch, x *sub) bool { return w.kind != resource.Listener || x.named }

// withheld reports whether a resource stays out of a response for now, because it
// would tell the client of an absence.
func (s *stream) withheld(w *watch, x *sub) bool {
	if !s.server.holds.Load() {
		return false
	}
	want := s.want(w, x)
	if want == nil {
		return s.delta && (x.due || x.sent != nil)
	}
	return w.kind == resource.Endpoints && s.view.Gone(x.name) && !same(want, x.sent)
}
