package xds

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// answer says what a view has for a poller, and takes the version that the
// request shows as what the client accepted.
func (s *Server) answer(p *poller, r *resource.Request, view *view.View, turn int64) (*Answer, error) {
	a := &Answer{TypeURL: r.TypeURL, Form: p.key.as.Form}
	names := p.key.names.names
	if r.Kind == resource.Cluster && (len(names) == 0 || p.key.names.has(resource.Wildcard)) {
		names = view.Set().Names()
	}
	h, size := sha256.New(), 0
	if turn != 0 {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(turn))) //nolint:gosec // only to be another one
	}
	had := sync.OnceValue(func() map[string]bool { return s.had(p, r) })
	for _, n := range names {
		found := view.LookupFor(p.node.Cluster, p.key.as, r.Kind, n)
		if found == nil && r.Version != "" && r.Kind != resource.Other && s.holds.Load() { // the client may have it from another server
			a.Version, a.Resources, a.Unchanged = r.Version, nil, true
			return a, nil
		}
		if found == nil && r.Kind == resource.Endpoints && view.Gone(n) && had()[n] {
			found = view.Empty(p.key.as, n)
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
	s.mu.Lock()
	defer s.mu.Unlock()
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

// had names what the client may have something of, by the version that it shows:
// with the last one it has what it was ever sent; with one of another server it
// may have anything.
func (s *Server) had(p *poller, r *resource.Request) map[string]bool {
	out := map[string]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
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

// accept takes note that the client has the last answer, if the request shows its
// version. Server.mu is held.
func (p *poller) accept(r *resource.Request, now time.Time) {
	if p.version == "" || r.Version != p.version {
		return
	}
	if r.Kind == resource.Endpoints && !p.heard {
		p.heard = true
		p.zone.awaitACK(p.keys(), true)
	}
	if p.acked == p.version {
		return
	}
	p.acked, p.ackedAt = p.version, now
	if r.Kind == resource.Endpoints {
		p.zone.acknowledge(p.key.as, p.sent, now)
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
