package xds

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Client is one open stream, for display.
type Client struct {
	Stream   uint64          `json:"stream"` // unique in this process
	Node     string          `json:"node"`
	Cluster  string          `json:"cluster"` // the client's own service
	Locality isobar.Locality `json:"locality"`
	Agent    string          `json:"agent"`
	Peer     string          `json:"peer"`
	Variant  string          `json:"variant"` // sotw, delta or rest
	API      string          `json:"api"`     // v3, v2 or 2017: of what it asks for
	// Aggregated says that the stream serves all types. A process has one such
	// stream at most, but may have many for one type; gRPC in some languages has an
	// aggregated one for each target.
	Aggregated bool         `json:"aggregated"`
	GRPC       bool         `json:"grpc"`
	Connected  time.Time    `json:"connected"`
	Types      []ClientType `json:"types"`
	InSync     bool         `json:"in_sync"` // of all types
}

// Polls reports whether the client has no stream, but asks again and again.
func (c *Client) Polls() bool { return c.Variant == apiRest }

// ClientType is how far a client has followed one type of resource.
type ClientType struct {
	Type       string    `json:"type"` // cds, eds, lds, rds or other
	Subscribed int       `json:"subscribed"`
	Names      []string  `json:"names,omitempty"` // sorted; only where they are [MostNamesListed] or fewer, and no wildcard
	Wildcard   bool      `json:"wildcard,omitempty"`
	Sent       string    `json:"sent"`  // version of the last response
	Acked      string    `json:"acked"` // version of the last response that was accepted
	SentAt     time.Time `json:"sent_at,omitzero"`
	AckedAt    time.Time `json:"acked_at,omitzero"`
	Waiting    bool      `json:"waiting"` // the last response is not answered yet
	Rejected   int       `json:"rejected,omitempty"`
	LastNack   *Nack     `json:"last_nack,omitempty"`
	// Missing holds services that are subscribed to and do not exist, sorted, 10 at
	// most; MissingCount says to how many such names there are subscriptions.
	Missing      []string `json:"missing,omitempty"`
	MissingCount int      `json:"missing_count,omitempty"`
	InSync       bool     `json:"in_sync"` // it accepted all resources that it should have
}

// MostNamesListed bounds the names of a [ClientType].
const MostNamesListed = 10

// Nack is a client's rejection of a response.
type Nack struct {
	Version string    `json:"version"`
	Text    string    `json:"text"` // as the client said it, shortened
	At      time.Time `json:"at"`
}

// openStreams lists the open streams, in the order in which they were opened.
func (s *Server) openStreams() []*stream {
	s.mu.Lock()
	streams := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		streams = append(streams, st)
	}
	s.mu.Unlock()
	slices.SortFunc(streams, func(a, b *stream) int { return cmp.Compare(a.id, b.id) })
	return streams
}

// Clients lists the open streams that have said who they are, by stream.
func (s *Server) Clients() []Client {
	out := s.polling()
	for _, st := range s.openStreams() {
		if c, ok := describe(st); ok {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b Client) int { return cmp.Compare(a.Stream, b.Stream) })
	return out
}

func describe(s *stream) (Client, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.group == nil {
		return Client{}, false
	}
	c := Client{
		Stream:    s.id,
		Node:      s.node.ID,
		Cluster:   s.node.Cluster,
		Locality:  s.node.Locality,
		Agent:     s.node.UserAgent,
		Peer:      s.peer,
		Variant:   apiLabel(s.delta),
		Connected: s.connected,
		InSync:    true,

		Aggregated: s.only == "",
		GRPC:       s.node.IsGRPC(),
	}
	var api rpc.APIVersion
	for _, w := range s.watches {
		t := describeType(w)
		t.Missing, t.MissingCount = w.missing(s.view.Set(), maxMissing)
		if w.kind != resource.Other && w.as.API > api {
			api = w.as.API
		}
		c.Types = append(c.Types, t)
		c.InSync = c.InSync && t.InSync
	}
	c.API = api.String()
	return c, true
}

func describeType(w *watch) ClientType {
	t := ClientType{
		Type:       w.kind.String(),
		Wildcard:   w.wildcard,
		Subscribed: w.count(),
		Sent:       w.sent.version,
		Acked:      w.acked.version,
		SentAt:     w.sent.at,
		AckedAt:    w.acked.at,
		Waiting:    w.unacked,
		Rejected:   w.rejects,
		InSync:     w.inSync(),
	}
	if !t.Wildcard && t.Subscribed <= MostNamesListed {
		t.Names = slices.Sorted(w.each)
	}
	if !w.nack.At.IsZero() {
		nack := w.nack
		t.LastNack = &nack
	}
	return t
}

// describe returns a poller as a Client, like a stream.
func (p *poller) describe() Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind, _ := resource.ParseURL(p.key.url)
	inSync := p.acked == p.version
	return Client{
		Stream: p.id, Node: p.node.ID, Cluster: p.node.Cluster, Locality: p.node.Locality, Agent: p.node.UserAgent,
		Peer: p.key.host, Variant: apiRest, API: p.key.as.API.String(), Connected: p.since, InSync: inSync,
		Types: []ClientType{{
			Type: kind.String(), Subscribed: len(p.key.names.names), Wildcard: len(p.key.names.names) == 0,
			Sent: p.version, Acked: p.acked, SentAt: p.sentAt, AckedAt: p.ackedAt, Waiting: !inSync, InSync: inSync,
		}},
	}
}

// polling lists the clients that poll.
func (s *Server) polling() []Client {
	pollers := s.allPollers()
	out := make([]Client, len(pollers))
	for i, p := range pollers {
		out[i] = p.describe()
	}
	return out
}

// allPollers returns the clients that poll, in the order in which they came.
func (s *Server) allPollers() []*poller {
	s.mu.Lock()
	out := slices.Collect(maps.Values(s.pollers))
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b *poller) int { return cmp.Compare(a.id, b.id) })
	return out
}

// Subscribed reports whether a stream of the locality asks for the assignment of
// the service now.
func (s *Server) Subscribed(l isobar.Locality, service string) bool {
	s.mu.Lock()
	g := s.groups[l]
	s.mu.Unlock()
	return g != nil && g.asksFor(service)
}

// Subscriptions lists who asks for which assignment, by locality and service. Services that do
// not exist (yet) are among them, 100 of a locality and 10,000 in all: clients may ask for
// millions, which [Server.MissingIn] counts. It speaks of what was published last, even if that
// is still on its way to the streams: an assignment that is new in it counts as acknowledged by
// nobody until then. It changes nothing.
func (s *Server) Subscriptions() []load.Subscription {
	set := s.published.Load()
	if set == nil {
		return nil
	}
	groups := s.allGroups()
	slices.SortFunc(groups, func(a, b *localityGroup) int { return a.locality.Compare(b.locality) })
	unknown := min(unknownKept, unknownListed/max(1, len(groups)))
	size := 0
	for _, g := range groups {
		size += g.described(unknown)
	}
	out := make([]load.Subscription, 0, size)
	for _, g := range groups {
		out = g.describe(set, unknown, out)
	}
	return out
}

// MissingIn returns the locality with the most subscriptions to assignments of services that do
// not exist, how many these are, and how many there are in all localities. Clients that poll count, too.
func (s *Server) MissingIn() (l isobar.Locality, most, all int) {
	for _, g := range s.allGroups() {
		n := g.missing()
		all += n
		if n > most || n == most && n > 0 && g.locality.Compare(l) < 0 {
			l, most = g.locality, n
		}
	}
	return l, most, all
}

// Introspect returns the open streams that have said who they are, in the order
// in which they were opened, and then the clients that poll. Those that open or
// end meanwhile may be left out.
func (s *Server) Introspect() iter.Seq[Introspected] {
	return func(yield func(Introspected) bool) {
		for _, st := range s.openStreams() {
			if node, ok := st.named(); ok && !yield(Introspected{Node: node, stream: st}) {
				return
			}
		}
		for _, p := range s.allPollers() {
			if !yield(Introspected{Node: p.node, poller: p}) {
				return
			}
		}
	}
}

// Missing lists the services that clients ask for and that do not exist, those
// first that most streams ask for; at most 100. It looks at each stream, so what it
// found holds for 10 seconds, or until the next publication.
func (s *Server) Missing() []MissingService {
	return s.lacking.of(s.published.Load(), time.Now(), func() []MissingService { return findMissing(s.openStreams()) })
}

// Subscribers lists who subscribes to which service, by service and locality. It
// asks of each client whether it is silent, and names one that is. Clients that poll
// are left out. It looks at each stream.
func (s *Server) Subscribers(silent func(Subscriber) bool) []Subscribers {
	set := s.published.Load()
	if set == nil {
		return nil
	}
	count := subscriberCount{set: set, found: map[subKeyOf]*Subscribers{}, lists: map[listIn]*Subscribers{}}
	for _, st := range s.openStreams() {
		count.stream(st, silent)
	}
	return count.result()
}

// StreamsOf returns the streams that subscribe to the assignment of a service, by whatever
// name, as [Client.Stream] has them. It looks at the streams of all localities in which
// any does.
func (s *Server) StreamsOf(service string) map[uint64]bool {
	out, lists := map[uint64]bool{}, map[*nameList]bool{}
	for _, st := range s.openStreams() {
		if asksFor(&st.session, service, lists) {
			out[st.id] = true
		}
	}
	return out
}
