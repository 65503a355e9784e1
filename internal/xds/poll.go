package xds

import (
	"context"
	"fmt"
	"net"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
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
	zone  *localityGroup
	node  rpc.Node
	since time.Time

	account string // that it counts under, "" for none

	seen    time.Time
	heard   bool            // it has shown a version that it was sent
	known   map[string]*sub // all assignments that it was sent
	sent    []*sub          // those of the last answer
	version string          // of the last answer
	sentAt  time.Time
	acked   string
	ackedAt time.Time
}

// pollKey is what tells pollers apart. Node ids are not unique.
type pollKey struct {
	id, cluster, host, url string
	locality               isobar.Locality
	as                     rpc.As // two listeners, or another configuration, may mean other forms by one URL
	names                  *nameList
}

// Answer is what a client that polls gets.
type Answer struct {
	Version   string
	TypeURL   string
	Form      rpc.Form
	Resources []*view.Resource // nil when Unchanged
	Unchanged bool             // the client has this version
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
func (s *Server) poll(ctx context.Context, m *discoveryv3.DiscoveryRequest, method Method, peer string) (*poller, resource.Request, error) {
	r, err := resource.RequestFrom(m, method.Only, s.options.Limits)
	if err != nil {
		return nil, r, err
	}
	s.metrics.requests[r.Kind].Inc()
	node, err := rpc.NodeFrom(r.Node)
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
	as := rpc.As{Form: r.Form} // a resource with a TTL can't get its heartbeats
	if r.Form == rpc.V2 && (method.Form == rpc.V2017 || s.options.Is2017 != nil && s.options.Is2017(node)) {
		as.Form = rpc.V2017
	}
	host, _, err := net.SplitHostPort(peer)
	if err != nil {
		host = peer
	}
	names, err := s.lists.take(r.Names, nil, nil) // polls have a budget of their own
	if err != nil {
		return nil, r, err
	}
	key := pollKey{id: node.ID, cluster: node.Cluster, host: host, url: r.TypeURL, locality: node.Locality, as: as, names: names}
	p, err := s.enter(ctx, key, node)
	if err != nil {
		s.lists.release(names)
	}
	return p, r, err
}

// enter finds or makes the poller of a key, whose list of names it takes over.
func (s *Server) enter(ctx context.Context, key pollKey, node rpc.Node) (*poller, error) {
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
	account := s.accountOf(ctx)
	if err := s.room(z, key, account); err != nil {
		s.mu.Unlock()
		s.leave(z)
		return nil, err
	}
	s.lastID++
	p := &poller{id: s.lastID, key: key, zone: z, node: node, since: now, account: account, seen: now, known: map[string]*sub{}}
	s.pollers[key] = p
	for _, k := range p.keys() {
		z.subscribe(k, nil)
	}
	z.awaitACK(p.keys(), false) // until it says what it has
	s.mu.Unlock()
	return p, nil
}

// keys lists the assignments that a poller asks for.
func (p *poller) keys() []subKey {
	if resource.KindOf(p.key.url) != resource.Endpoints {
		return nil
	}
	out := make([]subKey, len(p.key.names.names))
	for i, n := range p.key.names.names {
		out[i] = subKey{n, p.key.as}
	}
	return out
}

// room counts a new client that polls if there is room for it. The lock is held.
func (s *Server) room(z *localityGroup, key pollKey, account string) error {
	if s.stopped {
		return errStopped
	}
	if n := len(s.pollers); n >= s.options.MaxStreams {
		return fmt.Errorf("%w clients that poll: %d are known", errFull, n)
	}
	return s.polls.take(z, key, account, &s.options)
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
				s.polls.release(p.zone, key, p.account)
				gone = append(gone, p)
			}
		}
	}
	s.mu.Unlock()
	for _, p := range gone {
		if !p.heard {
			p.zone.awaitACK(p.keys(), true)
		}
		for _, k := range p.keys() {
			acked := ""
			if x := p.known[k.name]; x != nil {
				acked = x.acked
			}
			p.zone.unsubscribe(k, acked)
		}
		s.lists.release(p.key.names)
		s.leave(p.zone)
	}
}

// describe tells of a poller as of a stream. Server.mu is held.
func (p *poller) describe() Client {
	kind, _ := resource.ParseURL(p.key.url)
	inSync := p.acked == p.version
	return Client{
		Stream: p.id, Node: p.node.ID, Cluster: p.node.Cluster, Locality: p.node.Locality, Agent: p.node.UserAgent,
		Peer: p.key.host, Variant: formRest, API: p.key.as.Form.String(), Connected: p.since, InSync: inSync,
		Types: []ClientType{{
			Type: kind.String(), Subscribed: len(p.key.names.names), Wildcard: len(p.key.names.names) == 0,
			Sent: p.version, Acked: p.acked, SentAt: p.sentAt, AckedAt: p.ackedAt, Waiting: !inSync, InSync: inSync,
		}},
	}
}
