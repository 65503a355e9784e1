package server

import (
	"context"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// operations is what operators see of the loop and of health checks, and do with them. It
// implements [admin.Planner], [admin.Operator] and [admin.HealthChecks]; what it does not
// define is the loop's.
type operations struct {
	*control.Loop

	hds *hds.Server
}

// Explain implements [admin.Planner].
func (o operations) Explain(p *plan.Plan, service string, source isobar.Locality) (plan.Explanation, error) {
	return p.Explain(service, source)
}

// Breaches implements [admin.Operator].
func (o operations) Breaches(ctx context.Context, d *admin.Drain) ([]string, error) {
	if len(d.Services) > 0 {
		return o.BreachesOf(ctx, d.Services)
	}
	return o.Loop.Breaches(ctx, d.Health)
}

// Health implements [admin.HealthChecks].
func (o operations) Health(ctx context.Context, service string) ([]health.ServiceReport, error) {
	found, err := o.Loop.Health(ctx, service)
	o.hds.AddMetadata(found)
	return found, err
}

// Checkers implements [admin.HealthChecks].
func (o operations) Checkers() []admin.Checker {
	connected := o.hds.Checkers(time.Now())
	out := make([]admin.Checker, len(connected))
	for i := range connected {
		c := &connected[i]
		out[i] = admin.Checker{
			ID: c.ID, Locality: c.Locality, Agent: c.UserAgent, Peer: c.Address, Since: c.Since, APIVersion: c.APIVersion, Protocols: c.Protocols.String(),
			Polling: c.Polling, Designated: c.Designated, LastReport: c.LastReport, Rejected: c.Rejected, Reason: c.LastReason,
		}
	}
	return out
}

// checkers shows the loop what it needs of the health discovery service.
type checkers struct {
	*hds.Server
}

// Connected implements control.Checkers.
func (c checkers) Connected(now time.Time) []health.Checker {
	connected := c.Checkers(now)
	out := make([]health.Checker, len(connected))
	for i := range connected {
		out[i] = connected[i].Checker
	}
	return out
}
