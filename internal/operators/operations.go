package operators

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

// Operations is what operators see of the loop and of health checks, and do with them. It
// implements [admin.Planner], [admin.Operator] and [admin.HealthChecks]; what it does not
// define is the loop's.
type Operations struct {
	*control.Loop

	HDS *hds.Server
}

// Explain implements [admin.Planner].
func (o Operations) Explain(p *plan.Plan, service string, source isobar.Locality) (plan.Explanation, error) {
	return p.Explain(service, source)
}

// Breaches implements [admin.Operator].
func (o Operations) Breaches(ctx context.Context, d *admin.Drain) ([]string, error) {
	if len(d.Services) > 0 {
		return o.BreachesOf(ctx, d.Services)
	}
	return o.Loop.Breaches(ctx, d.Health)
}

// Health implements [admin.HealthChecks].
func (o Operations) Health(ctx context.Context, service string) ([]health.ServiceReport, error) {
	found, err := o.Loop.Health(ctx, service)
	o.HDS.AddMetadata(found)
	return found, err
}

// Checkers implements [admin.HealthChecks].
func (o Operations) Checkers() []admin.Checker {
	connected := o.HDS.Checkers(time.Now())
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
