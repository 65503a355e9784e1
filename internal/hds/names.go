package hds

import (
	"fmt"
	"slices"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"

	"github.com/isobar-xds/isobar"
)

const (
	// perturbations is how many intervals, 1 ms apart, the streams of a node
	// go through. Builds of Envoy before July 2021 stop reporting when the first
	// specifier of a new stream equals the last of the one before; as that may
	// have been another process of ours, the first is taken at random.
	perturbations = 50

	// rememberFor is how long an identity is kept for a checker that went
	// away. Envoy is back within 30 s.
	rememberFor = 10 * time.Minute
	// maxRemembered is beyond how many identities those that are away are
	// dropped.
	maxRemembered = 2_000
)

// names hands out the IDs of checkers. A checker is its node id and locality:
// one that comes back gets the ID that it had. Two of the same node id that are
// there at once are two checkers, the second is called "id#2". No two identities
// have the same ID, also if a node calls itself "id#2".
type names struct {
	start    uint64
	families map[string]*family // by node id
	taken    map[string]bool    // the IDs of all members
}

func newNames(start uint64) names {
	return names{start: start, families: map[string]*family{}, taken: map[string]bool{}}
}

// family is all checkers that share a node id.
type family struct {
	streams uint64 // that ever opened
	members []*member
}

// member is one identity. It keeps what its checker was told, so that clusters
// which are gone when it comes back are drained, too.
type member struct {
	id       string
	locality isobar.Locality
	checker  *checker // nil while it is away
	left     time.Time
	told     map[string]*healthv3.ClusterHealthCheck
}

// enter finds the identity of a new checker. A checker whose identity is taken
// by one that has been silent is believed to be the same, come back before the
// loss of its old connection was noticed; that one is given in evicted.
func (n *names) enter(c *checker, now time.Time, interval time.Duration) (evicted *checker) {
	n.forget(now)
	f := n.families[c.hello.Node.ID]
	if f == nil {
		f = &family{}
		n.families[c.hello.Node.ID] = f
	}
	c.perturb = time.Duration((n.start+f.streams)%perturbations) * time.Millisecond
	f.streams++
	m := f.find(c, now, interval)
	if m == nil {
		m = &member{id: n.freeID(c.hello.Node.ID), locality: c.hello.Node.Locality}
		n.taken[m.id] = true
		f.members = append(f.members, m)
	}
	evicted = m.checker
	if evicted != nil {
		m.told = evicted.sentClusters()
	}
	m.checker, m.left = c, time.Time{}
	c.id = m.id
	c.sent.clusters = m.told
	return evicted
}

// find looks for an identity that may be c's: first one that is away, then one
// that is silent.
func (f *family) find(c *checker, now time.Time, interval time.Duration) *member {
	for _, m := range f.members {
		if m.locality == c.hello.Node.Locality && m.checker == nil {
			return m
		}
	}
	for _, m := range f.members {
		if m.locality == c.hello.Node.Locality && m.checker != nil && m.checker.silent(now, interval) {
			return m
		}
	}
	return nil
}

// freeID returns the first ID for a node that no identity has.
func (n *names) freeID(node string) string {
	id := node
	for k := 2; n.taken[id]; k++ { // ends: there are fewer identities than numbers
		id = fmt.Sprintf("%s#%d", node, k)
	}
	return id
}

// leave notes that a checker is away.
func (n *names) leave(c *checker, now time.Time) {
	f := n.families[c.hello.Node.ID]
	if f == nil {
		return
	}
	for _, m := range f.members {
		if m.checker == c {
			m.checker, m.left, m.told = nil, now, c.sentClusters()
		}
	}
}

// forget drops identities that have been away for long, and all that are away
// if there are too many of them.
func (n *names) forget(now time.Time) {
	if n.away(now, rememberFor) > maxRemembered {
		n.away(now, 0)
	}
}

// away drops identities that have been away for so long, and counts the others.
func (n *names) away(now time.Time, most time.Duration) (kept int) {
	for node, f := range n.families {
		f.members = slices.DeleteFunc(f.members, func(m *member) bool {
			gone := m.checker == nil && now.Sub(m.left) >= most
			if gone {
				delete(n.taken, m.id)
			}
			return gone
		})
		kept += len(f.members)
		if len(f.members) == 0 {
			delete(n.families, node)
		}
	}
	return kept
}
