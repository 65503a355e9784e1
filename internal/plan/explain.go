package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/assign"
)

// fullSlack is how close to its limit a locality counts as full.
const fullSlack = 0.995

// Explain tells why the clients of a service in a source locality get what
// they get. A source that the plan does not know is answered as its streams
// would be. The error wraps [isobar.ErrNotFound] for an unknown service.
func (p *Plan) Explain(service string, source isobar.Locality) (Explanation, error) {
	s, ok := p.Service(service)
	if !ok {
		return Explanation{}, fmt.Errorf("service %q: %w", service, isobar.ErrNotFound)
	}
	e := explainer{plan: p, s: s, source: source, assignment: p.Assignment(service, source), result: s.Result.Source(source)}
	_, r, from := reopen(s, p.Topology.Network, source)
	_, e.reserve = r.confined(&from[0])
	return e.explain(), nil
}

// explainer gathers what concerns one source of one service.
type explainer struct {
	plan       *Plan
	s          *Service
	source     isobar.Locality
	assignment *isobar.Assignment
	result     *assign.SourceResult // nil for a source the plan does not know
	reserve    []bool               // per site; nil = none
}

func (e *explainer) explain() Explanation {
	out := Explanation{
		Service: e.s.Spec.Name, Source: e.source, Version: e.plan.VersionString(), Made: e.plan.Made,
		Mode: e.s.Spec.Mode, Coverage: e.s.Coverage, Hold: e.s.Hold, Paused: e.s.Paused,
		DegradationLevel: LevelFresh, DegradationApplies: e.s.Bound(), Inputs: append([]InputState{}, e.s.Inputs...),
		Score: e.s.Scores.Explain(e.s.Mode()), Rollout: e.s.Rollout.Explain(e.s.Spec.Promote), Damping: e.s.Damping.String(),
		Policy: e.s.Spec.Policy, PolicyGap: e.s.PolicyGap, PolicyMS: e.s.PolicyMS,
		Demand: e.demand(), Localities: e.localities(), Drop: e.s.Result.Drop, RequestLimit: e.s.RequestLimit.Max,
		Classes: classesOf(e.s, e.source), CeilingScale: 1, PlanGap: e.s.PlanGap,
		Reasons: []assign.Reason{}, Warnings: []string{}, Clients: []ClientExplained{},
		Calls:      callsTo(e.plan, e.s),
		DataPlanes: dataplane.PredictAll(dataplane.FromAssignment(e.assignment), dataplane.DefaultOptions()),
	}
	if e.s.Mode() == isobar.ModeBounded {
		out.MaxShift = orDefault(e.s.Spec.MaxShift, isobar.DefaultMaxShift)
	}
	if worst, ok := e.s.Degraded(); ok {
		out.DegradationLevel = worst.Level
	}
	if e.s.Solution != nil {
		out.CeilingScale, out.Gap = e.s.Solution.CeilingScale, e.s.Solution.Gap
	}
	if e.result != nil {
		out.Reasons = append(out.Reasons, e.result.Reasons...)
	}
	if why := e.s.whyVariable(e.source); why != "" {
		out.Reasons = append(out.Reasons, assign.Reason{Code: assign.ReasonVariability, Text: why})
	}
	if l := e.s.Load.Source(e.source); l != nil {
		for _, c := range l.Clients {
			out.Clients = append(out.Clients, ClientExplained{Client: c.Name, Rate: c.Rate})
		}
	}
	for _, d := range DeviationsOf(&e.s.Deviations) {
		if d.Source == e.source {
			out.Deviation = &d.DeviationSeen
		}
	}
	out.Warnings = append(out.Warnings, e.warnings(out.Localities)...)
	out.Earlier = e.earlier()
	out.Binding = e.binding(out.Localities, out.Reasons)
	out.RunnerUp = runnerUp(out.Localities)
	out.Summary = summarize(&out)
	return out
}

// earlier says for which capacity the last decision was made, where the locality that changed most
// since has noticeably another one.
func (e *explainer) earlier() string {
	if e.s.Problem == nil || len(e.s.Problem.Localities) != len(e.s.Sites) {
		return ""
	}
	most, at, was := drift, -1, 0.0
	for i := range e.s.Sites {
		then, now := e.s.Problem.Localities[i].Capacity, e.s.Sites[i].Capacity
		if d := math.Abs(now-then) / max(then, now, 1e-9); d > most {
			most, at, was = d, i, then
		}
	}
	if at < 0 {
		return ""
	}
	site := &e.s.Sites[at]
	return fmt.Sprintf("prices, costs and targets are of the last decision, for which %s had a capacity of %s requests/s; "+
		"it has %s now, and the next decision uses that",
		site.Group.Locality, rateOf(was), rateOf(site.Capacity))
}

func (e *explainer) demand() DemandExplained {
	var d DemandExplained
	if e.s.Load != nil {
		for i := range e.s.Load.Sources {
			d.Service += e.s.Load.Sources[i].Demand
		}
	}
	if e.result != nil {
		d.Rate = e.result.Demand
	}
	d.Variability = e.s.variabilityOf(e.source)
	for _, b := range e.s.Deviations.Unmanaged {
		if b.Source == e.source && !b.Failover {
			d.OffPlan += b.Rate
		}
	}
	l := e.s.Load.Source(e.source)
	if l == nil {
		return d
	}
	d.Raw, d.Saved, d.Dropped, d.Errors = l.Raw, l.Saved, l.Drop, l.Errors
	d.Nodes, d.Held, d.Measured = l.Nodes, l.Held, l.Nodes > 0 || l.Held > 0
	if !l.Newest.IsZero() {
		d.ReportAge = max(0, e.plan.Made.Sub(l.Newest).Seconds())
	}
	if !l.Since.IsZero() {
		d.WindowMS = float64(e.plan.Made.Sub(l.Since)) / float64(time.Millisecond)
	}
	return d
}

func (e *explainer) localities() []LocalityExplained {
	out := make([]LocalityExplained, len(e.s.Sites))
	solved := slices.Index(e.s.Solved, e.source)
	for i := range e.s.Sites {
		out[i] = e.locality(i, solved)
	}
	slices.SortStableFunc(out, func(a, b LocalityExplained) int {
		return cmp.Or(cmp.Compare(a.Distance, b.Distance), a.Locality.Compare(b.Locality))
	})
	return out
}

func (e *explainer) locality(i, solved int) LocalityExplained {
	site := &e.s.Sites[i]
	name := site.Group.Locality
	x := LocalityExplained{
		Locality: name, Tier: tierOf(e.assignment, name),
		Endpoints: len(site.Group.Endpoints), Healthy: site.Group.Usable(), Draining: site.Group.Draining(),
		CapacityNominal: site.Nominal, Capacity: site.Capacity, Ceiling: site.Ceiling, Limit: site.Limit(),
		UnmanagedLoad: site.Unmanaged, Load: e.s.Result.Load[i], Unreachable: site.Unreachable, Drained: site.Drained,
		Published: e.assignment.Share(name),
	}
	x.Distance, x.Assumed = e.plan.Topology.Network.Latency(e.source, name)
	x.Egress = e.plan.Topology.Network.Price(e.source, name)
	x.Distance += x.Egress
	x.Preferred = site.Preferred
	x.Forbidden = !e.s.Spec.Allows(e.source, name)
	x.Reserve = e.reserve != nil && e.reserve[i]
	if k := shareKept(e.s.Spec, site.Group); k < 1 {
		x.Keeps = k
	}
	if e.s.Prices != nil {
		x.Price = e.s.Prices[i]
	}
	if e.s.CallCosts != nil {
		x.Calls = e.s.CallCosts[i]
	}
	x.Cost = x.Distance + x.Price
	if site.Capacity > 0 {
		x.Utilization = (x.Load + site.Unmanaged) / site.Capacity
	}
	x.Full = site.Capacity > 0 && x.Load >= fullSlack*x.Limit
	if solved >= 0 && e.s.Solution != nil && i < len(e.s.Solution.Flows[solved]) {
		x.Target = shareOf(e.s.Solution.Flows[solved], i)
	}
	if (policyOf(e.s.Spec) != nil || e.s.decays()) && e.result != nil && e.result.Target != nil {
		x.Optimum, x.Target = x.Target, e.result.Target[i]
	}
	for _, b := range e.s.Deviations.Barred {
		x.Barred = x.Barred || (b.Source == e.source && b.Locality == name && e.s.Mode() != isobar.ModeObserve)
	}
	if o := e.s.outage(name); o != nil {
		x.Outage = e.s.outageText(o)
	}
	x.Learned = e.s.Site(i).Learned(e.plan.Made)
	if e.s.Site(i).observed() != nil && x.Healthy > 0 { // else nothing of its capacity is there
		c := e.s.Site(i).Capacity()
		x.Observed = c.String()
	}
	x.Counts, x.Limits = e.s.Site(i).Counting(), e.s.Site(i).Limits(e.plan.Made)
	e.measured(&x)
	return x
}

// measured fills in what the clients were seen to do.
func (e *explainer) measured(x *LocalityExplained) {
	if e.s.Load == nil {
		return
	}
	for i := range e.s.Load.Sites {
		if site := &e.s.Load.Sites[i]; site.Locality == x.Locality {
			x.Measured, x.ORCA = site.Issued, site.Utilization
		}
	}
	src := e.s.Load.Source(e.source)
	if src == nil {
		return
	}
	total := 0.0
	for _, l := range src.Landed {
		total += l.Issued
	}
	for _, l := range src.Landed {
		if l.Locality == x.Locality && total > 0 {
			x.ObservedShare, x.Latency = l.Issued/total, l.LatencyMS()
		}
	}
}

func shareOf(flows []float64, i int) float64 {
	sum := 0.0
	for _, f := range flows {
		sum += f
	}
	if sum <= 0 {
		return 0
	}
	return flows[i] / sum
}

func tierOf(a *isobar.Assignment, l isobar.Locality) int {
	if a == nil {
		return -1
	}
	for p, group := range a.Priorities {
		for _, lw := range group {
			if lw.Locality == l {
				return p
			}
		}
	}
	return -1
}

func (e *explainer) warnings(rows []LocalityExplained) []string {
	var out []string
	for i := range rows {
		if rows[i].Assumed {
			out = append(out, fmt.Sprintf("the latency from %s to %s is assumed: set network.latency_ms", show(e.source), rows[i].Locality))
		}
	}
	for i := range e.s.Spec.Localities {
		sl := &e.s.Spec.Localities[i]
		if _, declared := endpointRates(sl); !declared && !e.s.learns() && e.s.Site(i).Counting() == CountsEqualShare {
			out = append(out, fmt.Sprintf("%s declares no capacity: its endpoints count equal, "+
				"up to %.2f times the mean rate per endpoint of the region; set max_rate", sl.Locality, undeclaredSlack))
		}
	}
	out = append(out, e.learnedWarnings()...)
	out = append(out, troubleTexts(LimitWarnings(e.s, e.plan.Made))...)
	out = append(out, e.callWarnings()...)
	for _, v := range e.plan.Violations {
		if v.Service == e.s.Spec.Name {
			out = append(out, "the check refused a plan: "+v.Rule+": "+v.Text)
		}
	}
	return out
}

// show names a locality in a text.
func show(l isobar.Locality) string {
	if l.IsZero() {
		return "(no locality)"
	}
	return l.String()
}
