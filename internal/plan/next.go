package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
)

// Next makes the plan that follows in.Previous. It returns an error only for
// input that is no input (no topology, a version that does not grow); demand
// that does not fit, stale reports and broken services are outcomes with
// reasons in the plan.
func Next(in Input) (*Plan, error) {
	if in.Topology == nil {
		return nil, fmt.Errorf("plan: %w: no topology", isobar.ErrInvalid)
	}
	if in.Previous != nil && in.Version <= in.Previous.Version {
		return nil, fmt.Errorf("plan: %w: version %d does not follow %d", isobar.ErrInvalid, in.Version, in.Previous.Version)
	}
	p := &Plan{
		Version: in.Version, Made: in.Now, Trigger: in.Trigger, Topology: in.Topology,
		Paused:   in.Paused,
		Services: make([]*Service, len(in.Topology.Services)),
	}
	p.Provisional = in.Trigger == assign.Reapply && !in.restoring && in.Previous != nil && in.Previous.Provisional
	drafts := make([]*draft, len(p.Services))
	for i := range in.Topology.Services {
		spec := &in.Topology.Services[i]
		prev, _ := in.Previous.Service(spec.Name)
		if in.concernsNot(spec, prev) {
			p.Services[i] = prev
			continue
		}
		drafts[i] = newDraft(&in, spec, prev)
	}
	if in.Trigger != assign.Reapply {
		linkCalls(drafts)
		chooseVariable(drafts)
	}
	var sums []certificate
	for _, group := range groups(drafts) {
		if c := decideGroup(&in, group); c != nil {
			sums = append(sums, *c)
		}
	}
	for i, d := range drafts {
		if d != nil {
			// A copy: the draft holds on to the plan before, and that one to its own.
			service := d.Service
			if p.Provisional {
				awaitClients(&service)
			}
			p.Services[i] = &service
			p.Violations = append(p.Violations, d.violations...)
		}
	}
	sumUp(p, sums)
	return p, nil
}

// draft is a service while it is planned. It is planned in stages, and each uses what
// those before it made:
//
//	newDraft       what is known (begin), sites, sources and the routes between them
//	linkCalls      which drafts are planned together; demand that callers make
//	solve          solve.go, classes.go, variability.go; steady.go looks for more
//	targetsOf      the shares that each source is to get in the end
//	decide         the paced and rounded assignment, checked
//	certify        how far that is from the bound
type draft struct {
	Service // as far as it is made

	last     *Service // of the plan before; nil for a new one
	sameWays bool     // sites and network are those of last

	routes  routes // to its sites
	sources sources

	in, out  []*link // calls that count: who calls it, and whom it calls
	variable bool    // the solver plans for the variability of demand

	cost       float64 // of what is published, requests/s x ms
	violations []invariant.Violation
}

// published is what is in force; nil when nothing is.
func (d *draft) published() *assign.Result {
	if d.last == nil {
		return nil
	}
	return d.last.Result
}

func newDraft(in *Input, spec *isobar.Service, prev *Service) *draft {
	d := &draft{Service: begin(in, spec, prev), last: prev}
	at := buildSites(spec, in.Health, prev)
	d.routes = routes{spec: spec, network: in.Topology.Network, sites: at}
	at.applyDeviations(&d.Deviations, d.Mode())
	if spec.CapacityTrust.Observed() {
		d.routes.extra = at.extraCosts(&d.Service)
		at.applyObserved(&d.Service)
	}
	at.applyLearned(&d.Service)
	d.sources = gatherSources(&d.Service, at, in.Subscribed)
	if in.Trigger == assign.Reapply && prev != nil && len(prev.Callers) > 0 {
		d.Callers, d.Joint = prev.Callers, prev.Joint
		d.sources = keepCalls(d.sources, &d.Service, at, prev)
	}
	at.applyDemand(d.sources)
	d.Limited = at.applyLimits(&d.Service)
	d.RequestLimit = limitRequests(&d.Service, at, in.Trigger, prev)
	d.Sites = make([]assign.Site, len(at))
	at.show(d.Sites)
	d.sameWays = prev != nil && in.Previous.Topology != nil && in.Previous.Topology.Network == in.Topology.Network && at.same(prev.Sites)
	if d.sameWays {
		d.routes.last = prev
	}
	d.Prices = carriedPrices(at, prev)
	return d
}

// begin gathers what is known of a service: what was measured and learned, how fresh that
// is, what holds its weights, how far mode auto has come, and what is damped.
func begin(in *Input, spec *isobar.Service, prev *Service) Service {
	s := Service{Spec: spec, Coverage: 1, Rollout: rolloutOf(spec, prev)}
	switch {
	case in.Load != nil:
		s.Load = in.Load.Service(spec.Name)
		s.Deviations = deviationsFrom(in.Deviations, spec.Name)
		known := learnedOf(in.Learned, spec.Name)
		s.Learned, s.Dimensions, s.Observed = known.Localities, known.Dimensions, known.Observed
		if s.Load == nil && prev != nil { // nobody sends anything, so nothing is learned, nor forgotten
			s.Learned, s.Dimensions, s.Observed = prev.Learned, prev.Dimensions, prev.Observed
		}
	case prev != nil:
		s.Load, s.Deviations, s.Learned, s.Dimensions, s.Observed = prev.Load, prev.Deviations, prev.Learned, prev.Dimensions, prev.Observed
	}
	if s.Load != nil {
		s.Coverage = s.Load.Coverage
		if !s.Load.Covered {
			s.Hold = fmt.Sprintf("coverage %.0f%%: waiting for reports of sources known from before", 100*s.Load.Coverage)
		}
	}
	if s.Inputs = inputsOf(in, spec.Name, s.Load, prev); s.Hold == "" {
		s.Hold = heldByInputs(&s)
	}
	if pause, ok := in.Paused.For(spec.Name); ok {
		s.Paused, s.Hold = &pause, pause.String()
	}
	s.Scores, s.Rollout = score(in, &s, prev)
	if prev != nil {
		if s.Damping = prev.Damping; in.News {
			s.Damping = s.Damping.later(deviates(&s.Deviations))
		}
	}
	return s
}

func deviationsFrom(all []load.Deviations, service string) load.Deviations {
	i, ok := slices.BinarySearchFunc(all, service, func(f load.Deviations, n string) int { return strings.Compare(f.Service, n) })
	if !ok {
		return load.Deviations{Service: service}
	}
	return all[i]
}

// Input is everything that one plan is made from. Nothing in it is changed.
type Input struct {
	Now      time.Time
	Trigger  assign.Trigger
	Topology *isobar.Topology
	Health   health.Table

	// Load is what was measured; nil keeps what the previous plan was made
	// from, as a reapplication does.
	Load *load.Snapshot
	// Deviations compares observed shares with the previous plan, sorted by service;
	// read only with Load.
	Deviations []load.Deviations
	// News says that Load was measured since the last tick: time has passed, and
	// the planner can see oscillations from tick to tick. Scoring says that Load and
	// Deviations were seen while Previous was in force besides, so that what it
	// predicted can be held against them.
	News, Scoring bool
	// Learned is what is known of capacities from reports of utilization, sorted
	// by service; read only with Load.
	Learned []LearnedService
	// Ages says how old inputs are, sorted by service, then kind: what is not
	// listed is fresh, or not there. That of load reports is in Load. Ages and
	// Degradation are read only with Load.
	Ages        []InputAge
	Degradation Degradation // complete
	// Paused says what operators froze.
	Paused Pauses
	// Subscribed lists who wants which service without necessarily sending to
	// it, sorted by service, then source.
	Subscribed []load.Subscription

	Previous *Plan // nil for the first plan ever
	// Version of the new plan; must be above Previous.Version.
	Version uint64

	// restoring says that Previous was revived: its assignments have to be made.
	restoring bool
}
