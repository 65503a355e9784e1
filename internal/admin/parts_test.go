package admin_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/samples"
)

// The parts of the options that most tests do without. A test sets what it needs of a part:
// fleetOf(o).clients = …

// planner is a world with what it does not know itself.
type planner struct {
	*world

	explain  func(p *plan.Plan, service string, source isobar.Locality) (plan.Explanation, error)
	ticks    func() (uint64, time.Duration)
	reserves func() (time.Time, []plan.Reserve)
	losses   []plan.ZoneLoss
	lost     time.Time // when losses were so
	outdated bool      // they are no longer so
}

func plannerOf(o *admin.Options) *planner { return o.Planner.(*planner) }

func (p *planner) Explain(of *plan.Plan, service string, source isobar.Locality) (plan.Explanation, error) {
	return p.explain(of, service, source)
}

func (p *planner) Ticks() (uint64, time.Duration) {
	if p.ticks == nil {
		return 0, 0
	}
	return p.ticks()
}

func (p *planner) Reserves() (time.Time, []plan.Reserve) {
	if p.reserves == nil {
		return time.Time{}, nil
	}
	return p.reserves()
}

func (p *planner) Losses(*plan.Plan) (time.Time, []plan.ZoneLoss, bool) {
	return p.lost, p.losses, p.outdated
}

type fleet struct {
	clients     func() []admin.Client
	subscribers []admin.ServiceClients
}

func fleetOf(o *admin.Options) *fleet { return o.Fleet.(*fleet) }

func (f *fleet) Clients() []admin.Client { return f.clients() }

func (f *fleet) ClientsOf(service string) []admin.Client {
	return slices.DeleteFunc(f.clients(), func(c admin.Client) bool {
		for _, t := range c.Types {
			if slices.Contains(t.Names, service) {
				return false
			}
		}
		return !slices.ContainsFunc(c.Missing, func(m admin.MissingService) bool { return m.Name == service })
	})
}

func (f *fleet) Subscribers() []admin.ServiceClients { return f.subscribers }
func (f *fleet) UnknownClusters() []string           { return nil }

// unchecked is the part of an operator that checks no drain and tells nothing of the future.
type unchecked struct{}

func (unchecked) Breaches(context.Context, *admin.Drain) ([]string, error) { return nil, nil }

func (unchecked) WhatIf(context.Context, *plan.WhatIf) (plan.Difference, error) {
	return plan.Difference{}, nil
}

// operator is another operator with a check of drains.
type operator struct {
	admin.Operator

	breaches func(ctx context.Context, d *admin.Drain) ([]string, error)
}

func operatorOf(o *admin.Options) *operator {
	p, ok := o.Operator.(*operator)
	if !ok {
		p = &operator{Operator: o.Operator}
		o.Operator = p
	}
	return p
}

func (p *operator) Breaches(ctx context.Context, d *admin.Drain) ([]string, error) {
	return p.breaches(ctx, d)
}

type healthChecks struct {
	health   func(ctx context.Context, service string) ([]health.ServiceReport, error)
	overview func(ctx context.Context) ([]health.ServiceReport, error)
	release  func(ctx context.Context, service string) (bool, error)
	checkers func() []admin.Checker
}

func healthOf(o *admin.Options) *healthChecks {
	if o.HealthChecks == nil {
		o.HealthChecks = &healthChecks{}
	}
	return o.HealthChecks.(*healthChecks)
}

func (h *healthChecks) Health(ctx context.Context, service string) ([]health.ServiceReport, error) {
	return h.health(ctx, service)
}

func (h *healthChecks) HealthOverview(ctx context.Context) ([]health.ServiceReport, error) {
	if h.overview == nil {
		return h.health(ctx, "")
	}
	return h.overview(ctx)
}

func (h *healthChecks) Release(ctx context.Context, service string) (bool, error) {
	return h.release(ctx, service)
}

func (h *healthChecks) Checkers() []admin.Checker {
	if h.checkers == nil {
		return nil
	}
	return h.checkers()
}

type process struct {
	stopping     func() bool
	stall        func() time.Duration
	attention    func() []admin.Attention
	certificates func() []admin.Certificate
}

func processOf(o *admin.Options) *process {
	if o.Process == nil {
		o.Process = &process{
			stopping:     func() bool { return false },
			stall:        func() time.Duration { return admin.DefaultStall },
			attention:    func() []admin.Attention { return nil },
			certificates: func() []admin.Certificate { return nil },
		}
	}
	return o.Process.(*process)
}

func (p *process) Stopping() bool                    { return p.stopping() }
func (p *process) Stall() time.Duration              { return p.stall() }
func (p *process) Attention() []admin.Attention      { return p.attention() }
func (p *process) Certificates() []admin.Certificate { return p.certificates() }
func (p *process) Unsaved() []string                 { return nil }

type identities struct {
	mayWrite   func(*http.Request) error
	isOperator bool
}

func (i identities) MayWrite(r *http.Request) error {
	if i.mayWrite == nil {
		return nil
	}
	return i.mayWrite(r)
}

func (i identities) IsOperator(*http.Request) bool { return i.isOperator }

type recorder func(ctx context.Context, w io.Writer) error

func (r recorder) Record(ctx context.Context, w io.Writer) error { return r(ctx, w) }

type charts func(service string, day bool) (samples.Series, bool)

func (c charts) Samples(service string, day bool) (samples.Series, bool) { return c(service, day) }
func (c charts) Marks() []admin.SampleMark                               { return nil }
func (c charts) Mark(admin.SampleMark) error                             { return nil }
