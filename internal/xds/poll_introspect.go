package xds

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// introspectPolls tells of the clients that poll, in the order in which they
// came.
func (s *Server) introspectPolls() []Introspected {
	s.sweep(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	pollers := make([]*poller, 0, len(s.pollers))
	for _, p := range s.pollers {
		pollers = append(pollers, p)
	}
	slices.SortFunc(pollers, func(a, b *poller) int { return cmp.Compare(a.id, b.id) })
	out := make([]Introspected, len(pollers))
	for i, p := range pollers {
		out[i] = Introspected{Node: p.node, polled: p.resources()}
	}
	return out
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

// polling lists the clients that poll.
func (s *Server) polling() []Client {
	s.sweep(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Client, 0, len(s.pollers))
	for _, p := range s.pollers {
		out = append(out, p.describe())
	}
	return slices.Clip(out)
}
