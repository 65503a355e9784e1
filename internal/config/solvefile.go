package config

import (
	"fmt"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/solver"
)

// SolveFile is a problem file of `isobar solve`: the problem, and the names
// that its indices stand for.
type SolveFile struct {
	Names   []SolveNames // one for each of Problem.Services
	Problem solver.Problem
}

// SolveNames are the names of one service of a problem, in the order of the
// file. Sources are its own, then the localities of each service that calls it.
type SolveNames struct {
	Service    string
	Sources    []isobar.Locality
	Callers    []string // of Sources; empty for the service's own
	Localities []isobar.Locality
}

// From is the name of a source: its locality, and who calls from there.
func (n *SolveNames) From(source int) string {
	if caller := n.Callers[source]; caller != "" {
		return n.Sources[source].String() + " (" + caller + ")"
	}
	return n.Sources[source].String()
}

// Defaults of a problem's localities.
const (
	defaultQueues  = 1
	defaultCeiling = isobar.DefaultCeiling
)

var (
	demandRange   = strict.Range{Max: 1e12, Unit: "requests/s"}
	capacityRange = strict.Range{Max: 1e12, Unit: "requests/s"}
	serversRange  = strict.Range{Max: 1e9, Unit: "requests at once"}
	queuesRange   = strict.Range{Min: 1, Max: 1e9, Unit: "queues"}
	solveCeiling  = strict.Range{
		AboveMin: true, Max: 1, LargeHint: "it is a fraction: write 0.8 for 80%",
		ZeroHint: "write capacity: 0 to take the locality out",
	}
	solveShed  = strict.Range{Max: 1, LargeHint: "it is a fraction: write 0.05 for 5%"}
	priceRange = strict.Range{Max: 3.6e6, Unit: "ms per request"}
)

// DecodeProblem reads a problem file; file is the name that errors carry.
func DecodeProblem(file string, data []byte) (*SolveFile, []Problem, error) {
	doc := strict.Parse(file, data)
	out := &SolveFile{}
	if root, ok := doc.Root(); ok {
		r := solveReader{network: solveNetwork{
			latency: map[pair]float64{}, price: map[pair]float64{}, asked: map[pair]bool{},
		}}
		r.read(root)
		out.Names, out.Problem = r.names, r.problem
	}
	warnings, err := doc.Result()
	if err != nil {
		return nil, warnings, err
	}
	return out, warnings, nil
}

type solveReader struct {
	network  solveNetwork
	services []*solveService
	names    []SolveNames
	problem  solver.Problem
}

func (r *solveReader) read(root strict.Value) {
	at := root
	root.Object([]strict.Field{
		{Name: "network", Read: func(v strict.Value) {
			at = v
			r.network.read(v)
		}},
		{Name: "services", Required: true, Read: r.readServices},
	})
	index := map[string]int{}
	var calls []placedCall
	var kept []*solveService
	lines := map[string]int{}
	for _, s := range r.services {
		if _, twice := index[s.name]; twice {
			s.nameAt.Errorf("rename one", "service %s is given twice, first in line %d", s.name, lines[s.name])
			continue
		}
		index[s.name] = len(r.names)
		lines[s.name] = s.nameAt.Pos().Line
		calls = append(calls, s.calls...)
		r.names = append(r.names, SolveNames{
			Service: s.name, Sources: s.sources, Localities: s.localities, Callers: make([]string, len(s.sources)),
		})
		r.problem.Services = append(r.problem.Services, s.problem(&r.network, at))
		kept = append(kept, s)
	}
	r.link(calls, index)
	r.addCallers(kept, at)
}

// addCallers makes the localities of callers sources of what they call.
func (r *solveReader) addCallers(services []*solveService, at strict.Value) {
	called := make([]bool, len(services))
	for i := range services {
		for _, c := range r.problem.Services[i].Calls {
			called[c.Service] = true
			to, names := &r.problem.Services[c.Service], &r.names[c.Service]
			for _, from := range services[i].localities {
				services[c.Service].addRow(to, &r.network, from, nil, at)
				names.Sources = append(names.Sources, from)
				names.Callers = append(names.Callers, services[i].name)
			}
		}
	}
	for i, s := range services {
		if !s.hasSources && !called[i] {
			s.nameAt.Errorf("add sources, or a service that calls it", "nobody sends requests to %s", s.name)
		}
		s.simplify(&r.problem.Services[i])
	}
}

func (r *solveReader) readServices(v strict.Value) {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("add a service to solve", "is empty")
	}
	for _, item := range items {
		if s := readSolveService(item); s.name != "" {
			r.services = append(r.services, s)
		}
	}
}

// link turns the names in calls into indices.
func (r *solveReader) link(calls []placedCall, index map[string]int) {
	graph := map[string][]string{}
	for _, c := range calls {
		to, ok := index[c.call.Service]
		if !ok {
			c.at.Errorf("add that service to the file", "calls a service %q that is not in this file", c.call.Service)
			continue
		}
		from := index[c.from]
		s := &r.problem.Services[from]
		s.Calls = append(s.Calls, solver.Call{Service: to, PerRequest: c.call.PerRequest})
		graph[c.from] = append(graph[c.from], c.call.Service)
	}
	refuseCycle(calls, graph)
}

// solveService is one service as it is read.
type solveService struct {
	name       string
	nameAt     strict.Value
	sources    []isobar.Locality
	demand     []float64
	hasSources bool
	allowed    []map[isobar.Locality]bool // per source; nil = everywhere
	localities []isobar.Locality
	sites      []solver.Locality
	maxShed    float64
	calls      []placedCall
}

func readSolveService(v strict.Value) *solveService {
	s := &solveService{nameAt: v}
	v.Object([]strict.Field{
		{Name: "name", Required: true, Read: func(v strict.Value) {
			s.nameAt = v
			s.name, _ = v.Text()
		}},
		{Name: "localities", Required: true, Read: s.readLocalities},
		{Name: "sources", Read: s.readSources},
		floatField("max_shed", &s.maxShed, solveShed),
		{Name: "calls", Read: func(v strict.Value) {
			r := serviceReader{}
			r.readCalls(v, s.name)
			s.calls = r.calls
		}},
	})
	return s
}

func (s *solveService) readSources(v strict.Value) {
	s.hasSources = true
	items, _ := v.List()
	lines := map[isobar.Locality]int{}
	for _, item := range items {
		var name isobar.Locality
		var demand float64
		var allowed map[isobar.Locality]bool
		item.Object([]strict.Field{
			uniqueLocality(&name, lines),
			requiredFloat("demand", &demand, demandRange),
			{Name: "allowed", Read: func(v strict.Value) { allowed = s.readAllowed(v) }},
		})
		if name.IsZero() {
			continue
		}
		s.sources = append(s.sources, name)
		s.demand = append(s.demand, demand)
		s.allowed = append(s.allowed, allowed)
	}
}

// readAllowed reads the localities that a source may use; others it may not.
func (s *solveService) readAllowed(v strict.Value) map[isobar.Locality]bool {
	items, _ := v.List()
	out := make(map[isobar.Locality]bool, len(items))
	for _, item := range items {
		l, ok := readLocality(item)
		if ok && !slices.Contains(s.localities, l) {
			item.Errorf("name one of the service's localities", "the service does not run in %s", l)
		}
		out[l] = true
	}
	return out
}

func (s *solveService) readLocalities(v strict.Value) {
	items, _ := v.List()
	lines := map[isobar.Locality]int{}
	for _, item := range items {
		var name isobar.Locality
		l := solver.Locality{Queues: defaultQueues, Ceiling: defaultCeiling}
		item.Object([]strict.Field{
			uniqueLocality(&name, lines),
			requiredFloat("capacity", &l.Capacity, capacityRange),
			floatField("servers", &l.Servers, serversRange),
			floatField("queues", &l.Queues, queuesRange),
			floatField("ceiling", &l.Ceiling, solveCeiling),
			floatField("background", &l.Unmanaged, unmanagedRange),
		})
		if name.IsZero() {
			continue
		}
		s.localities = append(s.localities, name)
		s.sites = append(s.sites, l)
	}
}

func uniqueLocality(into *isobar.Locality, lines map[isobar.Locality]int) strict.Field {
	return localityField("locality", func(v strict.Value, l isobar.Locality) {
		if line, twice := lines[l]; twice {
			v.Errorf("keep one of them", "locality %s is given twice, first in line %d", l, line)
			return
		}
		lines[l] = v.Pos().Line
		*into = l
	})
}

// solveNetwork is the network of a problem file: exact pairs only, nothing is
// assumed.
type solveNetwork struct {
	latency map[pair]float64 // as given, one direction each
	price   map[pair]float64
	asked   map[pair]bool // missing pairs that were told
}

func (n *solveNetwork) read(v strict.Value) {
	v.Object([]strict.Field{
		{Name: "latency_ms", Read: func(v strict.Value) { n.readPairs(v, "ms", latencyRange, n.latency) }},
		{Name: "egress", Read: func(v strict.Value) { n.readPairs(v, "price", priceRange, n.price) }},
	})
}

func (n *solveNetwork) readPairs(v strict.Value, name string, r strict.Range, into map[pair]float64) {
	items, _ := v.List()
	lines := map[pair]int{}
	for _, item := range items {
		var p pair
		var x float64
		if !readPair(item, &p, name, &x, r, lines) {
			into[p] = 0 // told already, and so not missing
			continue
		}
		if p.from == p.to && name == "ms" && x != 0 {
			item.Errorf("remove it", "the latency from %s to itself is 0", p.from)
			continue
		}
		into[p] = x
	}
}

// ms returns the latency of a pair: as given, else that of the way back.
func (n *solveNetwork) ms(p pair) (float64, bool) {
	if p.from == p.to {
		return 0, true
	}
	if ms, ok := n.latency[p]; ok {
		return ms, true
	}
	ms, ok := n.latency[pair{from: p.to, to: p.from}]
	return ms, ok
}

// need returns the latency of a pair and reports, once for both directions, a
// pair that is not given.
func (n *solveNetwork) need(p pair, service string, at strict.Value) float64 {
	ms, ok := n.ms(p)
	if ok || n.asked[p] {
		return ms
	}
	n.asked[p], n.asked[pair{from: p.to, to: p.from}] = true, true
	at.Errorf(fmt.Sprintf("add {from: %s, to: %s, ms: ...} to network.latency_ms", p.from, p.to),
		"the latency from %s to %s is missing, which service %s needs", p.from, p.to, service)
	return 0
}

// problem turns the service into numbers; at is where missing pairs are told.
func (s *solveService) problem(n *solveNetwork, at strict.Value) solver.Service {
	out := solver.Service{Demand: s.demand, Localities: s.sites, MaxShed: s.maxShed}
	for i, from := range s.sources {
		s.addRow(&out, n, from, s.allowed[i], at)
	}
	return out
}

// addRow adds a source that may use some localities (nil = all).
func (s *solveService) addRow(out *solver.Service, n *solveNetwork, from isobar.Locality, allowed map[isobar.Locality]bool, at strict.Value) {
	ms := make([]float64, len(s.localities))
	price := make([]float64, len(s.localities))
	open := make([]bool, len(s.localities))
	for j, to := range s.localities {
		p := pair{from: from, to: to}
		open[j] = allowed == nil || allowed[to]
		price[j] = n.price[p]
		if open[j] {
			ms[j] = n.need(p, s.name, at)
		}
	}
	out.Latency = append(out.Latency, ms)
	out.Price = append(out.Price, price)
	out.Allowed = append(out.Allowed, open)
}

// simplify leaves out what says nothing.
func (s *solveService) simplify(out *solver.Service) {
	if !slices.ContainsFunc(out.Allowed, func(row []bool) bool { return slices.Contains(row, false) }) {
		out.Allowed = nil
	}
	if !slices.ContainsFunc(out.Price, func(row []float64) bool {
		return slices.ContainsFunc(row, func(price float64) bool { return price > 0 })
	}) {
		out.Price = nil
	}
}
