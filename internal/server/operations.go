package server

import (
	"context"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// operations is what operators see of a server and do with it. It implements the interfaces
// of package admin; what it does not define is the loop's.
type operations struct {
	*control.Loop

	server *Server
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

// Clients implements [admin.Fleet].
func (o operations) Clients() []admin.Client { return o.server.clients() }

// ClientsOf implements [admin.Fleet].
func (o operations) ClientsOf(service string) []admin.Client { return o.server.subscribing(service) }

// Subscribers implements [admin.Fleet].
func (o operations) Subscribers() []admin.ServiceClients { return o.server.subscribers() }

// UnknownClusters implements [admin.Fleet].
func (o operations) UnknownClusters() []string { return o.server.lrs.Unknown() }

// Health implements [admin.HealthChecks].
func (o operations) Health(ctx context.Context, service string) ([]health.ServiceReport, error) {
	return o.server.Health(ctx, service)
}

// Checkers implements [admin.HealthChecks].
func (o operations) Checkers() []admin.Checker { return o.server.listCheckers() }

// Preview implements [admin.Configuration].
func (o operations) Preview(ctx context.Context, body []byte) (plan.Difference, []admin.Problem, error) {
	return o.server.preview(ctx, body)
}

// Reload implements [admin.Configuration].
func (o operations) Reload(confirm string) (*admin.HeldConfiguration, error) {
	return o.server.Reload(confirm)
}

// Held implements [admin.Configuration].
func (o operations) Held() *admin.HeldConfiguration { return o.server.heldState() }

// Removes implements [admin.Configuration].
func (o operations) Removes(services []isobar.Service) string {
	return o.server.removesOfAPI(services)
}

// ControlPlane implements [admin.Providers].
func (o operations) ControlPlane() (any, bool) { return o.server.upstream.Status() }

// DNS implements [admin.Providers].
func (o operations) DNS() (any, bool) { return o.server.names.Status() }

// Kubernetes implements [admin.Providers].
func (o operations) Kubernetes() (any, bool) { return o.server.cluster.Status() }

// Stopping implements [admin.Process].
func (o operations) Stopping() bool {
	select {
	case <-o.Left():
		return true
	default:
		return false
	}
}

// Stall implements [admin.Process].
func (o operations) Stall() time.Duration {
	return max(admin.DefaultStall, 3*o.server.current.Load().Tick)
}

// Unsaved implements [admin.Process].
func (o operations) Unsaved() []string { return o.server.unsaved() }

// Attention implements [admin.Process].
func (o operations) Attention() []admin.Attention { return o.server.troubles() }

// Certificates implements [admin.Process].
func (o operations) Certificates() []admin.Certificate { return o.server.certificates() }
