package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
)

// TestHealthScripts runs what operators do about health as scripts against a
// real admin interface.
func TestHealthScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script-health",
		Setup: func(env *testscript.Env) error {
			o := &operated{}
			env.Values[operatedKey{}] = o
			return serveAdmin(env, admin.Options{
				Objects: o, Parser: noParser{}, Planner: fixedPlan{}, Fleet: fixedFleet{},
				HealthChecks: o, Operator: o, Metrics: admin.Metrics{Gatherer: prometheus.NewRegistry()},
			})
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"isobar": inProcess, "said": wantSaid},
	})
}

type operatedKey struct{}

// wantSaid compares what operators said so far with its arguments.
func wantSaid(ts *testscript.TestScript, _ bool, args []string) {
	o, _ := ts.Value(operatedKey{}).(*operated)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.said, args) {
		ts.Fatalf("operators said %s, want %s", strings.Join(o.said, " "), strings.Join(args, " "))
	}
}

// operated is a server with one service, of which a mass flip is held.
type operated struct {
	noObjects
	admin.Operator

	mu       sync.Mutex
	said     []string
	believed bool
	last     []isobar.HealthOverride // one at most
}

func (o *operated) Overrides() []isobar.HealthOverride {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

func (o *operated) SetHealth(service, address string, status isobar.HealthStatus) (uint64, error) {
	if service != "checkout" || address == "10.0.0.9:8080" {
		return 0, isobar.ErrNotFound
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, status.String())
	o.last = []isobar.HealthOverride{{Service: service, Address: address, Locality: isobar.MustLocality("us-east/b"), Status: status}}
	if status == isobar.Unknown {
		o.last = nil
	}
	return 7, nil
}

// Breaches refuses the second endpoint.
func (o *operated) Breaches(_ context.Context, d *admin.Drain) ([]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch d.Health.Address {
	case "10.0.0.2:8080":
		return []string{"checkout: us/a at 93.0% of its capacity, above its ceiling of 80.0%", "checkout: us/b at 81.0% of its capacity, above its ceiling of 80.0%"}, nil
	case "10.0.0.3:8080":
		return nil, context.DeadlineExceeded
	}
	return nil, nil
}

func (*operated) Checkers() []admin.Checker { return nil }

func (o *operated) HealthOverview(ctx context.Context) ([]health.ServiceReport, error) {
	return o.Health(ctx, "")
}

func (o *operated) Health(_ context.Context, service string) ([]health.ServiceReport, error) {
	if service != "" && service != "checkout" {
		return nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r := health.ServiceReport{Service: "checkout", Summary: health.Summary{Endpoints: 1, Healthy: 1}}
	if !o.believed {
		r.Summary.Held = 1
		r.Alarm = &health.Alarm{Service: "checkout", Why: "half of it at once"}
	}
	return []health.ServiceReport{r}, nil
}

func (o *operated) Release(context.Context, string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	held := !o.believed
	o.believed = true
	return held, nil
}
