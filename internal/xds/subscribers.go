package xds

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Subscriber is a client with open streams.
type Subscriber struct {
	Node     string
	Locality isobar.Locality
	Peer     string // its address
}

// Subscribers are the streams of a locality that subscribe to the assignment of a
// service that exists.
type Subscribers struct {
	Service  string
	Locality isobar.Locality
	Streams  int
	Since    time.Time // when the oldest of them was opened
	Silent   int       // of Streams, those whose client is silent
	Example  Subscriber
	// IgnoreORCA counts those of Streams whose client ignores the utilization that endpoints
	// report, and Agent is the user agent of one of them.
	IgnoreORCA int
	Agent      string
}

// asksFor reports whether a client subscribes to the assignment of a service. lists
// remembers the lists of names that have it, and those that don't.
func asksFor(s *session, service string, lists map[*nameList]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.group == nil || s.view == nil || !s.group.asksFor(service) {
		return false
	}
	set := s.view.Set()
	is := func(name string) bool { return set.ServiceOf(name) == service }
	for _, w := range s.watches {
		if w.kind != resource.Endpoints {
			continue
		}
		for name := range w.subs {
			if is(name) {
				return true
			}
		}
		if w.list == nil {
			continue
		}
		has, known := lists[w.list]
		if !known {
			has = slices.ContainsFunc(w.list.names, is)
			lists[w.list] = has
		}
		if has {
			return true
		}
	}
	return false
}

type subKeyOf struct {
	name     string
	locality isobar.Locality
}

// listIn is a list that streams of a locality share: it is looked into once.
type listIn struct {
	list     *nameList
	locality isobar.Locality
}

type subscriberCount struct {
	set   *view.Set
	found map[subKeyOf]*Subscribers
	lists map[listIn]*Subscribers
}

func (c *subscriberCount) stream(s *stream, silent func(Subscriber) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.group == nil {
		return
	}
	who := Subscriber{Node: s.node.ID, Locality: s.node.Locality, Peer: s.peer}
	one := Subscribers{Locality: who.Locality, Streams: 1, Since: s.connected}
	if silent(who) {
		one.Silent, one.Example = 1, who
	}
	if s.node.IgnoresORCA() {
		one.IgnoreORCA, one.Agent = 1, s.node.UserAgent
	}
	for _, w := range s.watches {
		if w.kind != resource.Endpoints {
			continue
		}
		if w.list != nil && len(w.subs) == 0 && w.count() == len(w.list.names) {
			addSubscribers(c.lists, listIn{w.list, who.Locality}, &one)
			continue
		}
		for name := range w.each {
			if c.service(name) == "" {
				continue
			}
			addSubscribers(c.found, subKeyOf{name, who.Locality}, &one)
		}
	}
}

// service returns the service that clients mean by a name; "" = there is none, and clients
// may have millions of such names.
func (c *subscriberCount) service(name string) string {
	if service := c.set.ServiceOf(name); c.set.Has(service) {
		return service
	}
	return ""
}

// result joins lists and names.
func (c *subscriberCount) result() []Subscribers {
	for k, n := range c.lists {
		for _, name := range k.list.names {
			if c.service(name) == "" {
				continue
			}
			addSubscribers(c.found, subKeyOf{name, k.locality}, n)
		}
	}
	out := make([]Subscribers, 0, len(c.found))
	for k, n := range c.found {
		n.Service = c.service(k.name)
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b Subscribers) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), a.Locality.Compare(b.Locality))
	})
	return out
}

func addSubscribers[K comparable](to map[K]*Subscribers, key K, n *Subscribers) {
	have := to[key]
	if have == nil {
		copied := *n
		to[key] = &copied
		return
	}
	have.Streams += n.Streams
	if n.Since.Before(have.Since) {
		have.Since = n.Since
	}
	if have.Silent == 0 {
		have.Example = n.Example
	}
	have.Silent += n.Silent
	if have.IgnoreORCA == 0 {
		have.Agent = n.Agent
	}
	have.IgnoreORCA += n.IgnoreORCA
}

// Delivery is how far a resource got with a client.
type Delivery uint8

// How far a resource got.
const (
	NotSent    Delivery = iota // nothing was sent, or that it is gone
	Unanswered                 // sent last; the client has not answered yet
	Accepted
	Rejected
)

// Resource is a client's state of one resource that it subscribes to.
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

	stream *stream // nil for those that poll
	poller *poller
}

// Resources lists what the client subscribes to, by type in the order in which
// a push sends them, then by name.
func (i *Introspected) Resources() []Resource {
	if i.stream == nil {
		return i.poller.resources()
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

// resources lists what the client asked for last.
func (p *poller) resources() []Resource {
	p.mu.Lock()
	defer p.mu.Unlock()
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
