package xds

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/views"
	"github.com/isobar-xds/isobar/internal/wire"
)

// watch is what one stream subscribes to of one type, and how far the client
// has followed. Guarded by its stream's lock.
type watch struct {
	kind wire.Kind
	url  string
	tail []byte // end of every response

	wildcard bool // all of the type, too
	named    bool // a request has named resources: an empty list now means none
	subs     map[string]*sub

	// What the client has to be told; see next.
	owed  bool   // an answer is due even if it says nothing
	queue []*sub // may have changed; each at most once
	fresh []*sub // subscribed since the stream's view was set

	// The last response.
	nonce   string
	unacked bool
	flight  []*sub // what it carried
	sent    stamp
	acked   stamp
	nack    Nack
	rejects int // subs whose content the client rejected
}

// stamp is a version and when it went.
type stamp struct {
	version string
	at      time.Time
}

// sub is one resource of a watch.
type sub struct {
	name     string
	sent     *views.Resource // what the client was told last; nil = nothing, or that it is gone
	acked    string          // version that the client acknowledged; assignments only
	named    bool            // subscribed by name, not only by the wildcard
	due      bool            // to be answered even if unchanged
	queued   bool
	rejected bool
	renewed  bool // sent on this stream, other than the client had it; clusters only
	seen     bool // scratch of replace
}

// enqueue marks a resource as one that may have to be sent.
func (w *watch) enqueue(x *sub) {
	if !x.queued {
		x.queued = true
		w.queue = append(w.queue, x)
	}
}

// demand marks a resource as one that has to be answered.
func (w *watch) demand(x *sub) {
	x.due = true
	w.enqueue(x)
}

// prune keeps names that came and went from piling up while nothing may be sent
// or nothing is published.
func (w *watch) prune() {
	dead := func(x *sub) bool { return !w.live(x) }
	if most := 2*len(w.subs) + 64; len(w.queue) > most || len(w.fresh) > most {
		w.queue = slices.DeleteFunc(w.queue, dead)
		w.fresh = slices.DeleteFunc(w.fresh, dead)
	}
}

// clear forgets that the client rejected a resource.
func (w *watch) clear(x *sub) {
	if x.rejected {
		x.rejected = false
		w.rejects--
	}
}

// live tells whether a resource is still subscribed.
func (w *watch) live(x *sub) bool { return w.subs[x.name] == x }

// covers tells whether the wildcard extends to a name. API listeners are only
// for those who ask by name: Envoy takes them from its bootstrap alone.
func (w *watch) covers(view *views.View, name string) bool {
	return w.wildcard && w.kind == wire.Cluster && view.Lookup(w.kind, name) != nil
}

// pending tells whether there is something that could be sent now.
func (w *watch) pending() bool { return !w.unacked && (w.owed || len(w.queue) > 0) }

// inSync tells whether the client has accepted everything that it should have.
func (w *watch) inSync() bool { return !w.unacked && !w.owed && len(w.queue) == 0 && w.rejects == 0 }

// same tells whether two resources are the same content; nil is none.
func same(a, b *views.Resource) bool {
	return a == b || (a != nil && b != nil && a.Version == b.Version)
}
