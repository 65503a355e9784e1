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

// elsewhere is what other replicas of the group told about clients of this one.
type elsewhere struct {
	mu    sync.Mutex
	asked bool // this server is a replica of a group
	nodes map[admin.ClientNode]remoteReports
}

type remoteReports struct {
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

// ReportElsewhere takes what the other replicas told about the clients of [Clients.Unreported].
func (c *Clients) ReportElsewhere(found map[admin.ClientNode]admin.RemoteReports) {
	c.group.replace(found, time.Now(), c.grace())
}

// replace takes new answers. A client whose stream was elsewhere a moment ago, and is nowhere now,
// is about to open another one.
func (e *elsewhere) replace(found map[admin.ClientNode]admin.RemoteReports, now time.Time, grace time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	nodes := make(map[admin.ClientNode]remoteReports, len(found))
	for n, f := range found {
		before := e.nodes[n]
		switch {
		case f.Streams > 0:
			nodes[n] = remoteReports{f, now}
		case before.Streams > 0 && now.Sub(before.last) <= grace:
			nodes[n] = before
		default:
			nodes[n] = remoteReports{RemoteReports: f}
		}
	}
	e.asked, e.nodes = true, nodes
}

// name notes to which replica clients report that do not report to this one.
func (e *elsewhere) name(clients []admin.Client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.nodes) == 0 {
		return
	}
	used := map[admin.ClientNode]int{}
	for i := range clients {
		c := &clients[i]
		if !unreported(c) {
			continue
		}
		n := nodeOf(c)
		if r := e.nodes[n]; used[n] < r.Streams {
			used[n]++
			c.ReportsTo = r.Replica
		}
	}
}

// excludes reports whether a client that does not report to this replica reports to no other
// one either, as far as all of those that are heard have answered.
func (e *elsewhere) excludes(c *admin.Client) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return c.ReportsTo == "" && (!e.asked || e.nodes[nodeOf(c)].All)
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
	c.group.name(out)
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
