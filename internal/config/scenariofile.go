package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// Scenario is a scenario file of `isobar simulate`: a fleet and what happens to
// it, with defaults filled in.
type Scenario struct {
	Title    string
	Seed     uint64
	Services []isobar.Service // sorted by name; addresses are made up
	Network  *isobar.Network

	Length, Warmup         time.Duration
	Tick, ReportInterval   time.Duration
	ReportDelay, PushDelay ScenarioDelay
	HealthDelay, Timeout   time.Duration
	Undeclared             bool
	UtilizationNoise       float64
	CrossZone, CrossRegion float64 // dollars per million requests
	Demand                 []ScenarioDemand
	Capacity               []ScenarioCapacity
	Metrics                []ScenarioMetric `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
	Outages                []ScenarioOutage
	Losses                 []ScenarioLoss `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
	Degradation            Degradation    `json:",omitzero"`  //nolint:tagliatelle // called as its neighbours, in golden files only
}

// ScenarioDelay is how long messages take.
type ScenarioDelay struct{ Base, Jitter time.Duration }

// ScenarioDemand is what clients of a service in one locality send.
type ScenarioDemand struct {
	Service string
	From    isobar.Locality
	Client  string  `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only; empty = clients
	Rate    float64 // requests/s
	Shape   []ScenarioShape
	Noise   float64
	Clients int
	GRPC    bool
	Silent  int // of Clients
	Liars   int // of Clients
	Lie     float64
	LieFrom time.Duration
}

// ScenarioCapacity is what endpoints really serve, as a factor on what is
// declared.
type ScenarioCapacity struct {
	Service  string // empty = all
	Locality isobar.Locality
	Factor   float64
	Shape    []ScenarioShape
}

// ScenarioOutage lets endpoints fail.
type ScenarioOutage struct {
	Service   string // empty = all
	Locality  isobar.Locality
	Share     float64
	From, To  time.Duration
	Period    time.Duration
	Unnoticed bool
}

// Bounds and defaults of scenarios.
const (
	maxScenarioLength    = 7 * 24 * time.Hour
	maxScenarioEndpoints = 1_000   // of a locality
	maxScenarioFleet     = 100_000 // endpoints in all
	maxScenarioClients   = 1_000   // of a source
	maxScenarioRoutes    = 20e6    // clients times endpoints of their service
	maxScenarioTicks     = 200_000

	defaultScenarioLength = 10 * time.Minute
	defaultWarmup         = time.Minute
	defaultHealthDelay    = 10 * time.Second
	defaultTimeout        = time.Second
	defaultScenarioCount  = 5 // clients of a source
)

// DecodeScenario reads a scenario file; file is the name that errors carry.
func DecodeScenario(file string, data []byte) (*Scenario, []Problem, error) {
	doc := strict.Parse(file, data)
	s := &Scenario{
		Seed: 1, Length: defaultScenarioLength, Warmup: defaultWarmup, Tick: DefaultInterval, ReportInterval: DefaultInterval,
		ReportDelay: ScenarioDelay{Base: 100 * time.Millisecond}, PushDelay: ScenarioDelay{Base: 100 * time.Millisecond, Jitter: 200 * time.Millisecond},
		HealthDelay: defaultHealthDelay, Timeout: defaultTimeout,
	}
	if root, ok := doc.Root(); ok {
		readScenario(root, s)
	}
	warnings, err := doc.Result()
	if err != nil {
		return nil, warnings, err
	}
	return s, warnings, nil
}

func readScenario(root strict.Value, s *Scenario) {
	var named []placedRegion
	warmupAt := root
	r := scenarioReader{scenario: s, sizes: map[string][]int{}}
	root.Object([]strict.Field{
		{Name: "title", Read: func(v strict.Value) { s.Title, _ = v.Text() }},
		{Name: "seed", Read: func(v strict.Value) {
			if n, ok := v.Int(strict.Range{Max: 1 << 53}); ok {
				s.Seed = uint64(n) //nolint:gosec // >= 0
			}
		}},
		spanField("length", &s.Length, MinInterval, maxScenarioLength),
		{Name: "warmup", Read: func(v strict.Value) {
			warmupAt = v
			spanField("", &s.Warmup, 0, maxScenarioLength).Read(v)
		}},
		interval("tick", &s.Tick),
		interval("report_interval", &s.ReportInterval),
		delayField("report_delay", &s.ReportDelay),
		delayField("push_delay", &s.PushDelay),
		spanField("health_delay", &s.HealthDelay, 0, time.Hour),
		spanField("timeout", &s.Timeout, time.Millisecond, time.Hour),
		boolField("undeclared", &s.Undeclared),
		floatField("utilization_noise", &s.UtilizationNoise, noiseRange),
		{Name: "price", Read: func(v strict.Value) {
			v.Object([]strict.Field{
				floatField("cross_zone", &s.CrossZone, dollarRange),
				floatField("cross_region", &s.CrossRegion, dollarRange),
			})
		}},
		{Name: "network", Read: func(v strict.Value) { s.Network = readNetwork(v, &named) }},
		{Name: "services", Required: true, Read: r.services},
		{Name: "demand", Required: true, Read: r.demand},
		{Name: "capacity", Read: r.capacity},
		{Name: "outages", Read: r.outages},
		{Name: "losses", Read: r.losses},
		{Name: "degradation", Read: func(v strict.Value) { readDegradation(v, &s.Degradation, s.ReportInterval) }},
	})
	checkRegions(named, s.Services)
	if s.Network == nil {
		s.Network, _ = isobar.NewNetwork(nil) // no rules, no error
	}
	switch {
	case s.Warmup+s.Tick > s.Length:
		warmupAt.Errorf("write a warmup that is shorter than the length", "nothing is left to measure: of %v, %v are warm-up", s.Length, s.Warmup)
	case s.Length/min(s.Tick, s.ReportInterval) > maxScenarioTicks:
		root.Errorf("shorten it, or let it tick less often", "the scenario has more than %d ticks", maxScenarioTicks)
	}
}

// scenarioReader reads the parts of a scenario that refer to each other.
type scenarioReader struct {
	scenario *Scenario
	calls    []placedCall
	size     int              // endpoints so far
	sizes    map[string][]int // per service, of each of its localities
	routes   float64
}

func (r *scenarioReader) services(v strict.Value) {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("add a service", "is empty")
	}
	lines := map[string]int{}
	for _, item := range items {
		at := item
		s := r.service(item, &at)
		if s.Name == "" {
			continue // told already
		}
		if line, twice := lines[s.Name]; twice {
			at.Errorf("rename one", "service %s is given twice, first in line %d", s.Name, line)
			continue
		}
		lines[s.Name] = at.Pos().Line
		r.scenario.Services = append(r.scenario.Services, s)
		for i := range s.Localities {
			r.sizes[s.Name] = append(r.sizes[s.Name], len(s.Localities[i].Endpoints))
		}
	}
	if r.size > maxScenarioFleet {
		v.Errorf("simulate a part of the fleet", "%d endpoints are more than %d", r.size, maxScenarioFleet)
	}
	r.checkCalls(lines)
	slices.SortFunc(r.scenario.Services, func(a, b isobar.Service) int { return strings.Compare(a.Name, b.Name) })
}

func (r *scenarioReader) service(v strict.Value, at *strict.Value) isobar.Service {
	names := serviceReader{nameAt: v}
	var weights placedWeights
	var criticalityAt *strict.Value
	s := isobar.Service{}
	v.Object([]strict.Field{
		{Name: "name", Required: true, Read: func(v strict.Value) {
			*at = v
			names.readName(v, &s.Name)
		}},
		modeField(&s.Mode),
		policyField(&s.Policy), isolationField(&s.Isolation), floatField("failover_threshold", &s.FailoverThreshold, failoverRange),
		promoteField(&s.Promote), floatField("max_shift", &s.MaxShift, shiftRange),
		floatField("max_shed", &s.MaxShed, shedRange), criticalityField(&s.Criticality, &criticalityAt),
		trustField(&s.CapacityTrust),
		floatField("service_time_ms", &s.ServiceTimeMS, serviceTimeRange), floatField("error_cost_ms", &s.ErrorCostMS, errorCostRange),
		orcaField(&s.ORCA), limitsField(&s.Limits), r.metricsField(&s),
		{Name: "localities", Required: true, Read: func(v strict.Value) { s.Localities = r.localities(v, &weights) }},
		{Name: "calls", Read: func(v strict.Value) {
			s.Calls = names.readCalls(v, s.Name)
			r.calls = append(r.calls, names.calls...)
		}},
	})
	weights.check(&s, v)
	checkCriticality(criticalityAt, &s)
	return s
}

func (r *scenarioReader) localities(v strict.Value, weights *placedWeights) []isobar.ServiceLocality {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("add the localities where the service runs", "is empty")
	}
	lines := map[isobar.Locality]int{}
	var out []isobar.ServiceLocality
	for _, item := range items {
		var l isobar.ServiceLocality
		n := 0
		endpoints := wholeField("endpoints", &n, endpointCount)
		endpoints.Required = true
		item.Object(append([]strict.Field{
			uniqueLocality(&l.Locality, lines), endpoints,
			requiredFloat("max_rate", &l.MaxRate, rateRange),
			floatField("concurrency", &l.Concurrency, concurrencyRange),
			floatField("ceiling", &l.Ceiling, ceilingRange),
			floatField("capacity_scaler", &l.CapacityScaler, scalerRange),
			floatField("unmanaged_load", &l.UnmanagedLoad, backgroundRange), weights.field(&l.Weight), boolField("preferred", &l.Preferred),
		}, renamed(renamedOfLocality)...))
		for range n {
			if r.size++; r.size <= maxScenarioFleet {
				l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:80", r.size>>16&255, r.size>>8&255, r.size&255)})
			}
		}
		out = append(out, l)
	}
	slices.SortStableFunc(out, func(a, b isobar.ServiceLocality) int { return a.Locality.Compare(b.Locality) })
	return out
}
