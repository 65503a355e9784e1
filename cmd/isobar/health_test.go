package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
)

// TestHealthText: what operators see of verdicts, votes and checkers.
func TestHealthText(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	a := isobar.MustLocality("us/a")
	report := health.ServiceReport{
		Service: "checkout",
		Summary: health.Summary{Endpoints: 2, Healthy: 1, Down: 1, Divided: 1, OldestConfirmed: now.Add(-90 * time.Second)},
		Drained: []isobar.Locality{a},
		Endpoints: []health.Verdict{{
			Key: health.Key{Service: "checkout", Address: "10.0.0.1:80"}, Locality: a, Status: isobar.Timeout,
			Since: now.Add(-5 * time.Minute), Confirmed: now.Add(-2 * time.Second), Why: "2 of 3 say down", Divided: true, Zones: []isobar.Locality{a},
			Votes: []health.Vote{
				{Checker: "c1", Status: isobar.Timeout, Heard: now.Add(-time.Second), Fresh: true, Counts: true, Metadata: "{\"rtt_ms\":1.5}\x1b[2J"},
				{Checker: "c2", Status: isobar.Healthy, Heard: now.Add(-3 * time.Minute), Counts: true},
				{Checker: "c3"},
				{Checker: "c4", Status: isobar.Unhealthy, Heard: now, Fresh: true},
			},
		}},
	}
	var out strings.Builder
	if err := writeVerdicts(&out, &report, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"timeout, divided (down seen from us/a)", "c1=timeout", "c2=healthy(3m ago)", "c3=-", "c4=unhealthy(not counted yet)",
		"5m", "2 of 3 say down", "drained: us/a", "10.0.0.1:80, by c1: {\"rtt_ms\":1.5}\uFFFD[2J\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	out.Reset()
	list := admin.VerdictList{Services: []health.ServiceReport{report}, Checkers: []admin.Checker{{ID: "c1\x1b[31m", Locality: a, Protocols: "http+tcp", Designated: 2, LastReport: now.Add(-time.Second)}}}
	if err := writeHealth(&out, &list, now); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("a checker's name reaches the terminal as it is: %q", out.String())
	}
	for _, want := range []string{"checkout", "2m", "1 divided", "http+tcp", "1s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := writeHealth(&out, &admin.VerdictList{}, now); err != nil || !strings.Contains(out.String(), "no service has health_checks") {
		t.Errorf("with nothing to show: %v %s", err, out.String())
	}
}

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

func (o *operated) SetHealths(order *isobar.HealthChange) (uint64, error) {
	address, status := order.Addresses[0], order.Status
	if order.Service != "checkout" || address == "10.0.0.9:8080" {
		return 0, isobar.ErrNotFound
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, status.String())
	o.last = []isobar.HealthOverride{{
		Service: order.Service, Address: address, Locality: isobar.MustLocality("us-east/b"), Status: status, Who: order.Who, Reason: order.Reason,
	}}
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
