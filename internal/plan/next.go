package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
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
	drafts := make([]*draft, len(p.Services))
	for i := range in.Topology.Services {
		spec := &in.Topology.Services[i]
		prev, _ := in.Previous.Service(spec.Name)
		if in.concernsNot(spec, prev) {
			p.Services[i] = prev
			continue
		}
		drafts[i] = newDraft(&in, spec, prev)
		drafts[i].carryPrices(prev)
	}
	if in.Trigger != assign.Rebase {
		linkCalls(drafts)
		chooseSwings(drafts)
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
			p.Services[i] = &service
			p.Violations = append(p.Violations, d.violations...)
		}
	}
	p.sum(sums)
	return p, nil
}

// draft is a service while it is planned.
type draft struct {
	Service

	sites    []site
	sources  []sourceDemand
	network  *isobar.Network
	previous *assign.Result
	last     *Service // of the plan before; nil for a new one
	sameWays bool     // sites and network are those of last

	in, out  []*link   // calls that count: who calls it, and whom it calls
	swinging bool      // that demand swings is planned for
	extra    []float64 // per site, ms: what requests cost there beyond what is usual; nil = nothing

	settled [][]float64 // per source of Problem, shares that calm demand wants; nil = nothing to be gained
	policy  [][]float64 // per source, the shares that its policy wants; nil for the solver's

	published  float64 // cost of what is published, requests/s x ms
	violations []invariant.Violation
}

// sourceDemand is a source with what it wants to send that can be steered.
type sourceDemand struct {
	source isobar.Locality
	demand float64 // requests/s, background taken off
	barred []bool  // per site
}

// minDemand is the rate below which a source counts as silent, requests/s.
const minDemand = 1e-3

func newDraft(in *Input, spec *isobar.Service, prev *Service) *draft {
	d := &draft{network: in.Topology.Network, sites: buildSites(spec, in.Health, prev)}
	d.Spec = spec
	d.Coverage = 1
	d.trusted(prev)
	switch {
	case in.Load != nil:
		d.Load = in.Load.Service(spec.Name)
		d.Findings = findingsOf(in.Findings, spec.Name)
		known := learnedOf(in.Learned, spec.Name)
		d.Learned, d.Dimensions, d.Observed = known.Localities, known.Dimensions, known.Observed
		if d.Load == nil && prev != nil { // nobody sends anything, so nothing is learned, nor forgotten
			d.Learned, d.Dimensions, d.Observed = prev.Learned, prev.Dimensions, prev.Observed
		}
	case prev != nil:
		d.Load, d.Findings, d.Learned, d.Dimensions, d.Observed = prev.Load, prev.Findings, prev.Learned, prev.Dimensions, prev.Observed
	}
	if d.Load != nil {
		d.Coverage = d.Load.Coverage
		if !d.Load.Covered {
			d.Hold = fmt.Sprintf("coverage %.0f%%: waiting for reports of sources known from before", 100*d.Load.Coverage)
		}
	}
	if d.Inputs = d.inputsOf(in, prev); d.Hold == "" {
		d.Hold = d.heldByInputs()
	}
	if pause, ok := in.Paused.For(spec.Name); ok {
		d.Paused, d.Hold = &pause, pause.String()
	}
	if d.last = prev; prev != nil {
		d.previous = prev.Result
	}
	d.score(in, prev)
	d.damp(in, prev)
	d.applyFindings()
	d.applyObserved()
	d.applyLearned()
	d.sources = d.gatherSources(in.Subscribed)
	if in.Trigger == assign.Rebase && prev != nil && len(prev.Callers) > 0 {
		d.keepCalls(prev)
	}
	undeclared(d.sites, d.sources)
	d.applyLimits()
	d.limitRequests(in, prev)
	d.Sites = make([]assign.Site, len(d.sites))
	d.showSites()
	d.sameWays = prev != nil && in.Previous.Topology != nil && in.Previous.Topology.Network == d.network && sameSites(prev.Sites, d.Sites)
	return d
}

// showSites brings Sites up to date with what was made of sites.
func (d *draft) showSites() {
	for i := range d.sites {
		d.sites[i].bound()
		d.Sites[i] = d.sites[i].Site
	}
}

func findingsOf(all []load.Findings, service string) load.Findings {
	i, ok := slices.BinarySearchFunc(all, service, func(f load.Findings, n string) int { return strings.Compare(f.Service, n) })
	if !ok {
		return load.Findings{Service: service}
	}
	return all[i]
}

// applyFindings books observed background and takes away capacity that nobody
// reaches.
func (d *draft) applyFindings() {
	if d.Mode() == isobar.ModeObserve {
		return // nothing is served but the baseline and health
	}
	for _, found := range [][]load.Landing{d.Findings.Background, d.Findings.Unreported} {
		for _, b := range found {
			if i := d.siteIndex(b.Locality); i >= 0 {
				d.sites[i].Background += b.Rate
			}
		}
	}
	// Evidence may take away half of the localities at the most: whoever could
	// make the rest look dead too is more likely wrong than right. Sources that
	// do not reach those stay barred from them one by one.
	usable, drained := d.usableSites()
	may := usable/2 - drained
	for _, l := range d.Findings.Unreachable {
		i := d.siteIndex(l)
		if i < 0 || d.sites[i].Group.Usable() == 0 || d.sites[i].Drained {
			continue
		}
		if may <= 0 {
			break
		}
		may--
		s := &d.sites[i]
		s.Unreachable, s.Capacity, s.servers, s.queues = true, 0, 0, 0
	}
}

// usableSites counts the sites with endpoints that take traffic, and those of
// them that are drained.
func (d *draft) usableSites() (usable, drained int) {
	for i := range d.sites {
		if d.sites[i].Group.Usable() == 0 {
			continue
		}
		usable++
		if d.sites[i].Drained {
			drained++
		}
	}
	return usable, drained
}

// gatherSources lists the sources of a service, sorted: those with demand and
// those that only watch.
func (d *draft) gatherSources(subscribed []Subscription) []sourceDemand {
	byLocality := map[isobar.Locality]float64{}
	var order []isobar.Locality
	add := func(l isobar.Locality, demand float64) {
		if _, known := byLocality[l]; !known {
			order = append(order, l)
		}
		byLocality[l] += demand
	}
	if d.Load != nil {
		for i := range d.Load.Sources {
			if s := &d.Load.Sources[i]; s.Demand >= minDemand {
				add(s.Source, s.Demand)
			}
		}
	}
	from, _ := slices.BinarySearchFunc(subscribed, d.Spec.Name, func(s Subscription, n string) int { return strings.Compare(s.Service, n) })
	for _, s := range subscribed[from:] {
		if s.Service != d.Spec.Name {
			break
		}
		add(s.Source, 0)
	}
	for _, b := range d.Findings.Background {
		if b.Failover || d.Mode() == isobar.ModeObserve {
			continue // still to be steered, as soon as it can be
		}
		if _, known := byLocality[b.Source]; known {
			byLocality[b.Source] = max(0, byLocality[b.Source]-b.Rate)
		}
	}
	slices.SortFunc(order, isobar.Locality.Compare)
	out := make([]sourceDemand, len(order))
	for i, l := range order {
		demand := byLocality[l]
		if demand < minDemand {
			demand = 0
		}
		out[i] = sourceDemand{source: l, demand: demand, barred: d.barredFrom(l)}
	}
	return out
}

// barredFrom tells which sites the source was seen not to reach; nil for none.
func (d *draft) barredFrom(source isobar.Locality) []bool {
	var out []bool
	if d.Mode() == isobar.ModeObserve {
		return nil
	}
	for _, b := range d.Findings.Barred {
		if b.Source != source {
			continue
		}
		if i := d.siteIndex(b.Locality); i >= 0 {
			if out == nil {
				out = make([]bool, len(d.sites))
			}
			out[i] = true
		}
	}
	return out
}

func (d *draft) siteIndex(l isobar.Locality) int {
	return slices.IndexFunc(d.sites, func(s site) bool { return s.Group.Locality == l })
}
