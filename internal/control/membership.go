package control

import (
	"context"
	"errors"
	"time"

	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// GroupRole is the role of a loop in a group of replicas.
type GroupRole uint8

// The roles of a loop in its group.
const (
	// Follows: it shows the leader's plans to its clients, and makes none.
	Follows GroupRole = iota
	// Leads: it makes plans.
	Leads
	// Cares: it led, the election engine is out of reach, and others still follow it. It
	// carries weights over to new health, and decides nothing.
	Cares
	// Claims: it won the election, and does not lead yet.
	Claims
)

// Group is the group of replicas that the server belongs to.
type Group interface {
	// Changed signals that Role or Received give something new. Capacity 1.
	Changed() <-chan struct{}
	// Role returns the present role of the loop, and its epoch.
	Role() (role GroupRole, epoch uint64)
	// Received returns the newest plan of another replica; nil where there is none.
	Received() *plan.Opened
	// Assume prepares a new leader: it reads the operators' writes, and puts them in force in the
	// topology with the configuration of the group. It returns the newest plan of the group, from
	// which the leader continues, nil if there is none; and the operators' pauses.
	Assume() (base *plan.Opened, paused plan.Pauses, err error)
	// Assumed tells how the takeover that began with Assume ended; nil: the leader decides. Where
	// it fails for long, the group gives leadership to a replica that may succeed.
	Assumed(epoch uint64, err error)
	// Paused makes the pauses of Current durable for the group.
	Paused(ctx context.Context) error
	Publications
	Ending
	// Report sends the reports of this replica's clients to the leader. health says that only
	// those of checkers are sent, which does not wait for a tick.
	Report(now time.Time, healthOnly bool)
	// Designate sends the checkers of this replica the designations of the leader.
	Designate(o *plan.Opened)
}

// Publications is the right of a leader to publish plans in its epoch.
type Publications interface {
	// Next returns the version of the next plan. reapply says that the plan only carries
	// weights over. An error says that the replica may not publish.
	Next(reapply bool) (uint64, error)
	// Publish hands a plan to the group, with the state of the monitor. Only if it succeeds may
	// clients get the plan.
	Publish(p *plan.Plan, o plan.Origin, found *health.SavedMonitor, reapply bool) error
	// Reserved is the highest version that this epoch may use: a single server that goes
	// on from the state begins above it.
	Reserved() uint64
}

// Ending is the state of the other replicas for a replica that ends.
type Ending interface {
	// Last reports whether this replica leads and ends, and no other live replica stays: clients
	// will have no server.
	Last() bool
	// Closing reports whether this replica ends, and no replica that it hears stays: it may have
	// to end drops once the lease of a leader that was killed has run out, or once replicas that
	// do not answer count as dead.
	Closing() bool
	// Unserved is closed when this replica, which ends, has no clients any more.
	Unserved() <-chan struct{}
}

// ErrFollower answers operators on a replica that does not lead its group.
var ErrFollower = errors.New("this replica does not lead its group")

// membership connects the loop to the group; the zero value is that of a single server, which
// needs no permission to publish.
type membership struct {
	Group

	found   *health.SavedMonitor // the health that the group got last
	foundAt time.Time            // when
}

// handOut hands a plan to the group before clients get it.
func (m *membership) handOut(p *plan.Plan, o plan.Origin, monitor *health.Monitor, reapply bool) error {
	if m.Group == nil {
		return nil
	}
	placement := monitor.Placement()
	if found := time.Now(); m.found == nil || !m.found.Placement.Equal(&placement) || found.Sub(m.foundAt) >= saveHealthEvery {
		kept := monitor.Save()
		m.found, m.foundAt = &kept, found
	}
	return m.Publish(p, o, m.found, reapply)
}

// version returns the version of the plan that follows another.
func (m *membership) version(before *plan.Plan, reapply bool) (uint64, error) {
	if m.Group == nil {
		return before.Version + 1, nil
	}
	return m.Next(reapply)
}

// stays reports whether a loop that decides in an epoch may go on, and whether it
// may take decisions.
func (m *membership) stays(epoch uint64) (goesOn, decides bool) {
	if m.Group == nil {
		return true, true
	}
	role, now := m.Role()
	return role != Follows && now == epoch, role == Leads
}

// roleChanged signals another role; nil, which never does, for a single server.
func (m *membership) roleChanged() <-chan struct{} {
	if m.Group == nil {
		return nil
	}
	return m.Changed()
}
