package member

import (
	"context"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// reportingEvery is how often a replica asks the others which of its clients report load to them.
const reportingEvery = 5 * time.Second

// reporters are the clients of this server, by where they report load.
type reporters interface {
	// Unreported lists the clients that take assignments here, and whose load reports do not
	// come here.
	Unreported() []admin.ClientNode
	// SpareReports counts for each node the load report streams that belong to none of the
	// clients here.
	SpareReports(nodes []admin.ClientNode) []int
	// SetRemoteReports takes what the other replicas told about the clients of Unreported.
	SetRemoteReports(found map[admin.ClientNode]admin.RemoteReports)
}

// followReporting asks the other replicas until ctx ends.
func (m *Member) followReporting(ctx context.Context) {
	look := time.NewTicker(reportingEvery)
	defer look.Stop()
	for {
		m.all.SetRemoteReports(m.askReporting(ctx, m.all.Unreported()))
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// askReporting asks all replicas that are heard. Where one does not answer, such as one of an
// earlier version, it stays unknown whether a client reports load.
func (m *Member) askReporting(ctx context.Context, nodes []admin.ClientNode) map[admin.ClientNode]admin.RemoteReports {
	if len(nodes) == 0 {
		return nil
	}
	asked := make([]*peerv1.Node, len(nodes))
	for i, n := range nodes {
		asked[i] = &peerv1.Node{Id: n.ID, Locality: n.Locality}
	}
	all := true
	found := make([]admin.RemoteReports, len(nodes))
	for _, p := range m.configured.Peers {
		if !m.self.Live(p.Name) {
			continue
		}
		streams, err := m.self.Reporting(ctx, p.Name, asked)
		if err != nil {
			m.log.Debug("another replica did not tell which clients report load to it", "error", err)
			all = false
			continue
		}
		for i, n := range streams {
			if n > 0 {
				found[i].Replica, found[i].Streams = p.Name, found[i].Streams+int(n)
			}
		}
	}
	out := make(map[admin.ClientNode]admin.RemoteReports, len(nodes))
	for i, n := range nodes {
		found[i].All = all
		out[n] = found[i]
	}
	return out
}

// reporting answers another replica.
func (m *Member) reporting(asked []*peerv1.Node) []uint32 {
	nodes := make([]admin.ClientNode, len(asked))
	for i, n := range asked {
		nodes[i] = admin.ClientNode{ID: n.GetId(), Locality: n.GetLocality()}
	}
	out := make([]uint32, len(nodes))
	for i, n := range m.all.SpareReports(nodes) {
		out[i] = clamp32(n)
	}
	return out
}
