package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestOperateScripts runs the commands by which operators change the plan
// against a real admin interface.
func TestOperateScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script-operate",
		Setup: func(env *testscript.Env) error {
			options := admin.Options{
				Objects: noObjects{}, Parser: noParser{}, Planner: fixedPlan{}, Explain: fixedExplanation, Clients: fixedClients,
				Operator: &orders{}, Preview: fixedPreview, Gatherer: prometheus.NewRegistry(),
			}
			for _, name := range []string{"READONLY", "ADMIN"} {
				options.Writable = name == "ADMIN"
				s, err := admin.New(options)
				if err != nil {
					return err
				}
				srv := httptest.NewServer(s.Handler())
				env.Defer(srv.Close)
				env.Setenv(name, srv.URL)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"isobar": inProcess},
	})
}

// orders remembers what it was told, as the loop does.
type orders struct{ paused plan.Pauses }

func (o *orders) plan() *plan.Plan { return &plan.Plan{Version: 4712, Paused: o.paused} }

func (o *orders) Pause(_ context.Context, p plan.Pause) (*plan.Plan, []string, error) {
	p.Since = made
	o.paused = o.paused.With(p)
	return o.plan(), nil, nil
}

func (o *orders) Resume(_ context.Context, service, _ string) (*plan.Plan, []string, error) {
	paused, err := o.paused.Without(service)
	if err != nil {
		return nil, nil, err
	}
	o.paused = paused
	return o.plan(), nil, nil
}

func (o *orders) Rollback(ctx context.Context, version uint64, p plan.Pause) (*plan.Plan, []string, error) {
	if version != 4700 {
		return nil, nil, fmt.Errorf("version %d: %w: what is kept begins with version 4700", version, isobar.ErrNotFound)
	}
	next, _, err := o.Pause(ctx, p)
	return next, []string{"it is in force, but not saved: " + errors.New("no space left on device").Error()}, err
}

func (o *orders) History(_ context.Context, service string) ([]plan.Change, error) {
	if service != "" && service != "checkout" {
		return []plan.Change{}, nil
	}
	a, b := isobar.MustLocality("us-east/b"), isobar.MustLocality("us-east/c")
	moved := plan.ServiceChange{
		Service: "checkout", Reason: "10.0 points a tick at the most", Sites: []isobar.Locality{a, b}, After: 0.05,
		Sources: []plan.SourceChange{{Source: a, Before: []uint16{10_000, 0}, After: []uint16{9000, 1000}}, {Source: b, After: []uint16{0, 10_000}}},
	}
	return []plan.Change{
		{Version: 4711, Previous: 4710, Made: made, Trigger: plan.TriggerOperator, Who: "ann", Reason: "pause: canary", Services: []plan.ServiceChange{}},
		{Version: 4710, Previous: 4709, Made: made, Trigger: plan.TriggerTick, Services: []plan.ServiceChange{moved}},
	}, nil
}

func fixedPreview(context.Context, []byte) (plan.Difference, []admin.Problem, error) {
	a, b := isobar.MustLocality("us-east/b"), isobar.MustLocality("us-east/c")
	return plan.Difference{Version: "4711", Ticks: 4, Settled: true, Same: 3, Services: []plan.ServiceDifference{{
		Service: "checkout", Change: plan.ChangeChanged,
		Localities: []plan.LocalityDifference{{Locality: a, Utilization: plan.Three{Before: 0.95, First: 0.85, Settled: 0.6}}},
		Sources: []plan.SourceDifference{{Source: a, Demand: 100, Shares: []plan.ShareDifference{
			{Locality: a, Share: plan.Three{Before: 1, First: 0.9, Settled: 0.6}}, {Locality: b, Share: plan.Three{First: 0.1, Settled: 0.4}},
		}}},
	}}}, nil, nil
}
