package xds

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/views"
	"github.com/isobar-xds/isobar/internal/wire"
)

// pollLease is how long a client that polls counts as one after it was heard of
// last: a few times what clients wait between two polls.
const pollLease = 5 * time.Minute

// sweepPause is the least time between two searches for leases that ran out.
const sweepPause = 10 * time.Second

// poller is a client that has no stream but asks again and again. It counts as
// a subscriber, so that the plan knows of its locality. Guarded by Server.mu,
// but for what is written once.
type poller struct {
	id    uint64
	key   pollKey
	zone  *zone
	node  wire.Node
	since time.Time

	seen    time.Time
	sent    []*sub // what the last answer held; assignments only
	version string // of the last answer
	sentAt  time.Time
	acked   string
	ackedAt time.Time
}

// pollKey is what tells pollers apart. Node ids are not unique.
type pollKey struct {
	id, cluster, host, url string
	locality               isobar.Locality
	as                     wire.As // two listeners, or another configuration, may mean other forms by one URL
	names                  *nameList
}

// Answer is what a client that polls gets.
type Answer struct {
	Version   string
	TypeURL   string
	Form      wire.Form
	Resources []*views.Resource // nil when Unchanged
	Unchanged bool              // the client has this version
}

// Poll answers a request without a stream. If the client has all that it asks
// for, it waits up to patience for a change. The version of an answer speaks of
// its content, not of the plan; and of the turn, where content grows stale.
func (s *Server) Poll(ctx context.Context, m *discoveryv3.DiscoveryRequest, method Method, peer string, patience time.Duration) (*Answer, error) {
	p, r, err := s.poll(ctx, m, method, peer)
	if err != nil {
		return nil, s.statusOf(err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		view, changed := p.zone.current()
		turn := p.turn(view, time.Now())
		a, err := s.answer(p, &r, view, turn.number)
		if err != nil {
			return nil, s.statusOf(err)
		}
		if !a.Unchanged {
			s.metrics.pushes[r.Kind].Inc()
			return a, nil
		}
		select {
		case <-changed:
		case <-turn.over():
		case <-timer.C:
			return a, nil
		case <-s.stop:
			return nil, s.statusOf(errStopped)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// poll checks a request and finds or enters its client.
func (s *Server) poll(ctx context.Context, m *discoveryv3.DiscoveryRequest, method Method, peer string) (*poller, wire.Request, error) {
	r, err := wire.RequestFrom(m, method.Only, s.options.Limits)
	if err != nil {
		return nil, r, err
	}
	s.metrics.requests[r.Kind].Inc()
	node, err := wire.NodeFrom(r.Node)
	if err != nil {
		return nil, r, err
	}
	if s.options.Admit != nil {
		if err := s.options.Admit(ctx, node); err != nil {
			s.metrics.refused.WithLabelValues(refusedDenied).Inc()
			return nil, r, err
		}
	}
	if err := s.ready(ctx); err != nil {
		return nil, r, err
	}
	as := wire.As{Form: r.Form} // a resource with a TTL can't get its heartbeats
	if r.Form == wire.V2 && (method.Form == wire.V2017 || s.options.Is2017 != nil && s.options.Is2017(node)) {
		as.Form = wire.V2017
	}
	host, _, err := net.SplitHostPort(peer)
	if err != nil {
		host = peer
	}
	names := s.lists.take(r.Names)
	key := pollKey{id: node.ID, cluster: node.Cluster, host: host, url: r.TypeURL, locality: node.Locality, as: as, names: names}
	p, err := s.enter(key, node)
	if err != nil {
		s.lists.release(names)
	}
	return p, r, err
}

// enter finds or makes the poller of a key, whose list of names it takes over.
func (s *Server) enter(key pollKey, node wire.Node) (*poller, error) {
	now := time.Now()
	s.sweep(now)
	if p := s.polled(key, now); p != nil {
		s.lists.release(key.names) // it holds the list already
		return p, nil
	}
	z, err := s.join(key.locality)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if other := s.pollers[key]; other != nil { // made meanwhile
		s.mu.Unlock()
		s.leave(z)
		s.lists.release(key.names)
		return other, nil
	}
	if err := s.room(z, key); err != nil {
		s.mu.Unlock()
		s.leave(z)
		return nil, err
	}
	s.lastID++
	p := &poller{id: s.lastID, key: key, zone: z, node: node, since: now, seen: now}
	s.pollers[key] = p
	s.mu.Unlock()
	if wire.KindOf(key.url) == wire.Endpoints {
		for _, n := range key.names.names {
			z.subscribe(subKey{n, key.as})
		}
	}
	return p, nil
}

// room counts a new client that polls if there is room for it. The lock is held.
func (s *Server) room(z *zone, key pollKey) error {
	if s.stopped {
		return errStopped
	}
	if n := len(s.pollers); n >= s.options.MaxStreams {
		return fmt.Errorf("%w clients that poll: %d are known", errFull, n)
	}
	return s.polls.take(z, key, &s.options)
}

func (s *Server) polled(key pollKey, now time.Time) *poller {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pollers[key]
	if p != nil {
		p.seen = now
	}
	return p
}

// sweep forgets pollers that have not been heard of for long.
func (s *Server) sweep(now time.Time) {
	s.mu.Lock()
	var gone []*poller
	if now.Sub(s.swept) >= sweepPause {
		s.swept = now
		for key, p := range s.pollers {
			if now.Sub(p.seen) > pollLease {
				delete(s.pollers, key)
				s.polls.release(p.zone, key)
				gone = append(gone, p)
			}
		}
	}
	s.mu.Unlock()
	for _, p := range gone {
		if wire.KindOf(p.key.url) == wire.Endpoints {
			acked := map[string]string{}
			for _, x := range p.sent {
				acked[x.name] = x.acked
			}
			for _, n := range p.key.names.names {
				p.zone.unsubscribe(subKey{n, p.key.as}, acked[n])
			}
		}
		s.lists.release(p.key.names)
		s.leave(p.zone)
	}
}

// answer says what a view has for a poller, and takes the version that the
// request shows as what the client accepted.
func (s *Server) answer(p *poller, r *wire.Request, view *views.View, turn int64) (*Answer, error) {
	a := &Answer{TypeURL: r.TypeURL, Form: p.key.as.Form}
	names := p.key.names.names
	if r.Kind == wire.Cluster && (len(names) == 0 || p.key.names.has(wire.Wildcard)) {
		names = view.Set().Names()
	}
	h, size := sha256.New(), 0
	if turn != 0 {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(turn))) //nolint:gosec // only to be another one
	}
	for _, n := range names {
		resource := view.LookupFor(p.node.Cluster, p.key.as, r.Kind, n)
		if resource == nil && r.Kind == wire.Endpoints && view.Gone(n) && r.Version != "" {
			resource = view.Empty(p.key.as, n) // it may have had it
		}
		if resource != nil {
			if size += len(resource.Body); size > s.options.PollSize {
				return nil, fmt.Errorf("%w resources in one answer: they take more than %d bytes; ask for fewer names at once", errFull, s.options.PollSize)
			}
			a.Resources = append(a.Resources, resource)
			h.Write([]byte(resource.Version))
		}
	}
	a.Version = hex.EncodeToString(h.Sum(nil)[:8])
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p.accept(r, now)
	if p.version != a.Version {
		p.version, p.sentAt = a.Version, now
		p.sent = p.carried(a.Resources)
	}
	p.accept(r, now) // also of what it has from a server before this one
	if a.Version == r.Version {
		a.Resources, a.Unchanged = nil, true
	}
	return a, nil
}

// accept takes note that the client has the last answer, if the request shows its
// version. Server.mu is held.
func (p *poller) accept(r *wire.Request, now time.Time) {
	if p.version == "" || r.Version != p.version || p.acked == p.version {
		return
	}
	p.acked, p.ackedAt = p.version, now
	if r.Kind == wire.Endpoints {
		p.zone.acknowledge(p.key.as, p.sent, now)
	}
}

// carried notes what an answer holds, with what was acknowledged before.
func (p *poller) carried(resources []*views.Resource) []*sub {
	acked := map[string]string{}
	for _, x := range p.sent {
		acked[x.name] = x.acked
	}
	out := make([]*sub, len(resources))
	for i, r := range resources {
		out[i] = &sub{name: r.Name, sent: r, acked: acked[r.Name]}
	}
	return out
}

// describe tells of a poller as of a stream. Server.mu is held.
func (p *poller) describe() Client {
	kind, _ := wire.ParseURL(p.key.url)
	inSync := p.acked == p.version
	return Client{
		Stream: p.id, Node: p.node.ID, Cluster: p.node.Cluster, Locality: p.node.Locality, Agent: p.node.UserAgent,
		Peer: p.key.host, Form: formRest, API: p.key.as.Form.String(), Connected: p.since, InSync: inSync,
		Types: []ClientType{{
			Type: kind.String(), Subscribed: len(p.key.names.names), Wildcard: len(p.key.names.names) == 0,
			Sent: p.version, Acked: p.acked, SentAt: p.sentAt, AckedAt: p.ackedAt, Waiting: !inSync, InSync: inSync,
		}},
	}
}
