package server

import (
	"context"
	"time"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/relay"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// joinLoop makes the loop one of a group.
func (r *replicas) joinLoop(o *control.Options) {
	if r == nil {
		return
	}
	o.Group = r
	o.Reports, o.Clients, o.Checkers = groupReports{r.relay, r.services.lrs}, r.relay, groupCheckers{r.relay}
}

// Changed implements [control.Group].
func (r *replicas) Changed() <-chan struct{} { return r.member.Changed() }

// Role implements [control.Group].
func (r *replicas) Role() (control.GroupRole, uint64) {
	switch role, epoch := r.member.Role(); role {
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
func (r *replicas) Received() *plan.Opened {
	if o, _ := r.member.received(); o != nil {
		return o.Opened
	}
	return nil
}

// Next implements [control.Group].
func (r *replicas) Next(reapply bool) (uint64, error) {
	version, err := r.member.Next(reapply)
	return version, r.member.explained(err)
}

// Publish implements [control.Group].
func (r *replicas) Publish(p *plan.Plan, o plan.Origin, found *health.SavedKeeper, reapply bool) error {
	content, err := r.plans.encode(p, o, found)
	if err != nil {
		return err
	}
	return r.member.explained(r.member.Publish(p.Version, content, reapply))
}

// Reserved implements [control.Group].
func (r *replicas) Reserved() uint64 {
	if served, ok := r.member.Served(); ok {
		return served.Claim.Last()
	}
	return 0
}

// Last implements [control.Group].
func (r *replicas) Last() bool { return r.member.leads() && r.member.Parts() }

// Closing implements [control.Group].
func (r *replicas) Closing() bool { return r.member.Closing() }

// Unserved implements [control.Group].
func (r *replicas) Unserved() <-chan struct{} { return r.unserved }

// Report implements [control.Group].
func (r *replicas) Report(now time.Time, healthOnly bool) {
	r.relay.Forget() // what others told when this replica led
	epoch := r.member.LeaderEpoch()
	sent := r.member.Report(r.relay.Observations(now, healthOnly, epoch != r.warmed))
	if sent && !healthOnly {
		r.warmed = epoch
	}
}

// Assume implements [control.Group].
func (r *replicas) Assume() (*plan.Opened, plan.Pauses, error) { return r.configuration.assume() }

// Paused implements [control.Group].
func (r *replicas) Paused(ctx context.Context) error { return r.operators.pause(ctx, r.loop.Current) }

// Designate implements [control.Group].
func (r *replicas) Designate(o *plan.Opened) {
	r.services.hds.Designate(o.Plan.Topology, o.Health.Placement.Designations)
}

// groupReports and groupCheckers show the loop what all replicas told.
type groupReports struct {
	*relay.Relay

	own *lrs.Server
}

// Collect implements [control.Reports].
func (g groupReports) Collect(now time.Time) []load.StreamWindow { return g.Windows(now) }

// Refresh implements [control.Reports].
func (g groupReports) Refresh() { g.own.Refresh() }

type groupCheckers struct{ *relay.Relay }

// Collect implements [control.Checkers].
func (g groupCheckers) Collect(now time.Time) []health.Report { return g.Votes(now) }
