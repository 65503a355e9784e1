package member

import (
	"context"
	"errors"
	"time"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/relay"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// Lead makes the options of a loop those of a group's loop.
func (m *Member) Lead(o *control.Options) {
	o.Group = m
	o.Reports, o.Clients, o.Checkers = groupReports{m.relay, m.lrs}, m.relay, groupCheckers{m.relay}
}

// Changed implements [control.Group].
func (m *Member) Changed() <-chan struct{} { return m.self.Changed() }

// Role implements [control.Group].
func (m *Member) Role() (control.GroupRole, uint64) {
	switch role, epoch := m.self.Role(); role {
	case group.Leading:
		return control.Leads, epoch
	case group.Caretaker:
		return control.Cares, epoch
	case group.Gathering, group.Claiming:
		return control.Claims, 0
	case group.Follower:
	}
	return control.Follows, 0
}

// Received implements [control.Group].
func (m *Member) Received() *plan.Opened {
	if o, _ := m.self.received(); o != nil {
		return o.Opened
	}
	return nil
}

// Next implements [control.Group].
func (m *Member) Next(reapply bool) (uint64, error) {
	version, err := m.self.Next(reapply)
	return version, m.self.explained(err)
}

// Publish implements [control.Group].
func (m *Member) Publish(p *plan.Plan, o plan.Origin, found *health.SavedMonitor, reapply bool) error {
	content, err := m.plans.encode(p, o, found)
	if err != nil {
		return err
	}
	return m.self.explained(m.self.Publish(p.Version, content, reapply))
}

// Reserved implements [control.Group].
func (m *Member) Reserved() uint64 {
	if served, ok := m.self.Served(); ok {
		return served.Claim.Last()
	}
	return 0
}

// Last implements [control.Group].
func (m *Member) Last() bool { return m.self.leads() && m.self.AllLeave() }

// Closing implements [control.Group].
func (m *Member) Closing() bool { return m.self.Closing() }

// Unserved implements [control.Group].
func (m *Member) Unserved() <-chan struct{} { return m.unserved }

// Report implements [control.Group].
func (m *Member) Report(now time.Time, healthOnly bool) {
	m.relay.Forget() // what others told when this replica led
	epoch := m.self.LeaderEpoch()
	sent := m.self.Report(m.relay.Observations(now, healthOnly, epoch != m.warmed))
	if sent && !healthOnly {
		m.warmed = epoch
	}
}

// Assume implements [control.Group].
func (m *Member) Assume() (*plan.Opened, plan.Pauses, error) { return m.configuration.assume() }

// Assumed implements [control.Group].
func (m *Member) Assumed(epoch uint64, err error) {
	t := &m.configuration.takeovers
	switch {
	case err == nil:
		t.succeeded()
	case errors.Is(err, group.ErrNotLeading):
	case t.fails(epoch, err.Error(), time.Now(), m.self.Successors):
		m.self.HandOver("this replica can't take over: " + err.Error())
	}
}

// Paused implements [control.Group].
func (m *Member) Paused(ctx context.Context) error { return m.operators.pause(ctx, m.loop.Current) }

// Designate implements [control.Group].
func (m *Member) Designate(o *plan.Opened) {
	m.hds.Designate(o.Plan.Topology, o.Health.Placement.Designations)
}

// groupReports and groupCheckers show the loop what all replicas told.
type groupReports struct {
	*relay.Relay

	own *lrs.Server
}

// Collect implements [control.Reports].
func (g groupReports) Collect(now time.Time) []load.StreamWindow { return g.Windows(now) }

// Release implements [control.Reports].
func (g groupReports) Release() { g.own.Release() }

// Refresh implements [control.Reports].
func (g groupReports) Refresh() { g.own.Refresh() }

type groupCheckers struct{ *relay.Relay }

// Collect implements [control.Checkers].
func (g groupCheckers) Collect(now time.Time) []health.Report { return g.Votes(now) }
