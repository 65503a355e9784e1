package xds

import (
	"slices"
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Bounds of what the streams of a group share.
const (
	// maxShared is how many answers a group keeps. Streams that subscribe to one
	// more combination of names have answers of their own.
	maxShared = 64
	// maxJoined bounds what is copied into one piece for the transport, bytes. A
	// client that does not read keeps it.
	maxJoined = 8 << 10
)

// shared is a response that many streams are sent, but for its nonce: they
// subscribe to the same names, have what the same view said of them, and get what
// the next one says. Immutable.
type shared struct {
	first  bool // nothing was sent before: each name of the list is demanded
	items  []sharedItem
	pieces mem.BufferSlice // up to the nonce
	bytes  int             // of pieces
	cost   int             // of the items, as of so many subs
	listed int             // the same of all names in the list
	// missing is the names of no service, where the response is the first.
	missing []string
}

// sharedItem is one assignment of it, in the order of the names.
type sharedItem struct {
	name        string
	before, now *view.Resource // nil before = there was none
	sub         *subscription  // of the group, unless it has ended since; nil = to be looked up
}

// sharedKey is what a shared response depends on.
type sharedKey struct {
	list           *nameList
	as             rpc.As
	answersUnknown bool
	before         uint64 // seq of the view before; 0: the first response
	all            bool   // all names are compared, not only those that the view lists
}

// sharing is the shared responses of a group. nil stands for one that can't be shared.
type sharing struct {
	mu   sync.Mutex
	view *view.View // that all of them lead to
	made map[sharedKey]*shared
	// The last one that was asked for: the next stream mostly asks for the same.
	key  sharedKey
	last *shared
}

// sharedFor returns the response that brings a watch from one view to another; nil
// where it has to be composed for the stream alone, as always for delta. limit bounds its size. The watch has nothing on its way.
func (g *localityGroup) sharedFor(w *watch, before, now *view.View, all bool, limit int) *shared {
	if w.kind != resource.Endpoints || w.list == nil || w.returns != nil { // those with marks differ
		return nil
	}
	key := sharedKey{list: w.list, as: w.as, answersUnknown: w.answersUnknown, all: all}
	if before != nil {
		key.before = before.Set().Seq()
	}
	c := &g.sharing
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view != now {
		if c.view != nil && c.view.Set().Seq() > now.Set().Seq() {
			return nil // the group is ahead
		}
		c.view, c.made, c.key, c.last = now, map[sharedKey]*shared{}, sharedKey{}, nil
	}
	if c.key == key {
		return c.last
	}
	out, known := c.made[key]
	if !known {
		if len(c.made) >= maxShared {
			return nil
		}
		out = g.share(w, before, now, all, limit)
		c.made[key] = out
	}
	c.key, c.last = key, out
	return out
}

// share makes a shared response; nil where a stream's own state matters: something
// is removed, clients differ, or it is too large for one response.
func (g *localityGroup) share(w *watch, before, now *view.View, all bool, limit int) *shared {
	names := w.list.names
	if !all {
		changed, _ := now.Changed(before.Set().Seq(), w.kind)
		names = slices.DeleteFunc(slices.Clone(changed), func(n string) bool { return !w.list.has(n) })
		slices.Sort(names)
	}
	out := &shared{first: before == nil}
	for _, n := range w.list.names {
		out.listed += subCost + len(n)
		if out.first && w.isMissing(now.Set(), n) {
			out.missing = append(out.missing, n)
		}
	}
	for _, n := range names {
		i := sharedItem{name: n, now: w.lookup(now, n), sub: g.subscription(w.key(n))}
		if before != nil {
			i.before = w.lookup(before, n)
		}
		switch {
		case i.before != nil && i.before.Base != "", i.now != nil && i.now.Base != "":
			return nil // clients of other classes get another
		case same(i.before, i.now):
			continue // unknown before and now, or unchanged
		case i.now == nil, i.before != nil && now.Gone(n):
			return nil
		}
		out.items = append(out.items, i)
		out.bytes += len(i.now.SotW)
		out.cost += subCost + len(n)
	}
	if out.bytes > limit {
		return nil
	}
	out.join(now.Set().Head(), w.tail)
	return out
}

// join assembles the pieces, small ones as one.
func (a *shared) join(head, tail mem.Buffer) {
	a.pieces = append(make(mem.BufferSlice, 0, len(a.items)+2), head)
	for _, i := range a.items {
		a.pieces = i.now.AppendSotW(a.pieces)
	}
	a.pieces = append(a.pieces, tail)
	if a.bytes = a.pieces.Len(); a.bytes <= maxJoined {
		a.pieces = mem.BufferSlice{mem.SliceBuffer(a.pieces.Materialize())}
	}
}

// size is what the watch counts for it before it is sent.
func (a *shared) size() int {
	if a.first {
		return a.listed
	}
	return a.cost
}

// acceptShared records that the client has the sent response.
func (w *watch) acceptShared() {
	w.size -= w.flies.cost
	w.flies = nil
}

// unfold makes what waits or flies the watch's own, name by name, for all that is
// more than to send it and to take the answer.
func (w *watch) unfold() {
	switch {
	case w.waits != nil:
		a := w.waits
		w.waits = nil
		w.size -= a.size()
		if a.first {
			w.expect(len(w.list.names))
			for _, n := range w.list.names {
				x := w.place()
				x.name, x.named = n, true
				w.add(x)
				w.demand(x)
			}
			return
		}
		for _, i := range a.items {
			w.enqueue(w.own(i, i.before))
		}
	case w.flies != nil:
		a := w.flies
		w.acceptShared()
		for _, i := range a.items {
			x := w.own(i, i.now)
			x.delivery = unanswered
			w.flight = append(w.flight, x)
		}
	}
}

// own adds an item as a sub that was sent last what is given.
func (w *watch) own(i sharedItem, sent *view.Resource) *sub {
	x := &sub{name: i.name, named: true, sent: sent}
	if i.before != nil {
		x.acked = i.before.Steers()
	}
	w.add(x)
	return x
}
