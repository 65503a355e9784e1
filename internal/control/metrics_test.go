package control_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// rulesOf reads the names of the rules from the source of package invariant, so
// that a new one can't be forgotten.
func rulesOf(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "assign", "invariant", "check.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Rule") {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			name, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, name)
		}
		return true
	})
	if len(out) < 11 {
		t.Fatalf("found only %q", out)
	}
	return out
}

// TestViolationsHaveSeriesFromTheStart: a rate sees the first event of a
// counter only if the counter was there before.
func TestViolationsHaveSeriesFromTheStart(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := newParts()
	_, err := control.New(control.Options{
		Timing:   func() control.Timing { return control.Timing{Tick: time.Second, Interval: time.Second} },
		Topology: p, Reports: p, Clients: p, State: p, Views: p.views(view.NewBuilder(view.Options{})), Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	series := testhelp.Series(t, registry, "isobar_plan_violations_total")
	for _, rule := range rulesOf(t) {
		if v, ok := series[rule]; !ok || v != 0 {
			t.Errorf("rule %s has no series at 0: add it to rules in metrics.go", rule)
		}
	}
}

// TestReferenceHasEachRule: operators look up the rule of a violation there.
func TestReferenceHasEachRule(t *testing.T) {
	reference, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rulesOf(t) {
		if !strings.Contains(string(reference), "\n| `"+rule+"` | ") {
			t.Errorf("docs/reference/metrics.md has no row for rule %s", rule)
		}
	}
}

// oneChecker probes everything, and finds it up, until it is lost.
type oneChecker struct {
	mu      sync.Mutex
	checker health.Checker
	probed  []health.Key
	lost    bool
}

func (c *oneChecker) Collect(now time.Time) []health.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []health.Report
	for _, k := range c.probed {
		if !c.lost {
			out = append(out, health.Report{Checker: c.checker.ID, Service: k.Service, Address: k.Address, Status: isobar.Healthy, Arrived: now})
		}
	}
	return out
}

func (c *oneChecker) Connected(now time.Time) []health.Checker {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return nil
	}
	c.checker.LastSeen = now
	return []health.Checker{c.checker}
}

func (c *oneChecker) Ended() []health.Ended { return nil }

func (c *oneChecker) Designate(_ *isobar.Topology, designations []health.Designation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probed = nil
	for _, d := range designations {
		c.probed = append(c.probed, d.Endpoints...)
	}
}

func (c *oneChecker) Changed() <-chan struct{} { return nil }

// TestHealthGauges: a locality that is too sick shows, and verdicts that nobody
// confirms any more show their age.
func TestHealthGauges(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		well := isobar.ServiceLocality{Locality: isobar.MustLocality("us/a"), MaxRate: 100}
		sick := isobar.ServiceLocality{Locality: isobar.MustLocality("us/b"), MaxRate: 100}
		for i := range 5 {
			well.Endpoints = append(well.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i+1), Health: isobar.Healthy})
			e := isobar.Endpoint{Address: fmt.Sprintf("10.0.1.%d:80", i+1), Health: isobar.Unhealthy}
			if i == 0 {
				e.Health = isobar.Healthy
			}
			sick.Endpoints = append(sick.Endpoints, e)
		}
		p.topology.Services = []isobar.Service{{
			Name: "cart", Localities: []isobar.ServiceLocality{well, sick}, Checkers: isobar.Checkers{Count: 1, Domains: 1},
			HealthChecks: []isobar.HealthCheck{{Protocol: isobar.CheckTCP, TCP: &isobar.TCPCheck{}, Interval: time.Second, Timeout: time.Second, UnhealthyThreshold: 2, HealthyThreshold: 1}},
		}}
		p.topology.Normalize()
		checker := &oneChecker{checker: health.Checker{
			ID: "probe-1", Locality: isobar.MustLocality("us/a"), Protocols: health.ProtocolsOf(isobar.CheckTCP), Since: time.Now(),
		}}
		registry := prometheus.NewRegistry()
		var exceptions atomic.Bool
		_, stop := start(t, p, func(o *control.Options) {
			o.Checkers, o.Registerer, o.ExceptionsOnly = checker, registry, exceptions.Load
		})
		pass(20 * time.Second)
		drained := testhelp.Series(t, registry, "isobar_locality_drained")
		if len(drained) != 2 || drained["us/a,cart"] != 0 || drained["us/b,cart"] != 1 {
			t.Errorf("drained: %v", drained)
		}
		exceptions.Store(true)
		for _, name := range []string{"isobar_capacity_requests_per_second", "isobar_locality_unreachable", "isobar_locality_drained"} {
			if got := testhelp.Series(t, registry, name); len(got) != 1 || !slices.Contains(slices.Collect(maps.Keys(got)), "us/b,cart") {
				t.Errorf("%s with exceptions only: %v, want us/b", name, got)
			}
		}
		exceptions.Store(false)
		age := testhelp.Series(t, registry, "isobar_health_oldest_verdict_age_seconds")
		if got, ok := age["cart"]; !ok || got > 1 {
			t.Errorf("age while all is fresh: %v", age)
		}
		checker.mu.Lock()
		checker.lost = true
		checker.mu.Unlock()
		pass(time.Minute)
		if got := testhelp.Series(t, registry, "isobar_health_oldest_verdict_age_seconds")["cart"]; got < 55 || got > 61 {
			t.Errorf("age a minute after the checker was lost: %v s", got)
		}
		stop()
	})
}
