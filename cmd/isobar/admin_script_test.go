package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/samples"
)

// TestAdminScripts runs the commands that ask a server, and those that write
// files for clients, as scripts against a real admin interface.
func TestAdminScripts(t *testing.T) {
	sayHowToUpdate(t)
	s, err := admin.New(admin.Options{
		Objects: noObjects{}, Parser: noParser{}, Planner: reservedPlan{}, Fleet: fixedFleet{},
		Metrics: admin.Metrics{Gatherer: prometheus.NewRegistry()}, Charts: &fixedCharts{}, Rules: admin.Rules{Writable: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	address, stop, err := startAdmin(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script-admin",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "", // to be read as a diff before it is committed
		Setup: func(env *testscript.Env) error {
			env.Setenv("ADMIN", address)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"isobar": inProcess},
	})
}

// inProcess runs the program without a process of its own.
func inProcess(ts *testscript.TestScript, neg bool, args []string) {
	err := run(context.Background(), args, ts.Stdout(), ts.Stderr())
	if err != nil {
		_, _ = fmt.Fprintln(ts.Stderr(), err) // a buffer
	}
	if neg != (err != nil) {
		ts.Fatalf("isobar %v: error %v", args, err)
	}
}

// fixedCharts has the samples of one service.
type fixedCharts struct {
	mu    sync.Mutex
	marks []admin.SampleMark
}

func (c *fixedCharts) Marks() []admin.SampleMark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.marks)
}

func (c *fixedCharts) Mark(m admin.SampleMark) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marks = append(c.marks, m)
	return nil
}

func (*fixedCharts) Samples(name string, day bool) (samples.Series, bool) {
	if name != "checkout" {
		return samples.Series{}, false
	}
	nan, step := math.NaN(), samples.FineStep
	if day {
		step = samples.CoarseStep
	}
	return samples.Series{
		Begin: made, Step: step,
		Values: []samples.Values{
			{Demand: 812, Drop: 0.01, Gap: 0.005, CrossZone: 0.25},
			{Demand: nan, Drop: nan, Gap: nan, CrossZone: nan, CrossRegion: nan},
			{Demand: 815, Gap: 0.005, CrossZone: 0.25},
		},
		Sites: []samples.SiteSeries{
			{Locality: isobar.MustLocality("us-east/b"), Utilization: []float64{0.6, nan, 0.61}},
			{Locality: isobar.MustLocality("us-east/c"), Utilization: []float64{0.62, nan, nan}},
		},
	}, true
}

func fixedReserves() (time.Time, []plan.Reserve) {
	b, c := isobar.MustLocality("us-east/b"), isobar.MustLocality("us-east/c")
	return time.Now(), []plan.Reserve{
		{Service: "cart", Lost: b, Fullest: c, Utilization: 1.02, Ceiling: 0.8, Headroom: -0.02, AtLimit: true},
		{Service: "checkout", Lost: b, Fullest: c, Utilization: 1.31, Ceiling: 0.8, Headroom: -0.31},
		{Service: "pay", Lost: c, Fullest: b, Utilization: 1, Ceiling: 0.8, Headroom: -0.1, Drop: 0.1},
		{Service: "search", Lost: c, Drop: 1, Headroom: -1},
	}
}

func TestAdminAddressFromTheEnvironment(t *testing.T) {
	t.Setenv("ISOBAR_ADMIN", "ftp://nowhere")
	cmd := clientsCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{}) // with nil cobra takes those of the tests
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "ftp://nowhere") {
		t.Errorf("got %v", err)
	}
}

func TestPrintable(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain", "priority gap", "priority gap"},
		{"lines", "a\n\tb", "a  b"},
		{"terminal escapes", "\x1b[2Jx", "\uFFFD[2Jx"},
		{"bad UTF-8", "a\xffb", "a\uFFFDb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := printable(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := printable(strings.Repeat("x", 5000)); len(got) > 400 {
		t.Errorf("%d bytes", len(got))
	}
}

var made = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// fixedPlan is a control loop that published one plan.
type fixedPlan struct{}

func (fixedPlan) Current() *plan.Plan {
	near, far := isobar.MustLocality("us-east/b"), isobar.MustLocality("us-east/c")
	sent := &assign.Result{
		Service: "checkout",
		Sites:   []assign.Site{{Group: &isobar.EndpointGroup{Locality: near}}, {Group: &isobar.EndpointGroup{Locality: far}}},
		Sources: []assign.SourceResult{
			{Demand: 5, Shares: []float64{1, 0}},
			{Source: near, Demand: 1200, Shares: []float64{0.75, 0.25}},
			{Source: far, Shares: []float64{0, 1}},
		},
	}
	return &plan.Plan{Version: 4711, Made: made, Topology: &isobar.Topology{}, Services: []*plan.Service{
		{Spec: &isobar.Service{Name: "checkout"}, Result: sent}, {Spec: &isobar.Service{Name: "idle"}},
	}}
}

func (p fixedPlan) WaitRevision(context.Context, uint64) (*plan.Plan, error) { return p.Current(), nil }
func (fixedPlan) Beat() time.Time                                            { return time.Now() }
func (fixedPlan) Ticks() (uint64, time.Duration)                             { return 0, 0 }
func (fixedPlan) Reserves() (time.Time, []plan.Reserve)                      { return time.Time{}, nil }

func (fixedPlan) Losses(*plan.Plan) (time.Time, []plan.ZoneLoss, bool) {
	return time.Time{}, nil, false
}

// reservedPlan is a fixed plan with its reserves.
type reservedPlan struct{ fixedPlan }

func (reservedPlan) Reserves() (time.Time, []plan.Reserve) { return fixedReserves() }

// noObjects has nothing; these commands never ask for objects.
type noObjects struct{}

func (noObjects) List() []isobar.Object { return nil }
func (noObjects) Get(string) (isobar.Object, error) {
	return isobar.Object{}, isobar.ErrNotFound
}

func (noObjects) Put(string, isobar.Service, uint64) (isobar.Object, uint64, error) {
	return isobar.Object{}, 0, isobar.ErrNotFound
}
func (noObjects) PutAll([]isobar.Service) (uint64, error)         { return 0, isobar.ErrNotFound }
func (noObjects) Delete(string, uint64) (uint64, error)           { return 0, isobar.ErrNotFound }
func (noObjects) Overrides() []isobar.HealthOverride              { return nil }
func (noObjects) SetHealths(*isobar.HealthChange) (uint64, error) { return 0, isobar.ErrNotFound }

func (noObjects) ForceHealths(context.Context, *isobar.HealthChange) error {
	return isobar.ErrUnavailable
}

type noParser struct{}

func (noParser) ParseService(string, []byte) (isobar.Service, []admin.Problem, error) {
	return isobar.Service{}, nil, isobar.ErrInvalid
}

func (noParser) ParseServices([]byte) ([]isobar.Service, []admin.Problem, error) {
	return nil, nil, isobar.ErrInvalid
}

// Explain implements admin.Planner.
func (fixedPlan) Explain(p *plan.Plan, service string, source isobar.Locality) (plan.Explanation, error) {
	full := isobar.MustLocality("us-east/b")
	return plan.Explanation{
		Service: service, Source: source, Version: p.VersionString(), Made: p.Made,
		Summary: "us-east/b is full; 25.0% goes on to us-east/c.",
		Mode:    isobar.ModeBounded, MaxShift: 20, Coverage: 0.96, Hold: "coverage 60%",
		Demand: plan.DemandExplained{Rate: 1200, Raw: 1230.5, Nodes: 12, Held: 1, Service: 3000, Errors: 2.5, Measured: true, ReportAge: 2.34},
		Localities: []plan.LocalityExplained{
			{
				Locality: full, Price: 4.2, Cost: 4.2, Endpoints: 10, Healthy: 9, Draining: 1, Capacity: 1125, Ceiling: 0.8, Limit: 900,
				Load: 890, UnmanagedLoad: 10, Utilization: 0.8, Target: 0.75, Published: 0.75, ObservedShare: 0.741, Latency: 12.34, Full: true,
			},
			{
				Locality: isobar.MustLocality("us-east/c"), Distance: 1, Price: 1.5, Cost: 2.5, Endpoints: 10, Healthy: 10, Capacity: 1000,
				Ceiling: 0.8, Limit: 800, Load: 310, Utilization: 0.31, Target: 0.25, Published: 0.25, ObservedShare: 0.259,
				Counts: "named_metrics.kv", Limits: []plan.LimitExplained{
					{Metric: "named_metrics.kv", Max: 0.9, State: load.LimitLearned, Value: 0.25, Capacity: 620, Low: 600, High: 640, Allowed: 618, Counts: true},
					{Metric: "in_flight", Max: 40, State: load.LimitFar, Value: 3.5},
					{Metric: "cpu_utilization", Max: 0.8, DryRun: true, State: load.LimitAssumed, Value: 0.82, Capacity: 500, Allowed: 500, Counts: true, Kept: true},
					{Metric: "rate", Max: 100, State: load.LimitExact, Value: 31, Capacity: 1000, Allowed: 1000},
					{Metric: "mem_utilization", Max: 0.9, State: load.LimitAbsent},
				},
			},
			{
				Locality: isobar.MustLocality("eu-west/a"), Tier: -1, Distance: 100, Assumed: true, Cost: 100, Endpoints: 3, Barred: true,
			},
		},
		Binding:  plan.BindingExplained{Kind: plan.BindingCeiling, Locality: &full, Text: "us-east/b is at its ceiling: 900 of 900 requests/s"},
		RunnerUp: &plan.RunnerUp{Locality: isobar.MustLocality("eu-west/a"), Worse: 97.5},
		Drop:     0.01, CeilingScale: 1.05, Gap: 0.001, PlanGap: 0.004,
		Reasons:   []assign.Reason{{Code: assign.ReasonBounded, Locality: full, Text: "clamped at 20 points"}},
		Deviation: &plan.DeviationSeen{Points: 12, Cause: "zone-aware routing"},
		DataPlanes: dataplane.PredictAll(dataplane.Cluster{
			Priorities: []dataplane.Priority{{Localities: []dataplane.Locality{
				{Locality: full, Weight: 3, Endpoints: []dataplane.Endpoint{{Address: "10.0.0.1:80"}}},
				{Locality: isobar.MustLocality("us-east/c"), Weight: 1, Endpoints: []dataplane.Endpoint{
					{Address: "10.0.0.2:80"}, {Address: "10.0.0.3:80", Health: isobar.Unhealthy},
				}},
			}}},
			Drops: []float64{0.01},
		}, dataplane.DefaultOptions()),
		Warnings: []string{"the latency from us-east/b to eu-west/a is assumed: set network.latency_ms"},
		Clients:  []plan.ClientExplained{{Client: "web", Rate: 1000}, {Client: "app\x1b[2J", Rate: 200}},
	}, nil
}

// fixedFleet is two clients or so.
type fixedFleet struct{}

func (fixedFleet) ClientsOf(service string) []admin.Client {
	return slices.DeleteFunc(fixedClients(), func(c admin.Client) bool { return !slices.Contains(c.Types["eds"].Names, service) })
}
func (fixedFleet) Clients() []admin.Client             { return fixedClients() }
func (fixedFleet) Subscribers() []admin.ServiceClients { return nil }
func (fixedFleet) UnknownClusters() []string           { return nil }

func fixedClients() []admin.Client {
	return []admin.Client{
		{
			ID: "web-1", Cluster: "web", Locality: "us-east/b", APIVersion: "v3", InSync: true,
			Types: map[string]admin.ClientType{
				"eds": {Subscribed: 2, SentVersion: "4711", AckedVersion: "4711", AgeSeconds: 3.2, InSync: true},
				"cds": {
					Subscribed: -1, SentVersion: "4700", AckedVersion: "4700", AgeSeconds: 90, InSync: true,
					NACK: &admin.NACK{Version: "4690", Text: "recovered from", At: made},
				},
			},
		},
		{
			ID: "web-2", Cluster: "web", Locality: "eu-west/a", APIVersion: "2017",
			Types: map[string]admin.ClientType{"eds": {
				Subscribed: 1, SentVersion: "4711", AckedVersion: "4710", AgeSeconds: 61, Rejected: 1,
				NACK: &admin.NACK{Version: "4711", Text: "duplicate locality\nin priority 0", At: made},
			}},
			LRS: &admin.ClientLRS{Rejected: 3, Reason: "negative interval", Excess: 12},
		},
		{
			ID: "web-3", Cluster: "web", Locality: "us-east/b", APIVersion: "v3", InSync: true,
			Types:   map[string]admin.ClientType{"lds": {Subscribed: 1, SentVersion: "4711", AckedVersion: "4711", AgeSeconds: 3, InSync: true, Missing: 1}},
			Missing: []admin.MissingService{{Name: "chekout", Nearest: []string{"checkout"}}},
		},
		{ID: "", Cluster: "app", Locality: ""},
	}
}
