package plan_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// limitedFleet is us/a and us/b, of four endpoints and max_rate 1000 each.
// Clients in us/a send what they are told, and pass on what endpoints report.
type limitedFleet struct {
	*loop

	k           int
	demand      float64
	variability float64
	metrics     func(zone string, rate float64) map[string]float64 // of an endpoint; rate is that of the zone
	gauge       func(zone string, rate float64) float64            // requests in progress in a zone
}

// newLimited makes one whose plans use the declarations: then the rate of us/a follows
// demand, from which limits are learned. With what requests tell of the service time it
// would be constant.
func newLimited(t *testing.T, declared float64, limits ...isobar.Limit) *limitedFleet {
	t.Helper()
	return &limitedFleet{loop: twoZones(t, declared, &isobar.Service{Limits: limits, CapacityTrust: isobar.TrustDeclared}), demand: 700, variability: 0.3}
}

// limit puts limits into force, as an operator does who writes the file again.
func (f *limitedFleet) limit(limits ...isobar.Limit) {
	next := *f.top
	next.Services = []isobar.Service{f.top.Services[0]}
	next.Services[0].Limits = limits
	next.Revision++
	f.top = &next
}

func (f *limitedFleet) tick() {
	f.t.Helper()
	f.k++
	rate := f.demand * (1 + f.variability*math.Sin(float64(f.k)/10))
	opened := f.now
	f.now = f.now.Add(interval)
	sr := load.ServiceReport{Service: "checkout", Interval: interval}
	const clients = 3
	for _, z := range []string{"us/a", "us/b"} {
		share := 0.0
		if a := f.plan.Assignment("checkout", loc("us/a")); a != nil {
			share = a.Share(loc(z))
		}
		n := uint64(rate * share * interval.Seconds() / clients)
		l := load.LocalityReport{Locality: new(loc(z)), Issued: n, HasIssued: true, Succeeded: n, Details: &load.LocalityDetails{}}
		if f.gauge != nil {
			l.InProgress = uint32(math.Round(f.gauge(z, rate*share) / clients))
		}
		if f.metrics != nil && n > 0 {
			reported := f.metrics(z, rate*share)
			for _, name := range []string{load.MetricApplication, load.MetricCPU, "heap"} { // sorted
				if v, ok := reported[name]; ok {
					l.Details.Metrics = append(l.Details.Metrics, load.MetricSum{Name: name, Requests: n, Total: float64(n) * v})
				}
			}
		}
		sr.Localities = append(sr.Localities, l)
	}
	var windows []load.StreamWindow
	for i := range load.StreamID(clients) {
		windows = append(windows, load.StreamWindow{
			Stream: i + 1, Opened: opened, Node: load.Node{ID: "n", Cluster: "web", Locality: loc("us/a"), Agent: load.AgentEnvoy},
			Reports: []load.Report{{Arrived: f.now, Services: []load.ServiceReport{sr}}},
		})
	}
	f.turn(f.decider.Tick, windows...)
	if p := f.plan.Violations; len(p) > 0 {
		f.t.Fatal(p)
	}
}

func (f *limitedFleet) run(ticks int) {
	f.t.Helper()
	for range ticks {
		f.tick()
	}
}

func (f *limitedFleet) explain() plan.Explanation {
	f.t.Helper()
	e, err := f.plan.Explain("checkout", loc("us/a"))
	if err != nil {
		f.t.Fatal(err)
	}
	return e
}

func (f *limitedFleet) row(z string) plan.LocalityExplained {
	f.t.Helper()
	for _, r := range f.explain().Localities {
		if r.Locality == loc(z) {
			return r
		}
	}
	f.t.Fatalf("no %s", z)
	return plan.LocalityExplained{}
}

// allowed is what may land in a zone under the plan in force.
func (f *limitedFleet) allowed(z string) float64 {
	r := f.row(z)
	return r.Ceiling*r.Capacity - r.UnmanagedLoad
}

// A limit that works at us/a goes on to work when the capacity of us/b is learned,
// with which us/a, of which nothing is known, counts then.
func TestLimitStaysWhenNeighboursLearn(t *testing.T) {
	f := newLimited(t, 0, isobar.Limit{Metric: "named_metrics.heap", Max: 1})
	f.metrics = func(zone string, rate float64) map[string]float64 {
		if zone == "us/a" {
			return map[string]float64{"heap": rate / 250}
		}
		return map[string]float64{load.MetricApplication: rate / 1400}
	}
	f.run(250)
	if b := f.row("us/b"); b.Learned == nil || b.Learned.InUse <= 0 {
		t.Fatalf("nothing is learned of us/b: %+v", b)
	}
	if got := f.allowed("us/a"); got > 275 {
		t.Errorf("us/a may carry %.0f/s, its limit is reached at 250", got)
	}
}

// proportional is a metric that reaches 1 in us/a, and in us/b, at these rates.
func proportional(name string, a, b float64) func(string, float64) map[string]float64 {
	return func(zone string, rate float64) map[string]float64 {
		return map[string]float64{name: rate / map[string]float64{"us/a": a, "us/b": b}[zone]}
	}
}

// A limit of utilization binds where endpoints can serve less than max_rate
// says, is named as what binds, and survives a restart.
func TestLimitOfUtilizationBinds(t *testing.T) {
	f := newLimited(t, 1000, isobar.Limit{Metric: isobar.MetricUtilization, Max: 0.7})
	f.metrics = proportional(load.MetricApplication, 700, 1400)
	f.demand = 970
	f.run(200)
	a := f.row("us/a")
	if a.Counts != isobar.MetricUtilization || len(a.Limits) != 1 || !a.Limits[0].Counts || a.Limits[0].State != load.LimitLearned {
		t.Fatalf("us/a: %+v", a)
	}
	if got := f.allowed("us/a"); math.Abs(got-490) > 25 {
		t.Errorf("us/a may carry %.0f/s, want about 490", got)
	}
	if b := f.row("us/b"); b.Counts != plan.CountsDeclared || f.allowed("us/b") != 800 {
		t.Errorf("us/b counts %s, %.0f/s", b.Counts, f.allowed("us/b"))
	}
	for range 40 { // up to the crest
		if f.tick(); math.Sin(float64(f.k)/10) > 0.99 {
			break
		}
	}
	e := f.explain()
	if e.Binding.Kind != plan.BindingLimit || !strings.Contains(e.Binding.Text, "utilization") {
		t.Errorf("binding %+v", e.Binding)
	}
	before := f.allowed("us/a")

	data, err := json.Marshal(f.plan.Save())
	if err != nil {
		t.Fatal(err)
	}
	var saved plan.Saved
	if err := json.Unmarshal(data, &saved); err != nil {
		t.Fatal(err)
	}
	next := newLimited(t, 1000, f.top.Services[0].Limits...)
	next.metrics, next.demand, next.now, next.k = f.metrics, f.demand, f.now.Add(interval), f.k
	if next.plan, err = plan.Restore(&saved, next.top, health.NewTable(nil), next.now, 1); err != nil {
		t.Fatal(err)
	}
	next.decider = plan.NewDecider(interval, saved.Demand(), next.now)
	if got := next.allowed("us/a"); math.Abs(got-before) > 1e-6 {
		t.Errorf("%.1f/s after a restart, was %.1f/s", got, before)
	}
	next.run(3)
	if got := next.allowed("us/a"); math.Abs(got-before) > 25 {
		t.Errorf("%.1f/s after a restart and ticks, was %.1f/s", got, before)
	}
}

// The least of several limits counts; a dry run only tells what it would do.
func TestTheLeastLimitCounts(t *testing.T) {
	f := newLimited(
		t, 1000,
		isobar.Limit{Metric: isobar.MetricInFlight, Max: 20},                      // 80 in the zone
		isobar.Limit{Metric: isobar.NamedMetrics + "heap", Max: 40},               // in GB
		isobar.Limit{Metric: isobar.NamedMetrics + "heap", Max: 30, DryRun: true}, //
		isobar.Limit{Metric: isobar.MetricRate, Max: 190}, isobar.Limit{Metric: isobar.MetricCPU, Max: 0.9},
	)
	f.gauge = func(_ string, rate float64) float64 { return rate / 10 } // 100 ms: full at 800/s
	f.metrics = func(zone string, rate float64) map[string]float64 {
		if zone == "us/b" {
			return map[string]float64{"heap": 8}
		}
		return map[string]float64{"heap": 8 + 32*rate/600} // full at 600/s
	}
	f.demand = 650
	f.run(200)
	a := f.row("us/a")
	if a.Counts != "named_metrics.heap" {
		t.Fatalf("us/a: counts %s, %+v", a.Counts, a.Limits)
	}
	for i, want := range []struct {
		state    load.LimitState
		capacity float64
		counts   bool
	}{
		{load.LimitLearned, 800, false}, {load.LimitLearned, 600, true}, {load.LimitLearned, 412, true}, {load.LimitExact, 760, false},
		{load.LimitAbsent, 0, false},
	} {
		got := a.Limits[i]
		if got.State != want.state || math.Abs(got.Capacity-want.capacity) > 0.06*want.capacity || got.Counts != want.counts {
			t.Errorf("%d: %s", i, got.String())
		}
	}
	if got := f.allowed("us/a"); math.Abs(got-600) > 25 {
		t.Errorf("us/a may carry %.0f/s, want 600", got)
	}
	// What does not follow the rate never binds.
	if b := f.row("us/b"); b.Counts != isobar.MetricRate || b.Limits[1].State.Tells() || b.Limits[1].Allowed > 0 {
		t.Errorf("us/b: counts %s, %s", b.Counts, b.Limits[1].String())
	}
	if text := strings.Join(f.explain().Warnings, "\n"); !strings.Contains(text, "us/a has a limit of cpu_utilization, but no load report") {
		t.Errorf("warnings: %s", text)
	}

	// The dry run comes into force: from what is in force, a step at a time.
	before := f.allowed("us/a")
	f.limit(isobar.Limit{Metric: isobar.NamedMetrics + "heap", Max: 30})
	for range 60 {
		f.tick()
		now := f.allowed("us/a")
		if now < before*0.9499 {
			t.Fatalf("from %.1f/s to %.1f/s in a tick", before, now)
		}
		before = now
	}
	if math.Abs(before-412) > 25 {
		t.Errorf("us/a may carry %.0f/s, want 412", before)
	}
}

// A constant rate shows no line; what is above its limit then yields in
// proportion until it fits.
func TestLimitAtASteadyRate(t *testing.T) {
	f := newLimited(t, 1000, isobar.Limit{Metric: isobar.MetricUtilization, Max: 0.8})
	f.demand, f.variability = 1100, 0
	f.metrics = func(zone string, rate float64) map[string]float64 {
		return map[string]float64{load.MetricCPU: 0.1 + 0.9*rate/map[string]float64{"us/a": 700, "us/b": 1500}[zone]}
	}
	f.run(150)
	if a := f.row("us/a"); a.ORCA > 0.83 || a.ORCA < 0.72 {
		t.Errorf("us/a is at %.0f%%, %+v", 100*a.ORCA, a.Limits)
	}
}

// Metrics that lie, leak, are noise or cease never empty a zone, never make
// clients drop, and never move a fleet by more than the bounds say.
func TestBadMetricsTakeNothingAway(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, metric := range map[string]func(k int, rate float64) (float64, bool){
		"always full":   func(int, float64) (float64, bool) { return 1, true },
		"far above":     func(int, float64) (float64, bool) { return 90, true },
		"a leak":        func(k int, _ float64) (float64, bool) { return float64(k) / 100, true },
		"noise":         func(int, float64) (float64, bool) { return 2 * r.Float64(), true },
		"now and then":  func(k int, rate float64) (float64, bool) { return rate / 1000, k%7 == 0 },
		"nothing":       func(int, float64) (float64, bool) { return 0, false },
		"upside down":   func(_ int, rate float64) (float64, bool) { return 100 / (1 + rate), true },
		"a jump":        func(k int, rate float64) (float64, bool) { return rate / 1000 * float64(1+9*(k/100)), true },
		"negative":      func(_ int, rate float64) (float64, bool) { return -rate, true },
		"above at once": func(k int, rate float64) (float64, bool) { return rate / 1000 * (1 + 3*float64(k%50/25)), true },
	} {
		t.Run(name, func(t *testing.T) {
			f := newLimited(t, 1000, isobar.Limit{Metric: isobar.NamedMetrics + "heap", Max: 1})
			f.demand = 400
			f.metrics = func(_ string, rate float64) map[string]float64 {
				v, told := metric(f.k, rate)
				if !told {
					return nil
				}
				return map[string]float64{"heap": v}
			}
			before := map[string]float64{"us/a": 800, "us/b": 800}
			for range 500 {
				f.tick()
				for z, was := range before {
					now := f.allowed(z)
					if now < 0.9499*was || now < 399.99 || now > 800.01 {
						t.Fatalf("tick %d: %s may carry %.1f/s, was %.1f/s", f.k, z, now, was)
					}
					before[z] = now
				}
				if e := f.explain(); e.Drop > 0 || len(e.Localities) != 2 {
					t.Fatalf("%+v", e)
				}
			}
		})
	}
}

// What is not reported any more stays for a while, and is then let go.
func TestLimitOutlivesItsReportsForAWhile(t *testing.T) {
	f := newLimited(t, 1000, isobar.Limit{Metric: isobar.MetricUtilization, Max: 0.7})
	f.metrics = proportional(load.MetricApplication, 700, 1400)
	f.run(200)
	f.metrics = nil
	before := f.allowed("us/a")
	f.run(55)
	a := f.row("us/a")
	if a.Limits[0].State != load.LimitStale || math.Abs(f.allowed("us/a")-before) > 1 {
		t.Errorf("after 55 intervals: %s, %.0f/s, was %.0f/s", a.Limits[0].State, f.allowed("us/a"), before)
	}
	f.run(40)
	if a := f.row("us/a"); a.Counts != plan.CountsDeclared || f.allowed("us/a") != 800 {
		t.Errorf("after 95 intervals: counts %s, %.0f/s", a.Counts, f.allowed("us/a"))
	}
}

// Where everything is at its limit all ceilings rise alike, and nothing is
// dropped.
func TestAllAtTheirLimits(t *testing.T) {
	f := newLimited(t, 1000, isobar.Limit{Metric: isobar.MetricUtilization, Max: 0.7})
	f.metrics = proportional(load.MetricApplication, 800, 800) // 560 each
	f.demand, f.variability = 1300, 0.1
	f.run(200)
	e := f.explain()
	if e.CeilingScale < 1.05 || e.Drop > 0 || e.Localities[0].Published < 0.3 || e.Localities[1].Published < 0.3 {
		t.Errorf("scale %.2f, drop %.2f, shares %.2f and %.2f", e.CeilingScale, e.Drop, e.Localities[0].Published, e.Localities[1].Published)
	}
}

// Without max_rate a limit is what is known of the capacity.
func TestLimitInThePlaceOfARate(t *testing.T) {
	f := newLimited(t, 0, isobar.Limit{Metric: isobar.MetricInFlight, Max: 20})
	f.gauge = func(zone string, rate float64) float64 {
		return rate / map[string]float64{"us/a": 5, "us/b": 20}[zone] // 80 at 400/s, and at 1600/s
	}
	f.demand = 500
	f.run(300)
	a := f.row("us/a")
	if a.Counts != isobar.MetricInFlight || math.Abs(f.allowed("us/a")-400) > 25 {
		t.Errorf("us/a counts %s, %.0f/s, %+v", a.Counts, f.allowed("us/a"), a.Limits)
	}
}
