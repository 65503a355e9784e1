package invariant

import (
	"math"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/assign"
)

// nonEmpty wants endpoints for every source, unless the service has none left
// because an operator took them away.
func (c *checker) nonEmpty() {
	configured := 0
	for i := range c.in.Service.Localities {
		configured += len(c.in.Service.Localities[i].Endpoints)
	}
	if configured == 0 {
		return
	}
	for i := range c.next.Sources {
		r := &c.next.Sources[i]
		n, configured := 0, 0
		for l := range c.next.Sites {
			if !c.forbidden(i, l) {
				configured += len(c.next.Sites[l].Group.Endpoints)
			}
		}
		if configured == 0 {
			continue // what there is must not be used from here
		}
		for p, ls := range r.Assignment.Priorities {
			for _, lw := range ls {
				if p == 0 {
					n += len(lw.Endpoints)
				}
			}
		}
		if n == 0 {
			c.failf(RuleNonEmpty, r.Source, "no endpoint in priority 0, but the service has %d", configured)
		}
	}
}

// failover wants every fit locality that a source may use in one of its priorities: between two
// plans only the listed localities can take over. A source without priorities breaks nonEmpty.
func (c *checker) failover() {
	listed := make([]bool, len(c.next.Sites))
	for i := range c.next.Sources {
		r := &c.next.Sources[i]
		if len(r.Assignment.Priorities) == 0 {
			continue
		}
		clear(listed)
		for _, tier := range r.Assignment.Priorities {
			c.mark(tier, listed)
		}
		for l := range c.next.Sites {
			if c.fit[l] && !c.forbidden(i, l) && !listed[l] {
				c.failf(RuleFailover, r.Source, "%s can take traffic, but is in none of the priorities", c.next.Sites[l].Group.Locality)
			}
		}
	}
}

// mark sets the sites that a tier lists. It begins each search after the site found before: tiers
// list localities in the order of sites, so a source of many localities takes one pass.
func (c *checker) mark(tier []isobar.LocalityWeight, listed []bool) {
	n, from := len(listed), 0
	for k := range tier {
		for j := range n {
			if l := (from + j) % n; c.next.Sites[l].Group.Locality == tier[k].Locality {
				listed[l], from = true, l+1
				break
			}
		}
	}
}

// lists reports whether any priority has a locality.
func lists(a *isobar.Assignment, at isobar.Locality) bool {
	for _, tier := range a.Priorities {
		for k := range tier {
			if tier[k].Locality == at {
				return true
			}
		}
	}
	return false
}

// drains counts what was taken out of use by a decision of ours, among the
// localities that could serve. Capacity can be 0 for other reasons: nothing is
// sent yet to where none is declared, or what is declared leaves none.
func (c *checker) drains() {
	usable, drained := 0, 0
	for l := range c.next.Sites {
		s := &c.next.Sites[l]
		if countUsable(s.Group) == 0 {
			continue
		}
		usable++
		if s.Unreachable || s.Drained {
			drained++
		}
	}
	if 2*drained > usable {
		c.failf(RuleDrain, isobar.Locality{}, "%d of %d usable localities are drained, want at most half", drained, usable)
	}
}

// forbids wants nothing where a source must not send, nor the means to.
func (c *checker) forbids() {
	for i := range c.next.Sources {
		r := &c.next.Sources[i]
		for l := range c.next.Sites {
			at := c.next.Sites[l].Group.Locality
			if !c.forbidden(i, l) {
				continue
			}
			if r.Shares[l] > 0 || lists(r.Assignment, at) {
				c.failedf(RuleForbidden, r.Source, r.Shares[l]*c.rate(i), "%s is not allowed for this source", at)
			}
		}
	}
}

// unhealthy wants nothing on unfit capacity, but for probes.
func (c *checker) unhealthy() {
	for i := range c.next.Sources {
		r := &c.next.Sources[i]
		for l, v := range r.Shares {
			if v > 0 && c.anyFitFor(i) && !c.fit[l] && !(v <= checkProbe+checkUnit && c.mayProbe(i, l)) {
				c.failedf(RuleUnhealthy, r.Source, v*c.rate(i), "%.2f%% of its traffic goes to %s, which can take no traffic", 100*v, c.next.Sites[l].Group.Locality)
			}
		}
	}
}

// mayProbe reports whether a source has a reason to try an unfit site: nobody
// reaches it, but its endpoints are healthy, and the source was seen not to
// reach it or sent there before.
func (c *checker) mayProbe(source, site int) bool {
	s := &c.next.Sites[site]
	if !s.Unreachable || countUsable(s.Group) == 0 {
		return false
	}
	return c.barred(source, site) || (c.was[source] != nil && c.was[source][site] > 0)
}

// finite wants numbers, >= 0: every comparison with NaN is false, so that the other rules see
// nothing wrong with it, and the next plan would begin from it.
func (c *checker) finite() {
	for i := range c.next.Sources {
		r := &c.next.Sources[i]
		for l, v := range r.Shares {
			if !isNumber(v) {
				c.failf(RuleFinite, r.Source, "a share of %v for %s", v, c.next.Sites[l].Group.Locality)
			}
		}
	}
	for l, y := range c.next.Load {
		if !isNumber(y) && l < len(c.next.Sites) {
			c.failf(RuleFinite, isobar.Locality{}, "a load of %v for %s", y, c.next.Sites[l].Group.Locality)
		}
	}
}

// isNumber reports whether x is finite and not negative.
func isNumber(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }

// conservation checks sums: nothing is lost or made between target, shares,
// weights and load.
func (c *checker) conservation() {
	load := make([]float64, len(c.next.Sites))
	for i := range c.next.Sources {
		r := &c.next.Sources[i]
		if t := c.in.Sources[i].Target; t != nil && math.Abs(total(t)-1) > 1e-6 {
			c.failf(RuleConservation, r.Source, "the target sums to %v", total(t))
		}
		if got := total(r.Shares); len(r.Assignment.Priorities) > 0 && math.Abs(got-1) > 1e-6 {
			c.failf(RuleConservation, r.Source, "the shares sum to %v", got)
		}
		for l, v := range r.Shares {
			load[l] += c.rate(i) * v
			if w := priority0(r.Assignment, c.next.Sites[l].Group.Locality); math.Abs(w/isobar.WeightScale-v) > 1e-6 {
				c.failf(RuleConservation, r.Source, "%s has weight %v for a share of %v", c.next.Sites[l].Group.Locality, w, v)
			}
		}
	}
	for l, y := range load {
		if len(c.next.Load) != len(load) || math.Abs(y-c.next.Load[l]) > 1e-6*max(1, y) {
			c.failf(RuleConservation, isobar.Locality{}, "the load of %s is not what the shares send: %v", c.next.Sites[l].Group.Locality, y)
			return
		}
	}
}

func priority0(a *isobar.Assignment, l isobar.Locality) float64 {
	w := 0.0
	if len(a.Priorities) > 0 {
		for _, lw := range a.Priorities[0] {
			if lw.Locality == l {
				w += float64(lw.Weight)
			}
		}
	}
	return w
}

// realised asks the models of the data planes what they make of priority 0.
func (c *checker) realised() {
	most := len(c.next.Sites)
	weights, eligible := make([]uint32, 0, most), make([]dataplane.Eligible, 0, most)
	for i := range c.next.Sources {
		r := &c.next.Sources[i]
		if len(r.Assignment.Priorities) == 0 {
			continue
		}
		hosts := make([]dataplane.Hosts, len(r.Assignment.Priorities))
		for p, ls := range r.Assignment.Priorities {
			for _, lw := range ls {
				addHosts(&hosts[p], lw.EndpointGroup, r.Assignment.WeightedPriorityHealth)
			}
		}
		weights, eligible = weights[:0], eligible[:0]
		for _, lw := range r.Assignment.Priorities[0] {
			weights = append(weights, lw.Weight)
			eligible = append(eligible, dataplane.Eligible{Hosts: countUsable(lw.EndpointGroup), Counted: countShown(lw.EndpointGroup)})
		}
		factor := r.Assignment.OverprovisioningFactor
		envoy, _ := dataplane.LocalityShares(weights, eligible, factor)
		c.realisedBy(r, dataplane.Envoy, dataplane.EnvoyLoads(hosts, factor, dataplane.DefaultPanicThreshold)[0], envoy)
		grpc, _ := dataplane.LocalityShares(weights, eligible, 0)
		c.realisedBy(r, dataplane.GRPC, dataplane.GRPCLoads(hosts)[0], grpc)
	}
}

func addHosts(h *dataplane.Hosts, g *isobar.EndpointGroup, weighted bool) {
	h.Total += len(g.Endpoints)
	for k := range g.Endpoints {
		if g.Endpoints[k].Health == isobar.Draining {
			h.Excluded++
			continue
		}
		var weight uint64
		if weighted {
			weight = uint64(g.Endpoints[k].Weight)
			h.CountedWeight += weight
		}
		switch g.Endpoints[k].Health {
		case isobar.Healthy, isobar.Unknown:
			h.Healthy++
			h.HealthyWeight += weight
		case isobar.Degraded:
			h.Degraded++
			h.DegradedWeight += weight
		default:
		}
	}
}

// realisedBy compares what is planned with the shares of priority 0's
// localities, within one point.
func (c *checker) realisedBy(r *assign.SourceResult, kind dataplane.Kind, load dataplane.PriorityLoad, shares []float64) {
	const within = 0.01
	if load.Panic {
		c.failf(RuleRealised, r.Source, "%s panics on priority 0 and ignores its weights", kind)
		return
	}
	p0 := r.Assignment.Priorities[0]
	for l, planned := range r.Shares {
		at := c.next.Sites[l].Group.Locality
		got := 0.0
		for k := range p0 {
			if p0[k].Locality == at {
				got += shares[k] * float64(load.Healthy) / 100
			}
		}
		if math.Abs(got-planned) > within {
			c.failf(RuleRealised, r.Source, "%s sends %.1f%% to %s, planned are %.1f%%", kind, 100*got, at, 100*planned)
		}
	}
}

// countShown counts the endpoints that are in Envoy's denominators.
func countShown(g *isobar.EndpointGroup) int {
	n := 0
	for i := range g.Endpoints {
		if g.Endpoints[i].Health != isobar.Draining {
			n++
		}
	}
	return n
}

// drops wants what is dropped within what the operator allows, of all requests
// and of those of each class, and of no class more than of one that matters less.
func (c *checker) drops() {
	const rounding = 0.01 // of what is dropped by class, on the wire
	most, rules := c.in.Service.MaxShed, c.in.Service.Criticality
	usual, slack := c.next.Drop, 1e-12
	if rules != nil {
		slack = rounding
	}
	if d := c.next.Drop; !(d >= 0 && d <= most+slack) {
		c.failf(RuleDrop, isobar.Locality{}, "a drop of %v, want 0 to %v", d, most)
	}
	if (rules == nil) != (c.next.Classes == nil) {
		c.failf(RuleDrop, isobar.Locality{}, "drops by class do not match the service's classes")
		return
	}
	if rules != nil {
		c.classDrops(rules)
		usual = c.next.Classes.Drops[isobar.ClassCritical]
	}
	for i := range c.next.Sources {
		r := &c.next.Sources[i]
		if r.Assignment.Drop != usual || !r.Assignment.Classes.Equal(c.next.Classes) {
			c.failf(RuleDrop, r.Source, "a drop of %v, want the service's %v", r.Assignment.Drop, usual)
		}
	}
}

func (c *checker) classDrops(rules *isobar.Criticality) {
	drops := c.next.Classes.Drops
	higher := 0.0
	for k, d := range drops {
		class := isobar.Class(k)
		if !(d >= 0 && d <= rules.MaxShed[k]+1e-12) {
			c.failf(RuleDrop, isobar.Locality{}, "a drop of %v of class %s, want 0 to %v", d, class, rules.MaxShed[k])
		}
		if d < higher {
			c.failf(RuleDrop, isobar.Locality{}, "a drop of %v of class %s, but %v of one that matters more", d, class, higher)
		}
		higher = d
	}
	demand, dropped := 0.0, 0.0
	for i := range c.in.Sources {
		demand += c.in.Sources[i].Demand
		dropped += c.in.Sources[i].Demand * c.dropped(i)
	}
	if demand > 0 && math.Abs(dropped/demand-c.next.Drop) > 1e-6 {
		c.failf(RuleDrop, isobar.Locality{}, "classes drop %v of the demand, want %v", dropped/demand, c.next.Drop)
	}
}
