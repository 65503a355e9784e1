package member

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// operatedReplicas shows the group to operators.
type operatedReplicas struct{ m *Member }

// State implements [admin.Replicas].
func (o operatedReplicas) State() admin.ReplicaGroup {
	s := o.m.self.Status()
	out := admin.ReplicaGroup{
		Group: s.Group, Name: s.Name, Role: s.Role, Since: s.Since, Leader: s.Leader, LedSince: s.LedSince, Epoch: s.Epoch, Engine: s.Engine, Behind: s.Behind,
		Awaits: s.Awaits, Removes: s.Removes, Spare: s.Spare, Agreed: o.m.configuration.agreed(), InForce: o.m.configuration.digestOfPlan(),
		Alarms: s.Alarms, Events: s.Events,
	}
	if w := o.m.election.warnings.Load(); w != nil {
		out.EngineWarnings = *w
	}
	for _, q := range s.Replicas {
		out.Replicas = append(out.Replicas, admin.ReplicaState(q))
		if q.Leads {
			out.Takeover = q.Takeover
		}
	}
	return out
}

// Order implements [admin.Replicas].
func (o operatedReplicas) Order(ctx context.Context, f admin.Forwarded) (status int, body []byte, forwarded bool, err error) {
	a, forwarded, err := o.m.self.Order(ctx, replica.Order(f))
	return a.Status, a.Body, forwarded, err
}

// StepDown implements [admin.Replicas].
func (o operatedReplicas) StepDown(who string) (string, error) { return o.m.self.StepDown(who) }

// AcceptConfig implements [admin.Replicas].
func (o operatedReplicas) AcceptConfig(digest string) error { return o.m.configuration.accept(digest) }

// summary tells other replicas of this one, for display.
func (m *Member) summary() *peerv1.Summary {
	clients, inSync := m.counted.of(m.all, time.Now())
	return &peerv1.Summary{
		Clients: clamp32(clients), ClientsInSync: clamp32(inSync),
		DiscoveryStreams: clamp32(m.xds.Open()), LoadReportStreams: clamp32(m.lrs.Open()),
		Checkers: clamp32(len(m.hds.Checkers(time.Now()))), ConfigDigest: m.configuration.digest(),
		Connections: clamp32(m.clients.connections.count()), TakeoverFailure: m.configuration.takeovers.failure(),
	}
}

// countEvery is how old the number of clients in sync may be that other replicas show: heartbeats
// are more frequent than operators look.
const countEvery = 5 * time.Second

// countedClients is the number of clients, and of those in sync, a moment ago.
type countedClients struct {
	mu            sync.Mutex
	at            time.Time
	total, inSync int
}

func (c *countedClients) of(clients Clients, now time.Time) (total, inSync int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || now.Sub(c.at) >= countEvery {
		c.at, c.total, c.inSync = now, 0, 0
		for _, client := range clients.Clients() {
			if len(client.Types) == 0 {
				continue // it only reports load
			}
			c.total++
			if client.Follows() {
				c.inSync++
			}
		}
	}
	return c.total, c.inSync
}

func clamp32(n int) uint32 { return uint32(min(max(0, n), math.MaxInt32)) }
