package xds

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
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

// service gives the service that clients mean by a name; "" = there is none, and clients
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
