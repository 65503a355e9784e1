package member

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds"
)

// After a rolling restart most connections are on the replicas that restarted first, and
// few on the last one: clients stay where they are. A replica that holds clearly more than
// its share closes a few a second, so that their clients connect again, perhaps elsewhere.

const (
	// balanceAfter is for how long the same replicas have to be live before. A replica looks
	// balanceLooks times within it whether it holds more than its share: once a second.
	balanceAfter, balanceLooks = time.Minute, 60
	// balanceStart and balanceStop are above which parts of a replica's share it begins and
	// ends to close connections.
	balanceStart, balanceStop = 1.25, 1.05
	// balanceFew is the number of connections above the share that never matters.
	balanceFew = 10
	// balanceSpread is within how many seconds the excess is closed, where balanceMost a
	// second suffice.
	balanceSpread, balanceMost = 60, 20
	// balanceReturns is how often the connection of a client that comes back is closed within
	// balanceMemory: its balancer has no other replica for it.
	balanceReturns, balanceMemory = 2, 10 * time.Minute
)

// closing returns how many connections a replica closes now. began says whether it closed
// some the last time.
func closing(own int, others []int, began bool) int {
	total := own
	for _, n := range others {
		total += n
	}
	share := float64(total) / float64(len(others)+1)
	limit := balanceStart * share
	if began {
		limit = balanceStop * share
	}
	excess := float64(own) - share
	if len(others) == 0 || float64(own) <= limit || excess <= balanceFew {
		return 0
	}
	return int(min(balanceMost, max(1, excess/balanceSpread)))
}

// returning counts how often connections of clients were closed for balance.
type returning struct {
	clients map[balancedClient]moved
}

type balancedClient struct {
	node, cluster string
	locality      isobar.Locality
}

type moved struct {
	times int
	last  time.Time
}

// may reports whether the connection of a client may be closed, and counts that it is.
func (m *returning) may(c balancedClient, now time.Time) bool {
	k := m.clients[c]
	if now.Sub(k.last) > balanceMemory {
		k = moved{}
	}
	if k.times >= balanceReturns {
		return false
	}
	if m.clients == nil {
		m.clients = map[balancedClient]moved{}
	}
	m.clients[c] = moved{k.times + 1, now}
	return true
}

// forget drops what is too old to matter.
func (m *returning) forget(now time.Time) {
	for c, k := range m.clients {
		if now.Sub(k.last) > balanceMemory {
			delete(m.clients, c)
		}
	}
}

// balancer closes connections of this replica that others should have.
type balancer struct {
	clients *groupClients
	after   time.Duration // Options.BalanceAfter; 0 = balanceAfter

	moved returning
	began bool
	live  string    // names of the replicas that were live the last time
	since time.Time // of live
}

// run closes connections while this replica holds clearly more than its share, until
// ctx ends.
func (b *balancer) run(ctx context.Context) {
	b.since = time.Now()
	for {
		every := b.delay() / balanceLooks
		pause := time.NewTimer(every/2 + rand.N(every)) //nolint:gosec // jitter is no secret
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
			b.look(time.Now())
		}
	}
}

func (b *balancer) delay() time.Duration {
	if d := b.after; d > 0 {
		return d
	}
	return balanceAfter
}

func (b *balancer) look(now time.Time) {
	live, others := b.clients.self.Connections()
	if live != b.live {
		b.live, b.since, b.began = live, now, false
	}
	if now.Sub(b.since) < b.delay() || !b.clients.self.Removes() {
		return
	}
	n := closing(b.clients.connections.count(), others, b.began)
	if b.began = n > 0; !b.began {
		b.moved.forget(now)
		return
	}
	for _, peer := range b.choose(n, now) {
		b.clients.metrics.balanced.Inc()
		b.clients.connections.end(peer)
	}
}

// choose picks connections at random among those all of whose streams were answered and
// have been open for a while.
func (b *balancer) choose(n int, now time.Time) []string {
	answered := map[string]*xds.Client{}
	clients := b.clients.xds.Clients()
	for i := range clients {
		c := &clients[i]
		ok := c.InSync && !c.Polls() && now.Sub(c.Connected) >= b.delay()/2
		if have, seen := answered[c.Peer]; seen && have == nil || !ok {
			c = nil
		}
		answered[clients[i].Peer] = c
	}
	var out []string
	for peer, c := range answered { // in the random order of a map
		if len(out) == n {
			break
		}
		if c != nil && b.moved.may(balancedClient{c.Node, c.Cluster, c.Locality}, now) {
			out = append(out, peer)
		}
	}
	return out
}
