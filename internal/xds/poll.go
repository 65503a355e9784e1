package xds

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"net"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// pollLease is how long a client that polls counts as one after it was heard of
// last: a few times what clients wait between two polls.
const pollLease = 5 * time.Minute

// sweepPause is the time between two searches for leases that ran out.
const sweepPause = 10 * time.Second

// poller is a client that has no stream but asks again and again. It counts as
// a subscriber, so that the plan knows of its locality. What is not written once
// is guarded by Server.mu or mu.
type poller struct {
	id    uint64
	key   pollKey
	group *localityGroup
	node  rpc.Node
	since time.Time
	ready chan struct{} // closed when it is subscribed to what it asks for

	account string // that it counts under, "" for none
	emptied int    // bytes that count for assignments without endpoints; guarded by Server.mu

	seen time.Time // guarded by Server.mu

	// mu guards what follows. It is held while each name is looked at, so Server.mu is not
	// held when it is taken.
	mu      sync.Mutex
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
	as                     rpc.As // two listeners, or another configuration, may mean other API versions by one URL
	names                  *nameList
}

// Answer is what a client that polls gets.
type Answer struct {
	Version   string
	TypeURL   string
	API       rpc.APIVersion
	Resources []*view.Resource // nil when Unchanged
	Unchanged bool             // the client has this version
}

// RequestReader reads a request. Afterwards it keeps nothing of what it has read.
type RequestReader func() (*discoveryv3.DiscoveryRequest, error)

// Poll answers a request without a stream. If the client has all that it asks for, it waits up to
// patience for a change. The version of an answer identifies its content, not the plan; and the
// turn, if content grows stale. The request is read when the limits permit one more; an error of
// that is returned as it is.
func (s *Server) Poll(ctx context.Context, read RequestReader, method Method, peer string, patience time.Duration) (*Answer, error) {
	var p *poller
	var r resource.Request
	var malformed error
	if err := s.handling.In(ctx, func() (err error) {
		var m *discoveryv3.DiscoveryRequest
		if m, malformed = read(); malformed == nil {
			p, r, err = s.poll(ctx, m, method, peer)
		}
		return err
	}); err != nil {
		return nil, s.statusOf(err)
	}
	if malformed != nil {
		return nil, malformed
	}
	r.Names = nil // those of the poller are in the budget of polls
	rpc.Keeps(ctx, 0)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		view, changed := p.group.current()
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

// Turns are those in which a request is decoded and answered by Fetch.
func (s *Server) Turns() rpc.Turns { return s.handling }

// Fetch answers one request over gRPC, at once and in full, and clears it. It is called in turn.
func (s *Server) Fetch(ctx context.Context, m *discoveryv3.DiscoveryRequest, method Method) (*rpc.Frame, error) {
	a, err := s.fetch(ctx, m, method)
	if err != nil {
		return nil, s.statusOf(err)
	}
	pieces := mem.BufferSlice{mem.SliceBuffer(resource.ResponseHead(a.Version))}
	for _, r := range a.Resources {
		pieces = r.AppendSotW(pieces)
	}
	kind, _ := resource.ParseURL(a.TypeURL)
	var tail mem.Buffer
	if kind == resource.Other {
		tail = mem.SliceBuffer(resource.ResponseTail(a.TypeURL, s.options.Identifier, false))
	} else {
		tail = s.tails.of(false, a.API, kind)
	}
	return &rpc.Frame{Pieces: append(pieces, tail, mem.SliceBuffer(resource.AppendNonce(nil, a.Version)))}, nil
}

// fetch returns what there is for a request. It is called in turn.
func (s *Server) fetch(ctx context.Context, m *discoveryv3.DiscoveryRequest, method Method) (*Answer, error) {
	p, r, err := s.poll(ctx, m, method, rpc.PeerAddress(ctx))
	if err != nil {
		return nil, err
	}
	view, _ := p.group.current()
	answer := func() (*Answer, error) { return s.answer(p, &r, view, p.turn(view, time.Now()).number) }
	a, err := answer()
	if err == nil && a.Unchanged { // which gRPC has no way to say
		r.Version = ""
		a, err = answer()
	}
	if err == nil {
		s.metrics.pushes[r.Kind].Inc()
	}
	return a, err
}

// poll checks a request and finds or enters its client. It is called in turn, and clears
// the message: while it waits, only what the client asks for is kept.
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
	r.Node = nil
	m.Reset()
	rpc.Keeps(ctx, r.Size())
	if s.options.Place != nil && node.Machine != "" {
		_ = s.handling.Out(func() error {
			s.options.Place(ctx, peer, &node)
			return nil
		})
	}
	if s.options.Admit != nil {
		if err := s.options.Admit(ctx, node); err != nil {
			s.metrics.refused.WithLabelValues(refusedDenied).Inc()
			return nil, r, err
		}
	}
	if s.published.Load() == nil {
		if err := s.handling.Out(func() error { return s.ready(ctx) }); err != nil {
			return nil, r, err
		}
	}
	as := rpc.As{API: r.API} // a resource with a TTL can't get its heartbeats
	if r.API == rpc.V2 && (method.API == rpc.V2017 || s.options.Is2017 != nil && s.options.Is2017(node)) {
		as.API = rpc.V2017
	}
	host, _, err := net.SplitHostPort(peer)
	if err != nil {
		host = peer
	}
	account := s.accountOf(ctx)
	names, err := s.lists.take(r.Names, nil, func() error { return s.listQuota(r.Names, account) }) // polls have a budget of their own
	if err != nil {
		return nil, r, err
	}
	key := pollKey{id: node.ID, cluster: node.Cluster, host: host, url: r.TypeURL, locality: node.Locality, as: as, names: names}
	p, err := s.enter(key, node, account)
	if err != nil {
		s.lists.release(names)
		return p, r, err
	}
	if s.options.Returns != nil && r.Version != "" && !p.answered() {
		if err = s.options.Returns(); err == nil {
			p.group.update(s.published.Load()) // publishing may not have reached the group yet
		}
	}
	return p, r, err
}

// answered reports whether a client that polls was sent anything by this process.
func (p *poller) answered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.version != ""
}

// enter finds or makes the poller of a key, whose list of names it takes over.
func (s *Server) enter(key pollKey, node rpc.Node, account string) (*poller, error) {
	now := time.Now()
	if p := s.polled(key, now); p != nil {
		s.lists.release(key.names) // it holds the list already
		<-p.ready
		return p, nil
	}
	g, err := s.join(key.locality)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if other := s.pollers[key]; other != nil { // made meanwhile
		s.mu.Unlock()
		s.leave(g)
		s.lists.release(key.names)
		<-other.ready
		return other, nil
	}
	if err := s.admitPoller(g, key, account); err != nil {
		s.mu.Unlock()
		s.leave(g)
		return nil, err
	}
	s.lastID++
	p := &poller{id: s.lastID, key: key, group: g, node: node, since: now, ready: make(chan struct{}), account: account, seen: now, known: map[string]*sub{}}
	s.pollers[key] = p
	if !s.sweeping {
		s.sweeping = true
		s.work.Go(s.sweeper)
	}
	s.mu.Unlock()
	p.subscribe() // without the lock: it takes a while for many names
	return p, nil
}

// subscribe subscribes a new poller to what it asks for.
func (p *poller) subscribe() {
	defer close(p.ready)
	keys := p.keys()
	for _, k := range keys {
		p.group.subscribe(k, nil)
	}
	p.group.awaitACK(keys, false) // until it says what it has
}

// unsubscribe is the counterpart of subscribe.
func (p *poller) unsubscribe() {
	<-p.ready
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := p.keys()
	if !p.heard {
		p.group.awaitACK(keys, true)
	}
	for _, k := range keys {
		acked := ""
		if x := p.known[k.name]; x != nil {
			acked = x.acked
		}
		p.group.unsubscribe(k, acked)
	}
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

// admitPoller counts a new client that polls, if the quotas allow it. s.mu is held.
func (s *Server) admitPoller(g *localityGroup, key pollKey, account string) error {
	if s.stopped {
		return errStopped
	}
	if n := len(s.pollers); n >= s.options.MaxStreams {
		return fmt.Errorf("%w clients that poll: %d are known", errFull, n)
	}
	return s.polls.take(g, key, account, &s.options)
}

// listQuota reports whether a client may poll for new names within its quota, before a list of
// them is made.
func (s *Server) listQuota(names []string, account string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polls.remember(len(names)*(sentCost+nameCost), account, &s.options)
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

// sweeper forgets pollers whose leases run out, as long as the server runs.
func (s *Server) sweeper() {
	ticker := time.NewTicker(sweepPause)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-ticker.C:
			s.sweep(now)
		}
	}
}

// sweep forgets pollers that have not been heard of for long.
func (s *Server) sweep(now time.Time) {
	s.mu.Lock()
	var gone []*poller
	for key, p := range s.pollers {
		if now.Sub(p.seen) > pollLease {
			delete(s.pollers, key)
			s.polls.add(-p.emptied, s.polls.accounts[p.account])
			s.polls.release(p.group, key, p.account)
			gone = append(gone, p)
		}
	}
	s.mu.Unlock()
	for _, p := range gone {
		p.unsubscribe()
		s.lists.release(p.key.names)
		s.leave(p.group)
	}
}

// answer says what a view has for a poller, and takes the version that the
// request shows as what the client accepted.
func (s *Server) answer(p *poller, r *resource.Request, view *view.View, turn int64) (*Answer, error) {
	a := &Answer{TypeURL: r.TypeURL, API: p.key.as.API}
	names := p.key.names.names
	if r.Kind == resource.Cluster && (len(names) == 0 || p.key.names.has(resource.Wildcard)) {
		names = view.Set().Names()
	}
	h, size := sha256.New(), 0
	if turn != 0 {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(turn))) //nolint:gosec // only to be another one
	}
	gone := sync.OnceValues(func() (map[string]bool, error) { return s.gone(p, r, view) })
	for _, n := range names {
		found := view.LookupFor(p.node.Cluster, p.key.as, r.Kind, n)
		if found == nil && r.Version != "" && r.Kind != resource.Other && s.holds.Load() { // the client may have it from another server
			a.Version, a.Resources, a.Unchanged = r.Version, nil, true
			return a, nil
		}
		if found == nil && r.Kind == resource.Endpoints {
			all, err := gone()
			if err != nil {
				return nil, err
			}
			if all[n] {
				found = view.Empty(p.key.as, n)
			}
		}
		if found != nil {
			if size += len(found.Body); size > s.options.PollSize {
				return nil, fmt.Errorf("%w resources in one answer: they take more than %d bytes; ask for fewer names at once", errFull, s.options.PollSize)
			}
			a.Resources = append(a.Resources, found)
			h.Write([]byte(found.Version))
		}
	}
	a.Version = polledVersion(h)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accept(r, now)
	if p.version != a.Version {
		p.version, p.sentAt = a.Version, now
		if r.Kind == resource.Endpoints {
			p.sent = p.carried(a.Resources)
		}
	}
	p.accept(r, now) // also of what it has from a server before this one
	if a.Version == r.Version {
		a.Resources, a.Unchanged = nil, true
	}
	return a, nil
}

// nothingPolled is the version of an answer that holds nothing.
var nothingPolled = polledVersion(sha256.New())

func polledVersion(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)[:8]) }

// gone names the services that do not exist of which the client may have something. It gets their
// assignments without endpoints, which count before they are made.
func (s *Server) gone(p *poller, r *resource.Request, view *view.View) (map[string]bool, error) {
	out := p.had(r)
	maps.DeleteFunc(out, func(name string, _ bool) bool { return !view.Gone(name) })
	more := len(out) * emptyCost
	s.mu.Lock()
	defer s.mu.Unlock()
	if more -= p.emptied; more <= 0 {
		return out, nil
	}
	if err := s.polls.remember(more, p.account, &s.options); err != nil {
		return nil, err
	}
	s.polls.add(more, s.polls.accounts[p.account])
	p.emptied += more
	return out, nil
}

// had names what the client may have something of, by the version that it shows:
// with the last one it has what it was ever sent; with one of another server it
// may have anything.
func (p *poller) had(r *resource.Request) map[string]bool {
	out := map[string]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.Version {
	case "", nothingPolled:
	case p.version:
		for name := range p.known {
			out[name] = true
		}
	default:
		for _, name := range p.key.names.names {
			out[name] = true
		}
	}
	return out
}

// accept records that the client has the last answer, if the request shows its version. p.mu
// is held.
func (p *poller) accept(r *resource.Request, now time.Time) {
	if p.version == "" || r.Version != p.version {
		return
	}
	if r.Kind == resource.Endpoints && !p.heard {
		p.heard = true
		p.group.awaitACK(p.keys(), true)
	}
	if p.acked == p.version {
		return
	}
	p.acked, p.ackedAt = p.version, now
	if r.Kind == resource.Endpoints {
		p.group.acknowledge(p.key.as, p.sent, now)
	}
}

// carried notes what an answer holds. What it leaves out stays known: the client
// keeps that, and has acknowledged it.
func (p *poller) carried(resources []*view.Resource) []*sub {
	out := make([]*sub, len(resources))
	for i, r := range resources {
		x := p.known[r.Name]
		if x == nil {
			x = &sub{name: r.Name}
			p.known[r.Name] = x
		}
		x.sent, out[i] = r, x
	}
	return out
}

// turn is a part of the life of assignments that grow stale. What a client that
// polls got in one turn it gets again in the next, even unchanged: an answer
// that nothing has changed does not keep its endpoints from growing stale. Turns
// are those of the clock, not of the client: several clients may look like one.
type turn struct {
	number int64         // 0 = nothing grows stale
	left   time.Duration // of the turn
}

// turn returns the turn of what a poller asks for: a third of the shortest life.
func (p *poller) turn(view *view.View, now time.Time) turn {
	all := view.Set().Lifetimes()
	if len(all) == 0 || p.key.as.API == rpc.V2017 || resource.KindOf(p.key.url) != resource.Endpoints {
		return turn{}
	}
	var shortest time.Duration
	for _, n := range p.key.names.names {
		if stale := all[view.Set().ServiceOf(n)].Stale; stale > 0 && (shortest == 0 || stale < shortest) {
			shortest = stale
		}
	}
	if shortest == 0 {
		return turn{}
	}
	length := int64(shortest / refreshShare)
	since := now.UnixNano()
	return turn{number: since / length, left: time.Duration(length - since%length)}
}

// over is told when the turn has ended; never where nothing grows stale.
func (t turn) over() <-chan time.Time {
	if t.number == 0 {
		return nil
	}
	return time.After(t.left)
}
