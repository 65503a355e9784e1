// Package operators has what operators see of a server, and what they do with it, as package
// admin asks for it: clients, charts, history, recordings, health checks and what needs
// attention.
package operators

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/xds"
)

// Clients are the clients of this server, as operators see them. It implements [admin.Fleet].
type Clients struct {
	interval func() time.Duration
	xds      *xds.Server
	lrs      *lrs.Server
	plan     func() *plan.Plan
	known    subscriberList
	looked   clientsLook
	remote   remoteReports
}

// NewClients joins the discovery streams and the load report streams of clients. interval
// is how often clients report, plan returns the plan in force; nil before the first.
func NewClients(streams *xds.Server, reports *lrs.Server, interval func() time.Duration, plan func() *plan.Plan) *Clients {
	return &Clients{interval: interval, xds: streams, lrs: reports, plan: plan}
}

// UnknownClusters implements [admin.Fleet].
func (c *Clients) UnknownClusters() []string { return c.lrs.Unknown() }

// node is what a client calls itself. Several may call themselves the same.
type node struct {
	id       string
	locality isobar.Locality
}

// reports are the open load report streams that no discovery stream has taken
// as its own yet.
type reports map[node][]lrs.Client

// openReports returns all of them.
func openReports(server *lrs.Server) reports {
	out := reports{}
	for _, c := range server.Clients() {
		n := node{c.Node.ID, c.Node.Locality}
		out[n] = append(out[n], c)
	}
	return out
}

// take returns the stream of a node that comes from the peer; with an empty
// peer, the one that opened first.
func (r reports) take(n node, peer string) (lrs.Client, bool) {
	for i, c := range r[n] {
		if peer == "" || c.Address == peer {
			r[n] = slices.Delete(r[n], i, i+1)
			return c, true
		}
	}
	return lrs.Client{}, false
}

// Clients implements [admin.Fleet]: it joins what both stream layers know. All streams of a
// node on one connection are one client: Envoys have a stream for each cluster
// whose endpoints come from here while the cluster does not. A load report stream
// belongs to the discovery stream of the same node: to the one on its connection,
// if there is one; else it stands alone.
func (c *Clients) Clients() []admin.Client {
	out, left := c.join(c.xds.Clients(), openReports(c.lrs))
	for _, alone := range left {
		for i := range alone {
			out = append(out, reportingClient(&alone[i]))
		}
	}
	sortClients(out)
	c.remote.name(out)
	return out
}

// ClientsOf implements [admin.Fleet].
func (c *Clients) ClientsOf(service string) []admin.Client {
	of := c.xds.StreamsOf(service)
	streams := slices.DeleteFunc(c.xds.Clients(), func(x xds.Client) bool { return !of[x.Stream] })
	out, _ := c.join(streams, openReports(c.lrs))
	sortClients(out)
	c.remote.name(out)
	return out
}

// join makes clients of discovery streams, and of the load report streams that
// belong to them. It returns those that are left.
func (c *Clients) join(streams []xds.Client, left reports) ([]admin.Client, reports) {
	now := time.Now()
	nearest := c.nearest()
	out := make([]admin.Client, 0, len(streams))
	for i := range streams {
		x := &streams[i]
		out = append(out, discoveryClient(x, now))
		out[i].Missing = lackedBy(x, nearest)
		if x.Peer == "" {
			continue
		}
		if r, ok := left.take(node{x.Node, x.Locality}, x.Peer); ok {
			out[i].LRS = reportInfo(&r)
		}
	}
	for i := range streams {
		if out[i].LRS != nil {
			continue
		}
		if r, ok := left.take(node{streams[i].Node, streams[i].Locality}, ""); ok {
			out[i].LRS = reportInfo(&r)
		}
	}
	return joined(streams, out), left
}

func sortClients(out []admin.Client) {
	slices.SortFunc(out, func(a, b admin.Client) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Locality, b.Locality), cmp.Compare(a.Peer, b.Peer), a.ConnectedSince.Compare(b.ConnectedSince))
	})
}

// clientProcess is what tells clients apart.
type clientProcess struct{ peer, id, cluster, locality, api string }

// joined makes one client of those streams that belong to one process. Of Envoy
// only one is aggregated; of gRPC in some languages each target has one. described
// has the streams as clients, in their order. What polls has no connection of
// its own, and stays as it is.
func joined(streams []xds.Client, described []admin.Client) []admin.Client {
	out := make([]admin.Client, 0, len(streams))
	aggregated := make([]bool, 0, len(streams)) // of out: a stream for all types is in it
	same := make(map[clientProcess][]int, len(streams))
	for i := range described {
		c := &described[i]
		p := clientProcess{c.Peer, c.ID, c.Cluster, c.Locality, c.APIVersion}
		k := slices.IndexFunc(same[p], func(k int) bool {
			return (!aggregated[k] || !streams[i].Aggregated || streams[i].GRPC) && !shareNames(&out[k], c)
		})
		if k < 0 || c.Polls || c.Peer == "" {
			same[p] = append(same[p], len(out))
			out, aggregated = append(out, *c), append(aggregated, streams[i].Aggregated)
			continue
		}
		k = same[p][k]
		join(&out[k], c)
		aggregated[k] = aggregated[k] || streams[i].Aggregated
	}
	return out
}

// shareNames reports whether two streams subscribe to the same: then they belong to
// processes that share a node id, as behind a proxy.
func shareNames(a, b *admin.Client) bool {
	for name, t := range a.Types {
		if slices.ContainsFunc(t.Names, func(n string) bool { return slices.Contains(b.Types[name].Names, n) }) {
			return true
		}
	}
	return false
}

func join(c, other *admin.Client) {
	c.Streams += other.Streams
	c.InSync = c.InSync && other.InSync
	if other.ConnectedSince.Before(c.ConnectedSince) {
		c.ConnectedSince = other.ConnectedSince
	}
	if c.LRS == nil {
		c.LRS = other.LRS
	}
	for _, m := range other.Missing {
		if !slices.ContainsFunc(c.Missing, func(known admin.MissingService) bool { return known.Name == m.Name }) {
			c.Missing = append(c.Missing, m)
		}
	}
	for name, t := range other.Types {
		if own, both := c.Types[name]; both {
			own.Join(&t)
			t = own
		}
		c.Types[name] = t
	}
}

// reportingClient is a client that reports load and takes its endpoints from
// elsewhere.
func reportingClient(r *lrs.Client) admin.Client {
	return admin.Client{
		ID: r.Node.ID, Cluster: r.Node.Cluster, Locality: r.Node.Locality.String(), Agent: r.UserAgent, APIVersion: r.API.String(),
		Peer: r.Address, ConnectedSince: r.Since, InSync: true, LRS: reportInfo(r), Types: map[string]admin.ClientType{},
	}
}

func discoveryClient(c *xds.Client, now time.Time) admin.Client {
	a := admin.Client{
		ID: c.Node, Cluster: c.Cluster, Locality: c.Locality.String(), Agent: c.Agent, APIVersion: c.API, Peer: c.Peer,
		ConnectedSince: c.Connected, Streams: 1, Polls: c.Polls(), InSync: c.InSync, Types: make(map[string]admin.ClientType, len(c.Types)),
	}
	for i := range c.Types {
		a.Types[c.Types[i].Type] = clientType(&c.Types[i], now)
	}
	return a
}

func clientType(t *xds.ClientType, now time.Time) admin.ClientType {
	out := admin.ClientType{
		Subscribed: t.Subscribed, Names: t.Names, SentVersion: t.Sent, AckedVersion: t.Acked,
		InSync: t.InSync, Waiting: t.Waiting, Rejected: t.Rejected, Missing: t.MissingCount,
	}
	if t.Wildcard {
		out.Subscribed = -1
	}
	if t.Waiting && !t.SentAt.IsZero() {
		out.WaitingSeconds = math.Round(now.Sub(t.SentAt).Seconds()*1000) / 1000
	}
	since := t.AckedAt
	if since.IsZero() {
		since = t.SentAt
	}
	if !since.IsZero() {
		out.AgeSeconds = math.Round(now.Sub(since).Seconds()*1000) / 1000
	}
	if t.LastNack != nil {
		out.NACK = &admin.NACK{Version: t.LastNack.Version, Text: t.LastNack.Text, At: t.LastNack.At}
	}
	return out
}

func reportInfo(r *lrs.Client) *admin.ClientLRS {
	return &admin.ClientLRS{LastReport: r.LastReport, Rejected: r.Rejected, Reason: r.LastReason, Excess: r.Excess, LastExcess: r.LastExcess}
}

const (
	// subscribersFor is how long it is known who subscribes to what: all streams are
	// looked at.
	subscribersFor = 5 * time.Second
	// silentIntervals is for how many report intervals a client that subscribes may be
	// connected without a load report, and silentLeast the least time.
	silentIntervals = 3
	silentLeast     = 15 * time.Second
)

// maxNearest bounds for how many missing services the nearest names are searched,
// in one answer.
const maxNearest = 100

// subscriberList remembers who subscribes to what for a while.
type subscriberList struct {
	mu   sync.Mutex
	at   time.Time
	list []admin.ServiceClients
}

// Subscribers implements [admin.Fleet].
func (c *Clients) Subscribers() []admin.ServiceClients {
	c.known.mu.Lock()
	defer c.known.mu.Unlock()
	if now := time.Now(); c.known.at.IsZero() || now.Sub(c.known.at) >= subscribersFor {
		c.known.at, c.known.list = now, c.findSubscribers(now)
	}
	return c.known.list
}

// grace is for how long a client may be connected without a load report.
func (c *Clients) grace() time.Duration { return max(silentLeast, silentIntervals*c.interval()) }

// findSubscribers looks at all clients and streams.
func (c *Clients) findSubscribers(now time.Time) []admin.ServiceClients {
	type key struct{ node, locality, peer string }
	grace := c.grace()
	silent := map[key]bool{}
	for _, x := range c.look(now) {
		if unreported(&x) && now.Sub(x.ConnectedSince) > grace && c.remote.excludes(&x) {
			silent[key{x.ID, x.Locality, x.Peer}] = true
		}
	}
	names := map[isobar.Locality]string{}
	found := c.xds.Subscribers(func(who xds.Subscriber) bool {
		if len(silent) == 0 {
			return false
		}
		name, known := names[who.Locality]
		if !known {
			name = who.Locality.String()
			names[who.Locality] = name
		}
		return silent[key{who.Node, name, who.Peer}]
	})
	out := make([]admin.ServiceClients, len(found))
	for i := range found {
		x := &found[i]
		out[i] = admin.ServiceClients{
			Service: x.Service, Locality: x.Locality, Streams: x.Streams, Since: x.Since, Silent: x.Silent, Node: x.Example.Node, Peer: x.Example.Peer,
			IgnoreORCA: x.IgnoreORCA, Agent: x.Agent,
		}
	}
	return out
}

// SilentOf lists the clients of a service that report no load.
func (c *Clients) SilentOf(service string) []plan.SilentClients {
	return admin.SilentOf(c.Subscribers(), service)
}

// nearest returns what finds the services whose names are nearest to one that
// does not exist.
func (c *Clients) nearest() func(name string) []string {
	found := map[string][]string{}
	var names []string
	return func(name string) []string {
		near, known := found[name]
		if known || len(found) >= maxNearest {
			return near
		}
		if names == nil {
			names = c.serviceNames()
		}
		near = strict.Nearest(name, names, 3)
		found[name] = near
		return near
	}
}

// serviceNames lists the services of the plan in force.
func (c *Clients) serviceNames() []string {
	if p := c.plan(); p != nil {
		return p.ServiceNames()
	}
	return []string{}
}

// Attention names the services that clients ask for and that do not exist.
func (c *Clients) Attention() []admin.Attention {
	nearest := c.nearest()
	var out []admin.Attention
	listed := c.xds.Missing()
	for _, m := range listed {
		lacking := admin.MissingService{Name: m.Name, Nearest: nearest(m.Name)}
		out = append(out, admin.NewAttention(admin.ServiceUnknown, "%s (streams that ask for it: %d, one of node %q at %s)",
			lacking.String(), m.Streams, m.Node, m.Peer).Of(m.Name).By(m.Node).See("isobar clients"))
	}
	if from, most, all := c.xds.MissingIn(); most > xds.MissingListed || all > xds.MissingListed && len(listed) >= xds.MissingListed {
		out = append(out, admin.NewAttention(admin.ServiceUnknown,
			"clients subscribe to %d assignments of services that do not exist, %d of them in %s; this list names %d services at most",
			all, most, from, xds.MissingListed).See("isobar clients"))
	}
	return out
}

// lackedBy lists the services that a client asks for and that do not exist.
func lackedBy(c *xds.Client, nearest func(string) []string) []admin.MissingService {
	var out []admin.MissingService
	for i := range c.Types {
		for _, name := range c.Types[i].Missing {
			if !slices.ContainsFunc(out, func(m admin.MissingService) bool { return m.Name == name }) {
				out = append(out, admin.MissingService{Name: name, Nearest: nearest(name)})
			}
		}
	}
	return out
}
