//go:build !race

package group_test

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// size is how many services the simulated fleet has at most.
const size = 8

// services is a set of services, a bit each.
type services uint8

// knowledge bounds how old what a replica knows of its leader may be when it tells a
// client that a service is absent: two heartbeats and a half, and the slowest message
// of the simulated network.
const knowledge = 2500*time.Millisecond + 4*time.Second + 100*time.Millisecond

// content is what the member publishes: who, when, and which services there are. A
// decision adds and removes some; carrying weights over changes none.
func (m *member) content(reapply bool) []byte {
	w := m.w
	lists := services(0xff)
	if base := m.node.Base(); base != nil {
		lists = servicesOf(base)
	}
	if !reapply && w.rng.IntN(4) == 0 {
		lists ^= services(1 << w.rng.IntN(size))
	}
	unique := binary.BigEndian.AppendUint64(fmt.Appendf(nil, "%s at %v ", m.self, w.now), w.rng.Uint64())
	return append(unique, byte(lists))
}

func servicesOf(p *group.Plan) services {
	content := text(p)
	return services(content[len(content)-1])
}

// list notes which services the member serves, and since when.
func (m *member) list(next services) {
	for i := range size {
		if bit := services(1 << i); next&bit != 0 && m.lists&bit == 0 {
			m.since[i] = m.w.now
		}
	}
	m.lists = next
}

// leader returns the member whose plan counts: it decides, and it has published in its
// claim. A restored engine leaves two of them for a moment. The newest claim counts
// then, since the leader before ends as soon as it meets that claim.
func (w *world) leader() *member {
	var leader *member
	for _, m := range w.members {
		if m.node == nil || m.paused || m.node.Role() != group.Leading || m.served == 0 || m.plan.Claim != m.node.Claim() ||
			!w.engine.grants(m, m.node.Claim()) {
			continue
		}
		if leader == nil || m.plan.Claim.Epoch > leader.plan.Claim.Epoch {
			leader = m
		}
	}
	return leader
}

// removed asserts that no client is told that a service is absent which the living
// leader's plan has, and has had for longer than what a replica may not know yet. A
// replica to which the engine has not named the leader's claim may not know of the
// leader either.
func (w *world) removed(by *member, absent services) {
	w.counts.removals++
	m := w.leader()
	if m == nil {
		return
	}
	for i := range size {
		since := m.since[i]
		if by.fenced < m.plan.Claim.Epoch {
			since = max(since, m.began)
		}
		if bit := services(1 << i); absent&m.lists&bit != 0 && w.now-since > knowledge {
			w.violatef("%s tells that service %d is absent, which %s lists since %v", by.name, i, m.name, m.since[i])
		}
	}
}
