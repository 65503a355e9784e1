package xds

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// watch is what one stream subscribes to of one type, and how far the client
// has followed. Guarded by its stream's lock.
type watch struct {
	kind resource.Kind
	as   rpc.As // how the client wants its resources
	// client is the client service, on which it may depend what is dropped.
	client string
	url    string
	tail   mem.Buffer // end of every response

	wildcard bool // all of the type, too
	named    bool // a request has named resources: an empty list now means none
	// list is what is subscribed by name; nil on delta streams, which name
	// resources one by one.
	list *nameList
	// subs holds what is subscribed, by name; but of those in list only the
	// ones on their way: the client has the others as the stream's view has
	// them, and has acknowledged that.
	subs  map[string]*sub
	size  int   // of what is in subs, in bytes, estimated
	spare []sub // for those that are added next
	// waits is a response that the stream shares with others and that is to be sent,
	// flies one that was sent and is not answered yet. At most one of them is there,
	// and then nothing in subs, queue or flight.
	waits, flies *shared

	// What the client has to be told; see next.
	owed  bool   // an answer is due even if it says nothing
	queue []*sub // may have changed; each at most once
	fresh bool   // something was subscribed since the stream's view was set, or see unlisted
	// unlisted is the seq of the newest view that may not list a change of what
	// is subscribed: it was being made, or there already, when that began.
	unlisted uint64
	// otherwise tells that a name is, or was, another than that of its service.
	otherwise bool
	// answersUnknown is for Envoys, of which none would finish its start without an
	// answer for each assignment: a name of no service is one without endpoints.
	// It also takes endpoints away from those that come back after the service left.
	answersUnknown bool
	// returns holds the marks of resources that the client was told, or could see,
	// not to be there, by name; nil for clients that need none (resource.ReturnMark).
	returns map[string]uint16

	// The last response.
	nonce   nonce
	unacked bool
	flight  []*sub // what it carried
	sent    stamp
	acked   stamp
	nack    Nack
	rejects int  // subs whose content the client rejected
	large   bool // subs has had many entries
}

// stamp is a version and when it went.
type stamp struct {
	version string
	at      time.Time
}

// sub is one resource of a watch.
type sub struct {
	name     string
	sent     *view.Resource // what the client was told last; nil = nothing, or that it is gone
	acked    string         // version that the client acknowledged; assignments only
	named    bool           // subscribed by name, not only by the wildcard
	renewed  bool           // sent on this stream, other than the client had it; clusters only
	pending  pending
	delivery delivery
}

// pending is the part of a resource that has yet to be sent to the client. A resource with
// anything pending is in the queue of its watch.
type pending uint8

const (
	nothingPending   pending = iota
	comparePending           // the resource is sent if it is not what the client was sent last
	heartbeatPending         // the same, and else the client is told that what it has still holds
	resourcePending          // the resource is sent even if it did not change
)

// delivery is how the client answered the last response that carried a resource.
type delivery uint8

const (
	settled          delivery = iota // the client accepted it, or it was never sent
	unanswered                       // it is in the last response, which the client has yet to answer
	rejectedAlone                    // the response carried nothing else
	rejectedTogether                 // with others: the client may have rejected the response because of those
)

func (d delivery) rejected() bool { return d == rejectedAlone || d == rejectedTogether }

// enqueue marks a resource as one that may have to be sent.
func (w *watch) enqueue(x *sub) { w.await(x, comparePending) }

// await queues a resource, unless as much or more of it is pending already.
func (w *watch) await(x *sub, p pending) {
	if x.pending == nothingPending {
		w.queue = append(w.queue, x)
	}
	x.pending = max(x.pending, p)
}

// keep makes left, the beginning of the queue, all that remains of it.
func (w *watch) keep(left []*sub) {
	if len(left) == 0 && cap(left) > smallMap {
		w.queue = nil
		return
	}
	clear(w.queue[len(left):])
	w.queue = left
}

// demand marks a resource as one that has to be answered.
func (w *watch) demand(x *sub) { w.await(x, resourcePending) }

// prune keeps names that came and went from piling up while nothing may be
// sent.
func (w *watch) prune() {
	if len(w.queue) > 2*len(w.subs)+64 {
		w.queue = slices.DeleteFunc(w.queue, func(x *sub) bool { return !w.live(x) })
	}
}

// clear forgets that the client rejected a resource.
func (w *watch) clear(x *sub) {
	if x.delivery.rejected() {
		x.delivery = settled
		w.rejects--
	}
}

// live reports whether a resource is still subscribed.
func (w *watch) live(x *sub) bool { return w.subs[x.name] == x }

// lists reports whether a name stands in the list.
func (w *watch) lists(name string) bool {
	return w.list != nil && (name != resource.Wildcard || !w.kind.FullSet()) && w.list.has(name)
}

// count returns how many resources are subscribed by name.
func (w *watch) count() int {
	if w.list != nil {
		if n := len(w.list.names); !w.kind.FullSet() || !w.list.has(resource.Wildcard) {
			return n
		}
		return len(w.list.names) - 1
	}
	n := 0
	for _, x := range w.subs {
		if x.named {
			n++
		}
	}
	return n
}

// each gives every name that is subscribed, in no order.
func (w *watch) each(yield func(string) bool) {
	for n := range w.subs {
		if !yield(n) {
			return
		}
	}
	if w.list == nil {
		return
	}
	for _, n := range w.list.names {
		if w.subs[n] == nil && w.lists(n) && !yield(n) {
			return
		}
	}
}

// find returns a subscribed resource; nil for others. What is not on its way
// begins to be: it is as the view that the stream has followed says.
func (w *watch) find(view *view.View, name string) *sub {
	w.unfold()
	if x := w.subs[name]; x != nil {
		return x
	}
	if !w.lists(name) {
		return nil
	}
	x := &sub{name: name, named: true, sent: w.lookup(view, name)}
	if w.kind == resource.Endpoints && x.sent != nil {
		x.acked = x.sent.Steers()
	}
	w.add(x)
	return x
}

func (w *watch) add(x *sub) {
	if w.subs == nil {
		w.subs = map[string]*sub{}
	}
	w.subs[x.name] = x
	w.size += x.size()
	w.large = w.large || len(w.subs) > smallMap
}

// expect allocates n resources at once: a client that never answers keeps those of the first
// response, and as one object they cost the garbage collector less than as many.
func (w *watch) expect(n int) {
	w.subs, w.spare, w.large = make(map[string]*sub, n), make([]sub, n), n > smallMap
}

// place returns the memory of a resource.
func (w *watch) place() *sub {
	if len(w.spare) == 0 {
		return &sub{}
	}
	x := &w.spare[0]
	w.spare = w.spare[1:]
	return x
}

func (w *watch) drop(x *sub) {
	delete(w.subs, x.name)
	w.size -= x.size()
}

// smallMap is how many entries a map may have had and be kept when it is empty.
const smallMap = 8

// retire drops what is known of a resource that the client has, and has
// acknowledged, as the view says.
func (w *watch) retire(view *view.View, x *sub) {
	if x.pending != nothingPending || x.delivery != settled || !x.named || !w.live(x) || !w.lists(x.name) {
		return
	}
	if !same(x.sent, w.lookup(view, x.name)) {
		return
	}
	if w.kind == resource.Endpoints && x.sent != nil && x.acked != x.sent.Steers() {
		return
	}
	w.drop(x)
	if w.large && len(w.subs) == 0 {
		w.subs, w.large = nil, false
	}
}

// covers reports whether the wildcard extends to a name. API listeners are only
// for those who ask by name: Envoy takes them from its bootstrap alone.
func (w *watch) covers(view *view.View, name string) bool {
	return w.wildcard && w.kind == resource.Cluster && view.Set().Has(name) && w.lookup(view, name) != nil
}

// lookup returns a resource as the client wants it; nil when there is none.
func (w *watch) lookup(view *view.View, name string) *view.Resource {
	as := w.as
	as.Mark = w.returns[name]
	r := view.LookupFor(w.client, as, w.kind, name)
	if r == nil && w.answersUnknown && name != "" && name != resource.Wildcard && view.Gone(name) {
		return view.Empty(w.as, name)
	}
	return r
}

// isMissing reports whether a subscribed name is that of no service, nor of the
// listener of a gRPC server. Services whose endpoints are not known yet exist.
func (w *watch) isMissing(set *view.Set, name string) bool {
	return w.kind != resource.Other && name != "" && name != resource.Wildcard && !set.Serves(w.kind, name)
}

// missing lists the services that are subscribed to and do not exist, sorted: at
// most so many, and how many there are. A name that stands for no service at all
// is listed itself.
func (w *watch) missing(set *view.Set, most int) (names []string, count int) {
	for name := range w.each {
		if !w.isMissing(set, name) {
			continue
		}
		if count++; len(names) < most {
			names = append(names, cmp.Or(resource.ServiceOf(w.kind, name), name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), count
}

// absent notes that a response says a resource is not there, so that what
// returns differs from what was. One mark is enough until the client has the
// resource again.
func (w *watch) absent(x *sub, version string) {
	if w.returns != nil && (x.sent != nil || w.returns[x.name] == 0) {
		w.returns[x.name] = resource.ReturnMark(version)
	}
}

// pending reports whether there is something that could be sent now.
func (w *watch) pending() bool { return !w.unacked && (w.owed || w.waits != nil || len(w.queue) > 0) }

// inSync reports whether the client has accepted everything that it should have.
func (w *watch) inSync() bool {
	return !w.unacked && !w.owed && w.waits == nil && len(w.queue) == 0 && w.rejects == 0
}

// accepted reports whether a request accepts the last response of the watch.
func (w *watch) accepted(version, url, nonce []byte) bool {
	return string(url) == w.url && w.nonce.is(nonce) && (w.as.API != rpc.V2017 || string(version) == w.sent.version)
}

// key returns what a watch of assignments means by a name.
func (w *watch) key(name string) subKey { return subKey{name, w.as} }

// leastCost is what a further name of a watch costs at least.
func (w *watch) leastCost() int {
	if w.kind == resource.Endpoints {
		return wantCost
	}
	return headCost
}

// unknownOf counts the names that a watch has not subscribed to, and what their subs cost.
func (w *watch) unknownOf(names []string) (n, bytes int) {
	for _, name := range names {
		if w.subs[name] == nil {
			n++
			bytes += subSize(name)
		}
	}
	return n, bytes
}

// same reports whether two resources are the same content; nil is none.
func same(a, b *view.Resource) bool {
	return a == b || (a != nil && b != nil && a.Version == b.Version)
}

// nonceSize is how many characters a nonce has; 5 bits each, so that it can't be
// guessed. See offer.
const nonceSize = 13

// nonce is that of a response, as the field that ends it, so that it needs no
// memory of its own.
type nonce struct {
	encoded [2 + nonceSize]byte // tag, length, characters; the zero value is none
}

// draw makes it a new one.
func (n *nonce) draw() {
	const digits = "0123456789abcdefghijklmnopqrstuv"
	var characters [nonceSize]byte
	v := rand.Uint64() //nolint:gosec // seeded by the system; guards no secret
	for i := range characters {
		characters[i] = digits[v&31]
		v >>= 5
	}
	resource.AppendNonce(n.encoded[:0], string(characters[:]))
}

func (n *nonce) is(answered []byte) bool {
	return n.encoded[0] != 0 && string(answered) == string(n.encoded[2:])
}

func (n *nonce) says(answered string) bool {
	return n.encoded[0] != 0 && answered == string(n.encoded[2:])
}
