package operators

import (
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/xds"
)

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

// findSubscribers looks at all clients and streams.
func (c *Clients) findSubscribers(now time.Time) []admin.ServiceClients {
	type key struct{ node, locality, peer string }
	grace := max(silentLeast, silentIntervals*c.interval())
	silent := map[key]bool{}
	for _, x := range c.Clients() {
		if x.Streams > 0 && !x.Polls && now.Sub(x.ConnectedSince) > grace && (x.LRS == nil || x.LRS.LastReport.IsZero()) {
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
	for _, m := range c.xds.Missing() {
		lacking := admin.MissingService{Name: m.Name, Nearest: nearest(m.Name)}
		out = append(out, admin.NewAttention(admin.ServiceUnknown, "%s (streams that ask for it: %d, one of node %q at %s)",
			lacking.String(), m.Streams, m.Node, m.Peer).Of(m.Name).By(m.Node).See("isobar clients"))
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
