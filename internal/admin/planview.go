package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
)

// PlanView is the body of GET /v1/plan: the published plan. Rates are
// requests/s, latencies milliseconds, shares and utilizations fractions.
type PlanView struct {
	Version          string                `json:"version"`
	Made             time.Time             `json:"made"`
	Trigger          string                `json:"trigger"` // "tick" or "reapply"
	TopologyRevision uint64                `json:"topology_revision"`
	Objective        float64               `json:"objective"` // of all solved services: requests/s x ms
	LowerBound       float64               `json:"lower_bound"`
	Gap              float64               `json:"gap"`
	ExcessMS         float64               `json:"excess_ms"`
	PlanGap          float64               `json:"plan_gap"` // gap of the served assignment, which is paced and rounded
	Violations       []invariant.Violation `json:"violations"`
	Services         []ServiceView         `json:"services"` // sorted by name
}

// ServiceView is one service of a plan.
type ServiceView struct {
	Name         string        `json:"name"`
	Mode         isobar.Mode   `json:"mode"`
	Policy       isobar.Policy `json:"policy"`
	PolicyGap    float64       `json:"policy_gap,omitempty"` // additional cost of a policy other than latency above the bound, as a fraction of its cost
	PolicyMS     float64       `json:"policy_ms,omitempty"`  // the same in mean latency above the solution's
	Coverage     float64       `json:"coverage"`
	Hold         string        `json:"hold,omitempty"`
	Paused       *plan.Pause   `json:"paused,omitempty"`
	Solved       bool          `json:"solved"` // false: without demand, answered by distance and headroom
	Gap          float64       `json:"gap"`
	ExcessMS     float64       `json:"excess_ms"`
	PlanGap      float64       `json:"plan_gap"`
	CeilingScale float64       `json:"ceiling_scale"`           // 1 = everything fits below the ceilings
	Drop         float64       `json:"drop"`                    // fraction that the assignment makes clients drop
	RequestLimit uint32        `json:"request_limit,omitempty"` // requests that each client may have in progress; 0 = Isobar sets no limit
	Checked      bool          `json:"checked"`                 // it has health checks: GET /v1/verdicts has the verdicts
	Localities   []SiteView    `json:"localities"`              // sorted
	Sources      []SourceView  `json:"sources"`                 // sorted

	HealthOverrides []isobar.HealthOverride `json:"health_overrides,omitempty"` // health that operators have set, sorted by address
}

// SiteView is one locality of a service.
type SiteView struct {
	Locality        isobar.Locality `json:"locality"`
	Endpoints       int             `json:"endpoints"`
	Healthy         int             `json:"healthy"`
	Draining        int             `json:"draining"` // an operator, the configuration or a provider takes them out of traffic: no failure
	CapacityNominal float64         `json:"capacity_nominal"`
	Capacity        float64         `json:"capacity"`
	CapacityBasis   string          `json:"capacity_basis"` // declared, estimated or assumed
	Ceiling         float64         `json:"ceiling"`
	UnmanagedLoad   float64         `json:"unmanaged_load"`
	Load            float64         `json:"load"`        // steered there by this plan
	Utilization     float64         `json:"utilization"` // (load + unmanaged load) / capacity
	Price           float64         `json:"price_ms"`
	Unreachable     bool            `json:"unreachable,omitempty"`
}

// SourceView is the assignment of the clients of one locality.
type SourceView struct {
	Source     isobar.Locality `json:"source"`
	Demand     float64         `json:"demand"`
	Shares     []ShareView     `json:"shares"`     // of priority 0, localities with a target or a share
	Priorities [][]WeightView  `json:"priorities"` // as sent
	Reasons    []assign.Reason `json:"reasons,omitempty"`
}

// ShareView is a locality's share of a source's traffic.
type ShareView struct {
	Locality  isobar.Locality `json:"locality"`
	Target    float64         `json:"target"`    // target of the solver, or of another policy
	Published float64         `json:"published"` // published share
}

// WeightView is a locality's weight within a priority.
type WeightView struct {
	Locality isobar.Locality `json:"locality"`
	Weight   uint32          `json:"weight"`
}

// planAPI serves the plan and its explanations.
type planAPI struct{ *core }

// getPlan shows the published plan, or with ?service= one service of it.
func (s *planAPI) getPlan(w http.ResponseWriter, r *http.Request) {
	p, ok := s.plan(w)
	if !ok {
		return
	}
	view := viewPlan(p)
	if name := r.URL.Query().Get("service"); name != "" {
		svc, found := p.Service(name)
		if !found {
			s.failUnknownService(w, name)
			return
		}
		view.Services = []ServiceView{s.viewService(svc, s.overrides()[name], s.opts.Fleet.Subscribers())}
		view.Violations = slices.DeleteFunc(view.Violations, func(v invariant.Violation) bool { return v.Service != name })
		reply(w, http.StatusOK, view)
		return
	}
	overrides, clients := s.overrides(), s.opts.Fleet.Subscribers()
	for _, svc := range p.Services {
		view.Services = append(view.Services, s.viewService(svc, overrides[svc.Spec.Name], clients))
	}
	reply(w, http.StatusOK, view)
}

func viewPlan(p *plan.Plan) PlanView {
	v := PlanView{
		Version: p.VersionString(), Made: p.Made, Trigger: "tick",
		Objective: p.Objective, LowerBound: p.LowerBound, Gap: p.Gap, ExcessMS: p.ExcessMS, PlanGap: p.PlanGap,
		Violations: append([]invariant.Violation{}, p.Violations...),
		Services:   []ServiceView{},
	}
	if p.Trigger == assign.Reapply {
		v.Trigger = "reapply"
	}
	if p.Topology != nil {
		v.TopologyRevision = p.Topology.Revision
	}
	return v
}

// viewService shows a service of a plan. clients are those of all services, sorted by service.
func (s *core) viewService(svc *plan.Service, overrides []isobar.HealthOverride, clients []ServiceClients) ServiceView {
	v := ServiceView{
		Name: svc.Spec.Name, Mode: svc.Spec.Mode, Coverage: svc.CoverageBesides(SilentOf(clients, svc.Spec.Name)),
		Hold: svc.Hold, Paused: svc.Paused, RequestLimit: svc.RequestLimit.Max,
		Policy: svc.Spec.Policy, PolicyGap: svc.PolicyGap, PolicyMS: svc.PolicyMS,
		Checked: s.opts.HealthChecks != nil && len(svc.Spec.HealthChecks) > 0,
		PlanGap: svc.PlanGap, CeilingScale: 1,
		Localities: []SiteView{}, Sources: []SourceView{}, HealthOverrides: overrides,
	}
	var prices []float64
	if svc.Solution != nil {
		v.Solved, v.Gap, v.ExcessMS = true, svc.Solution.Gap, svc.Solution.ExcessMS
		v.CeilingScale = max(1, svc.Solution.CeilingScale)
		prices = svc.Solution.Prices
	}
	sites := svc.Sites
	var loads []float64
	if svc.Result != nil {
		v.Drop, sites, loads = svc.Result.Drop, svc.Result.Sites, svc.Result.Load
		for i := range svc.Result.Sources {
			v.Sources = append(v.Sources, viewSource(&svc.Result.Sources[i], sites))
		}
	}
	for i := range sites {
		site := viewSite(&sites[i], at(loads, i), at(prices, i))
		if i < len(svc.Spec.Localities) {
			site.CapacityBasis = svc.Site(i).CapacityBasis()
		}
		v.Localities = append(v.Localities, site)
	}
	return v
}

func viewSite(s *assign.Site, load, price float64) SiteView {
	v := SiteView{
		Locality: s.Group.Locality, Endpoints: len(s.Group.Endpoints), Healthy: s.Group.Usable(), Draining: s.Group.Draining(),
		CapacityNominal: s.Nominal, Capacity: s.Capacity, Ceiling: s.Ceiling, UnmanagedLoad: s.Unmanaged,
		Load: load, Price: price, Unreachable: s.Unreachable,
	}
	if s.Capacity > 0 {
		v.Utilization = (load + s.Unmanaged) / s.Capacity
	}
	return v
}

func viewSource(r *assign.SourceResult, sites []assign.Site) SourceView {
	v := SourceView{Source: r.Source, Demand: r.Demand, Reasons: r.Reasons, Shares: []ShareView{}, Priorities: [][]WeightView{}}
	for i := range sites {
		target, share := at(r.Target, i), at(r.Shares, i)
		if target > 0 || share > 0 {
			v.Shares = append(v.Shares, ShareView{Locality: sites[i].Group.Locality, Target: target, Published: share})
		}
	}
	if r.Assignment == nil {
		return v
	}
	for _, tier := range r.Assignment.Priorities {
		weights := make([]WeightView, 0, len(tier))
		for _, lw := range tier {
			weights = append(weights, WeightView{Locality: lw.Locality, Weight: lw.Weight})
		}
		v.Priorities = append(v.Priorities, weights)
	}
	return v
}

// at is x[i], or 0 where x is shorter.
func at(x []float64, i int) float64 {
	if i < len(x) {
		return x[i]
	}
	return 0
}

// CapacityList is the body of GET /v1/capacity?service=NAME: the capacity of each locality of a
// service.
type CapacityList struct {
	Service    string                   `json:"service"`
	Version    string                   `json:"version"` // of the plan
	Trust      isobar.CapacityTrust     `json:"capacity_trust"`
	Localities []plan.CapacityExplained `json:"localities"`
	LeftOut    []LeftOutClient          `json:"left_out"` // clients whose requests in progress do not count
}

// LeftOutClient is a client whose requests in progress do not count.
type LeftOutClient struct {
	Source isobar.Locality `json:"source"`
	Node   string          `json:"node"` // node.id
	Reason string          `json:"reason"`
}

// getCapacity answers GET /v1/capacity?service=NAME.
func (s *planAPI) getCapacity(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("service")
	if name == "" {
		fail(w, http.StatusBadRequest, Problem{Error: "no service given", Place: "query", Fix: "add ?service=NAME; GET /v1/services lists the names"})
		return
	}
	p, ok := s.plan(w)
	if !ok {
		return
	}
	svc, found := p.Service(name)
	if !found {
		s.failUnknownService(w, name)
		return
	}
	out := CapacityList{
		Service: name, Version: p.VersionString(), Trust: svc.Spec.CapacityTrust,
		Localities: []plan.CapacityExplained{}, LeftOut: []LeftOutClient{},
	}
	if out.Trust == "" {
		out.Trust = isobar.TrustObserved
	}
	for i := range svc.Sites {
		out.Localities = append(out.Localities, svc.Site(i).Capacity())
	}
	if svc.Load != nil {
		for _, x := range svc.Load.LeftOut {
			out.LeftOut = append(out.LeftOut, LeftOutClient{Source: x.Source, Node: x.Node, Reason: string(x.Reason)})
		}
	}
	reply(w, http.StatusOK, out)
}

// getExplanation answers GET /v1/explain?service=NAME&from=REGION/ZONE. An
// empty from stands for clients that told no locality.
func (s *planAPI) getExplanation(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name := query.Get("service")
	if name == "" {
		fail(w, http.StatusBadRequest, Problem{
			Error: "no service given", Place: "query", Fix: "add ?service=NAME&from=REGION/ZONE; GET /v1/services lists the names",
		})
		return
	}
	from, err := isobar.ParseLocality(query.Get("from"))
	if err != nil {
		fail(w, http.StatusBadRequest, Problem{
			Error: err.Error(), Place: "from=" + query.Get("from"), Fix: "write region, region/zone or region/zone/sub_zone",
		})
		return
	}
	p, ok := s.plan(w)
	if !ok {
		return
	}
	if _, found := p.Service(name); !found {
		s.failUnknownService(w, name)
		return
	}
	explanation, err := s.opts.Planner.Explain(p, name, from)
	switch {
	case errors.Is(err, isobar.ErrNotFound):
		fail(w, http.StatusNotFound, problemOf(err))
	case err != nil:
		s.opts.Logger.Error("explain failed", "service", name, "from", from.String(), "error", err)
		fail(w, http.StatusInternalServerError, problemOf(err))
	default:
		if silent := SilentOf(s.opts.Fleet.Subscribers(), name); len(silent) > 0 {
			if svc, found := p.Service(name); found {
				explanation.Coverage = svc.CoverageBesides(silent)
			}
		}
		explanation.Warnings = append(explanation.Warnings, operatorsSay(s.overrides()[name])...)
		if known := knownPlaces(p); !from.IsZero() && len(known.zones) > 1 { // as for clients that are there
			if said, _ := known.trouble(from, s.opts.Nearest); said != "" {
				explanation.Warnings = append(explanation.Warnings, from.String()+": "+said)
			}
		}
		reply(w, http.StatusOK, explanation)
	}
}

// maxOverridesTold bounds how many overrides an explanation names.
const maxOverridesTold = 10

// operatorsSay returns which endpoints are what they are because an operator said
// so: it can't be seen in the configuration, and survives restarts.
func operatorsSay(overrides []isobar.HealthOverride) []string {
	var out []string
	for i, o := range overrides {
		if i == maxOverridesTold {
			return append(out, plural.Count(len(overrides)-i, "more endpoint has", "more endpoints have")+" a health set by operators: GET /v1/health lists them")
		}
		out = append(out, fmt.Sprintf("endpoint %s in %s is %s by operator%s: DELETE /v1/services/%s/endpoints/%s/health removes this",
			o.Address, o.Locality, o.Status, orderedBy(&o), o.Service, o.Address))
	}
	return out
}
