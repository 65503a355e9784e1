package operators

import (
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/lrs"
)

// Each stream of an Envoy goes to any of the addresses that the name of a group has. So a client
// that takes its assignments from one replica may report its load to another one. The replicas
// ask each other, see package member.

// remoteReports are the load reports that other replicas of the group get from clients of this one.
type remoteReports struct {
	mu    sync.Mutex
	asked bool // this server is a replica of a group
	nodes map[admin.ClientNode]nodeReports
}

type nodeReports struct {
	admin.RemoteReports

	last time.Time // when another replica had some of its streams
}

// Unreported lists the clients that take assignments from this replica, and whose load reports
// it does not get. It is a few seconds old.
func (c *Clients) Unreported() []admin.ClientNode {
	var out []admin.ClientNode
	seen := map[admin.ClientNode]bool{}
	for _, x := range c.look(time.Now()) {
		if n := nodeOf(&x); unreported(&x) && !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// SpareReports counts for each node the load report streams with reports that belong to no
// client which takes assignments from this replica. It is a few seconds old.
func (c *Clients) SpareReports(nodes []admin.ClientNode) []int {
	c.looked.mu.Lock()
	defer c.looked.mu.Unlock()
	c.looked.refresh(c, time.Now())
	out := make([]int, len(nodes))
	for i, n := range nodes {
		out[i] = c.looked.spare[n]
	}
	return out
}

// SetRemoteReports takes what the other replicas told about the clients of [Clients.Unreported].
func (c *Clients) SetRemoteReports(found map[admin.ClientNode]admin.RemoteReports) {
	c.remote.replace(found, time.Now(), c.grace())
}

// replace takes new answers. A client whose stream was elsewhere a moment ago, and is nowhere now,
// is about to open another one.
func (r *remoteReports) replace(found map[admin.ClientNode]admin.RemoteReports, now time.Time, grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	nodes := make(map[admin.ClientNode]nodeReports, len(found))
	for n, f := range found {
		before := r.nodes[n]
		switch {
		case f.Streams > 0:
			nodes[n] = nodeReports{f, now}
		case before.Streams > 0 && now.Sub(before.last) <= grace:
			nodes[n] = before
		default:
			nodes[n] = nodeReports{RemoteReports: f}
		}
	}
	r.asked, r.nodes = true, nodes
}

// name notes to which replica clients report that do not report to this one.
func (r *remoteReports) name(clients []admin.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.nodes) == 0 {
		return
	}
	used := map[admin.ClientNode]int{}
	for i := range clients {
		c := &clients[i]
		if !unreported(c) {
			continue
		}
		n := nodeOf(c)
		if other := r.nodes[n]; used[n] < other.Streams {
			used[n]++
			c.ReportsTo = other.Replica
		}
	}
}

// excludes reports whether a client that does not report to this replica reports to no other
// one either, as far as all of those that are heard have answered.
func (r *remoteReports) excludes(c *admin.Client) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.ReportsTo == "" && (!r.asked || r.nodes[nodeOf(c)].All)
}

func nodeOf(c *admin.Client) admin.ClientNode {
	return admin.ClientNode{ID: c.ID, Locality: c.Locality}
}

// unreported reports whether a client has discovery streams here, and told no load here.
func unreported(c *admin.Client) bool {
	return c.Streams > 0 && !c.Polls && (c.LRS == nil || c.LRS.LastReport.IsZero())
}

// lookedFor is how old a look at all clients may be: replicas ask each other every few seconds.
const lookedFor = 2 * time.Second

// clientsLook is all clients a moment ago: many ask, and it takes a look at all streams.
type clientsLook struct {
	mu      sync.Mutex
	at      time.Time
	clients []admin.Client
	spare   map[admin.ClientNode]int // load report streams with reports that belong to no client here
}

// look returns the clients of the last seconds. The caller does not change them.
func (c *Clients) look(now time.Time) []admin.Client {
	c.looked.mu.Lock()
	defer c.looked.mu.Unlock()
	c.looked.refresh(c, now)
	return c.looked.clients
}

// refresh looks again if the last look is old. l.mu is held.
func (l *clientsLook) refresh(c *Clients, now time.Time) {
	if !l.at.IsZero() && now.Sub(l.at) < lookedFor {
		return
	}
	out, left := c.join(c.xds.Clients(), openReports(c.lrs))
	sortClients(out)
	c.remote.name(out)
	l.at, l.clients, l.spare = now, out, spareOf(left)
}

func spareOf(left reports) map[admin.ClientNode]int {
	out := make(map[admin.ClientNode]int, len(left))
	for n, streams := range left {
		if told := countTold(streams); told > 0 {
			out[admin.ClientNode{ID: n.id, Locality: n.locality.String()}] = told
		}
	}
	return out
}

func countTold(streams []lrs.Client) (n int) {
	for i := range streams {
		if !streams[i].LastReport.IsZero() {
			n++
		}
	}
	return n
}
