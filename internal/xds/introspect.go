package xds

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Delivery is how far a resource got with a client.
type Delivery uint8

// How far a resource got.
const (
	NotSent    Delivery = iota // nothing was sent, or that it is gone
	Unanswered                 // sent last; the client has not answered yet
	Accepted
	Rejected
)

// Resource is what a client was told of one resource that it subscribes to.
type Resource struct {
	TypeURL, Name string

	// Sent is what the client was told last; nil = nothing, or that it is gone.
	Sent     *view.Resource
	Delivery Delivery
	Newer    bool      // there is another version than Sent, which waits to be sent
	Absent   bool      // the client was told that there is no such resource
	At       time.Time // when the last response of the type was answered, else when it was sent
	Nack     Nack      // when rejected: the last rejection of the type
}

// Introspected is an open stream that has said who it is, or a client that
// polls.
type Introspected struct {
	Node rpc.Node

	stream *stream    // nil for those that poll
	polled []Resource // what they were told
}

// Resources lists what the client subscribes to, by type in the order in which
// a push sends them, then by name.
func (i *Introspected) Resources() []Resource {
	if i.stream == nil {
		return i.polled
	}
	s := i.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	var out []Resource
	for _, w := range s.watches {
		from := len(out)
		out = introspect(&s.session, w, out)
		slices.SortFunc(out[from:], func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}

// introspect appends the resources of one type; the lock is held.
func introspect(s *session, w *watch, out []Resource) []Resource {
	w.unfold()
	for _, name := range slices.Collect(w.each) { // find and retire change what is there
		x := w.find(s.view, name)
		out = append(out, introspected(s, w, x))
		w.retire(s.view, x) // what was not on its way is forgotten again
	}
	return out
}

func introspected(s *session, w *watch, x *sub) Resource {
	r := Resource{TypeURL: w.url, Name: x.name, Sent: x.sent, At: w.acked.at}
	if x.delivery == unanswered || r.At.IsZero() {
		r.At = w.sent.at
	}
	switch {
	case x.delivery.rejected():
		r.Delivery, r.Nack, r.At = Rejected, w.nack, w.nack.At
	case x.delivery == unanswered:
		r.Delivery = Unanswered
	case x.sent != nil:
		r.Delivery = Accepted
	default:
		// Delta says so; and what a full set leaves out does not exist.
		r.Absent = x.pending == nothingPending && !w.sent.at.IsZero() && (s.delta || w.kind.FullSet())
	}
	r.Newer = x.pending != nothingPending && !same(s.want(w, x), x.sent)
	return r
}

// resources lists what the client asked for last. Server.mu is held.
func (p *poller) resources() []Resource {
	delivery, at := Unanswered, p.sentAt
	if p.acked == p.version {
		delivery, at = Accepted, p.ackedAt
	}
	var out []Resource
	told := map[string]bool{}
	for _, x := range p.sent {
		told[x.name] = true
		out = append(out, Resource{TypeURL: p.key.url, Name: x.name, Sent: x.sent, Delivery: delivery, At: at})
	}
	for _, n := range p.key.names.names {
		if !told[n] {
			out = append(out, Resource{TypeURL: p.key.url, Name: n, Absent: p.version != "", At: at})
		}
	}
	slices.SortFunc(out, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
	return out
}
