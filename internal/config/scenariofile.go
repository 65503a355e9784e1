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
			floatField("unmanaged_load", &l.UnmanagedLoad, unmanagedRange), weights.field(&l.Weight), boolField("preferred", &l.Preferred),
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

var (
	noiseRange    = strict.Range{Max: 1, LargeHint: "it is a fraction: write 0.05 for 5%"}
	dollarRange   = strict.Range{Max: 1e6, Unit: "dollars per million requests"}
	factorRange   = strict.Range{Max: 1000}
	outageRange   = strict.Range{AboveMin: true, Max: 1, LargeHint: "it is a fraction: write 0.5 for half of the endpoints"}
	lieRange      = strict.Range{Max: 1e6}
	endpointCount = strict.Range{Min: 1, Max: maxScenarioEndpoints, ZeroHint: "remove the locality"}
	clientCount   = strict.Range{Min: 1, Max: maxScenarioClients, ZeroHint: "remove the source"}
	fewClients    = strict.Range{Max: maxScenarioClients}
)

func spanField(name string, into *time.Duration, lo, hi time.Duration) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if d, ok := v.Duration(lo, hi); ok {
			*into = d
		}
	}}
}

// requiredSpan is a duration without a default.
func requiredSpan(name string, into *time.Duration, lo time.Duration) strict.Field {
	f := spanField(name, into, lo, maxScenarioLength)
	f.Required = true
	return f
}

func wholeField(name string, into *int, r strict.Range) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if n, ok := v.Int(r); ok {
			*into = int(n)
		}
	}}
}

// delayField reads a duration, or an object with base and jitter.
func delayField(name string, into *ScenarioDelay) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if !v.IsObject() {
			if d, ok := v.Duration(0, MaxInterval); ok {
				*into = ScenarioDelay{Base: d}
			}
			return
		}
		*into = ScenarioDelay{}
		v.Object([]strict.Field{
			spanField("base", &into.Base, 0, MaxInterval),
			spanField("jitter", &into.Jitter, 0, MaxInterval),
		})
	}}
}

// ScenarioLoss keeps messages from arriving for a while.
type ScenarioLoss struct {
	What     string          // reports, pushes, health or topology
	Locality isobar.Locality // whose reports or pushes: a locality, or a region or zone with all in it; zero = all
	From, To time.Duration
}

// lostByClient are the losses that some clients may have and others not.
var lostByClient = []string{"reports", "pushes"}

func (r *scenarioReader) losses(v strict.Value) {
	items, _ := v.List()
	if len(items) > maxScenarioLosses {
		v.Errorf("keep those that matter", "%d losses are more than %d", len(items), maxScenarioLosses)
		return
	}
	for _, item := range items {
		x := ScenarioLoss{To: r.scenario.Length}
		item.Object([]strict.Field{
			{Name: "what", Required: true, Read: func(v strict.Value) { x.What, _ = v.Enum("reports", "pushes", "health", "topology") }},
			{Name: "locality", Read: func(v strict.Value) {
				l, ok := readLocality(v)
				switch {
				case !ok || x.What == "": // told already
				case !slices.Contains(lostByClient, x.What):
					v.Errorf("remove it, or lose reports or pushes", "%s is lost as a whole, not of one locality", x.What)
				default:
					x.Locality = l
					r.lacksClients(v, l)
				}
			}},
			requiredSpan("from", &x.From, 0),
			spanField("to", &x.To, 0, maxScenarioLength),
		})
		if x.To < x.From {
			item.Errorf("let it end after it begins", "it ends at %v and begins at %v", x.To, x.From)
		}
		r.scenario.Losses = append(r.scenario.Losses, x)
	}
}

// maxScenarioLosses bounds how many losses each step has to look at.
const maxScenarioLosses = 1_000

// lacksClients warns of a place without clients: neither demand comes from there, nor
// does a service run there that calls another.
func (r *scenarioReader) lacksClients(v strict.Value, scope isobar.Locality) {
	for i := range r.scenario.Demand {
		if lies(r.scenario.Demand[i].From, scope) {
			return
		}
	}
	for i := range r.scenario.Services {
		s := &r.scenario.Services[i]
		for j := range s.Localities {
			if len(s.Calls) > 0 && lies(s.Localities[j].Locality, scope) {
				return
			}
		}
	}
	v.Warnf("check the name", "nobody sends from %s", scope)
}

// lies reports whether l is scope, or lies in it.
func lies(l, scope isobar.Locality) bool {
	return l.Region == scope.Region && (scope.Zone == "" || l.Zone == scope.Zone) && (scope.SubZone == "" || l.SubZone == scope.SubZone)
}

// ScenarioMetric is what endpoints report under a name of their own.
type ScenarioMetric struct {
	Service  string
	Locality isobar.Locality // or a region or zone; zero = all
	Name     string
	AtRest   float64
	Full     float64 // at utilization 1
}

// maxScenarioMetrics is how many metrics a service of a scenario may have.
const maxScenarioMetrics = 32

var levelRange = strict.Range{Max: 1e12}

func (r *scenarioReader) metricsField(s *isobar.Service) strict.Field {
	return strict.Field{Name: "metrics", Read: func(v strict.Value) {
		items, _ := v.List()
		if len(items) > maxScenarioMetrics {
			v.Errorf("keep those that a limit is about", "%d metrics are more than %d", len(items), maxScenarioMetrics)
			return
		}
		for _, item := range items {
			m := ScenarioMetric{Service: s.Name}
			item.Object([]strict.Field{
				{Name: "name", Required: true, Read: func(v strict.Value) {
					name, ok := v.Text()
					if _, err := isobar.ParseLimitMetric(isobar.NamedMetrics + name); ok && err != nil {
						v.Errorf("use printable characters but blanks, quotes and backslashes, at most 128", "%q is not the name of a metric", name)
						return
					}
					m.Name = name
				}},
				{Name: "locality", Read: func(v strict.Value) { m.Locality, _ = readLocality(v) }},
				floatField("at_rest", &m.AtRest, levelRange),
				requiredFloat("full", &m.Full, levelRange),
			})
			r.scenario.Metrics = append(r.scenario.Metrics, m)
		}
	}}
}
