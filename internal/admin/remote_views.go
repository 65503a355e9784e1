package admin

import (
	"context"
	"net/url"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Explain asks for an explanation; from is a locality in its text form.
func (r *Remote) Explain(ctx context.Context, service, from string) (plan.Explanation, error) {
	var out plan.Explanation
	err := r.get(ctx, "/v1/explain", url.Values{"service": {service}, "from": {from}}, &out)
	return out, err
}

// Plan asks for the published plan: of one service, or of all for an empty name.
func (r *Remote) Plan(ctx context.Context, service string) (PlanView, error) {
	var out PlanView
	query := url.Values{}
	if service != "" {
		query.Set("service", service)
	}
	err := r.get(ctx, "/v1/plan", query, &out)
	return out, err
}

// Sources asks where the traffic of a service comes from, sorted by locality.
func (r *Remote) Sources(ctx context.Context, service string) ([]SourceView, error) {
	out, err := r.Plan(ctx, service)
	if err != nil || len(out.Services) != 1 {
		return nil, err
	}
	return out.Services[0].Sources, nil
}

// Clients asks for the state of the xDS clients.
func (r *Remote) Clients(ctx context.Context) (ClientList, error) {
	var out ClientList
	err := r.get(ctx, "/v1/clients", nil, &out)
	return out, err
}

// Verdicts asks what checkers found, of one service or of all for an empty
// name.
func (r *Remote) Verdicts(ctx context.Context, service string) (VerdictList, error) {
	var out VerdictList
	query := url.Values{}
	if service != "" {
		query.Set("service", service)
	}
	err := r.get(ctx, "/v1/verdicts", query, &out)
	return out, err
}

// Capacity asks what each locality of a service can serve.
func (r *Remote) Capacity(ctx context.Context, service string) (CapacityList, error) {
	var out CapacityList
	err := r.get(ctx, "/v1/capacity", url.Values{"service": {service}}, &out)
	return out, err
}

// Flows asks for the flows between regions, and for the zones that there are.
func (r *Remote) Flows(ctx context.Context) (FlowList, error) {
	var out FlowList
	err := r.get(ctx, "/v1/flows", nil, &out)
	return out, err
}

// MomentAt asks what stood at a moment, of a service or, for an empty name, of all.
func (r *Remote) MomentAt(ctx context.Context, service string, at time.Time) (Moment, error) {
	var out Moment
	query := url.Values{"at": {at.UTC().Format(time.RFC3339Nano)}}
	if service != "" {
		query.Set("service", service)
	}
	err := r.get(ctx, "/v1/history/moment", query, &out)
	return out, err
}

// Span asks what changed from one moment on and before another one, of a service or, for
// an empty name, of all.
func (r *Remote) Span(ctx context.Context, service string, from, to time.Time) (Span, error) {
	var out Span
	err := r.get(ctx, "/v1/history/span", spanQuery(service, from, to), &out)
	return out, err
}

// NetChange asks what differs after a span from before it, of a service or, for an empty
// name, of all.
func (r *Remote) NetChange(ctx context.Context, service string, from, to time.Time) (NetChange, error) {
	var out NetChange
	err := r.get(ctx, "/v1/history/net", spanQuery(service, from, to), &out)
	return out, err
}

func spanQuery(service string, from, to time.Time) url.Values {
	query := url.Values{"from": {from.UTC().Format(time.RFC3339Nano)}, "to": {to.UTC().Format(time.RFC3339Nano)}}
	if service != "" {
		query.Set("service", service)
	}
	return query
}

// Status returns what needs attention.
func (r *Remote) Status(ctx context.Context) (Status, error) {
	var out Status
	err := r.get(ctx, "/v1/status", nil, &out)
	return out, err
}

// History asks what changed a service, or for every change for an empty name.
func (r *Remote) History(ctx context.Context, service string) (ChangeList, error) {
	var out ChangeList
	query := url.Values{}
	if service != "" {
		query.Set("service", service)
	}
	err := r.get(ctx, "/v1/history", query, &out)
	return out, err
}

// Overview asks for the status and a line for each service.
func (r *Remote) Overview(ctx context.Context) (Overview, error) {
	var out Overview
	err := r.get(ctx, "/v1/overview", nil, &out)
	return out, err
}

// Samples asks for the samples of a service, or of all together for an empty name:
// of the last hour, or the last day.
func (r *Remote) Samples(ctx context.Context, service string, day bool) (SampleSeries, error) {
	var out SampleSeries
	query := url.Values{}
	if service != "" {
		query.Set("service", service)
	}
	if day {
		query.Set("span", spanDay)
	}
	err := r.get(ctx, "/v1/samples", query, &out)
	return out, err
}

// Marks asks for the moments that charts mark.
func (r *Remote) Marks(ctx context.Context) (MarkList, error) {
	var out MarkList
	err := r.get(ctx, "/v1/marks", nil, &out)
	return out, err
}

// Replicas asks for the group of replicas.
func (r *Remote) Replicas(ctx context.Context) (ReplicaGroup, error) {
	var out ReplicaGroup
	err := r.get(ctx, "/v1/replicas", nil, &out)
	return out, err
}

// Overrides asks for the health that operators set, sorted by service and
// address.
func (r *Remote) Overrides(ctx context.Context) ([]isobar.HealthOverride, error) {
	var out HealthList
	err := r.get(ctx, "/v1/health", nil, &out)
	return out.Overrides, err
}
