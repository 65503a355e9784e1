package server

import (
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
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

// subscriberList remembers who subscribes to what for a while.
type subscriberList struct {
	mu   sync.Mutex
	at   time.Time
	list []admin.ServiceClients
}

// subscribers lists the clients of each service, sorted by service and locality.
func (s *Server) subscribers() []admin.ServiceClients {
	s.clientsOf.mu.Lock()
	defer s.clientsOf.mu.Unlock()
	if now := time.Now(); s.clientsOf.at.IsZero() || now.Sub(s.clientsOf.at) >= subscribersFor {
		s.clientsOf.at, s.clientsOf.list = now, s.findSubscribers(now)
	}
	return s.clientsOf.list
}

// findSubscribers looks at all clients and streams.
func (s *Server) findSubscribers(now time.Time) []admin.ServiceClients {
	type key struct{ node, locality, peer string }
	grace := max(silentLeast, silentIntervals*s.current.Load().ReportInterval)
	silent := map[key]bool{}
	for _, c := range s.clients() {
		if c.Streams > 0 && !c.Polls && now.Sub(c.ConnectedSince) > grace && (c.LRS == nil || c.LRS.LastReport.IsZero()) {
			silent[key{c.ID, c.Locality, c.Peer}] = true
		}
	}
	names := map[isobar.Locality]string{}
	found := s.xds.Subscribers(func(who xds.Subscriber) bool {
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

// silentOf lists the clients of a service that report no load.
func (s *Server) silentOf(service string) []plan.SilentClients {
	return admin.SilentOf(s.subscribers(), service)
}
