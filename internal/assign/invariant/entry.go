package invariant

import (
	"math"

	"github.com/isobar-xds/isobar/internal/assign"
)

// checkEntry is the least share with which a site enters: a point, less what
// rounding takes.
const checkEntry = 0.0095

// entries: a locality enters priority 0 with at least a point. Exempt are probes,
// sources that lost share to failures, for which any room is welcome, and what
// was recorded to find no room elsewhere.
func (c *checker) entries() {
	if !c.anyFit {
		return
	}
	deciding := c.in.Trigger == assign.Tick && c.in.Hold == ""
	for i := range c.next.Sources {
		r := &c.next.Sources[i]
		if (c.was[i] != nil && !deciding) || c.displacedFrom(i) || hasReason(r, assign.ReasonFull) || !c.anyFitFor(i) {
			continue
		}
		for l, v := range r.Shares {
			enters := v > 0 && (c.was[i] == nil || c.was[i][l] == 0)
			if enters && v < checkEntry && c.fit[l] && !c.barred(i, l) {
				c.failedf(RuleEntry, r.Source, c.rate(i)*v, "%.2f%% of its traffic enters %s, want at least 1%%", 100*v, c.next.Sites[l].Group.Locality)
			}
		}
	}
}

// displacedFrom reports whether a part of a source's share had to find a new
// place at once.
func (c *checker) displacedFrom(source int) bool {
	was := c.was[source]
	if was == nil {
		return false
	}
	stays := 0.0
	for l, v := range was {
		if v > 0 && c.shrunk(l) {
			return true
		}
		stays += v - c.leaves(source, l, v)
	}
	return stays < 1-checkUnit/2
}

func hasReason(r *assign.SourceResult, code assign.ReasonCode) bool {
	for i := range r.Reasons {
		if r.Reasons[i].Code == code {
			return true
		}
	}
	return false
}

// rounded: where a unit of a source takes a locality above its limit, none of
// the others that it uses may have room for the unit. When share had to find a
// new place at once, or sources are new, there is no exact measure of what each
// locality had to carry before rounding.
func (c *checker) rounded() {
	if !c.ceilingsBind() || !c.anyFit {
		return
	}
	ref, most := c.reference(), c.rounding()
	y := make([]float64, len(c.next.Sites))
	for i := range c.next.Sources {
		if c.rate(i) > 0 && (c.was[i] == nil || c.displacedFrom(i)) {
			return
		}
		for l, v := range c.next.Sources[i].Shares {
			y[l] += c.rate(i) * v
		}
	}
	for l := range y {
		limit := checkLimit(&c.next.Sites[l])
		over := y[l] - math.Max(limit, ref[l])
		if c.fit[l] && over > 1e-5*y[l] && over <= most {
			c.roundedOnto(l, over, y)
		}
	}
}

// closed reports whether nothing more may be put on a site for a source.
func (c *checker) closed(source, site int) bool {
	s := c.in.Sources[source].Reserve
	return c.forbidden(source, site) || (site < len(s) && s[site])
}

// roundedOnto looks for a source that could leave a full locality by a unit.
func (c *checker) roundedOnto(full int, over float64, y []float64) {
	for i := range c.next.Sources {
		r := &c.next.Sources[i]
		step := c.rate(i) * checkUnit
		if step < over*1.001 || c.barred(i, full) || r.Shares[full] < 1.5*checkUnit || (c.was[i] != nil && r.Shares[full] <= c.was[i][full]+checkUnit/2) {
			continue
		}
		for k, v := range r.Shares {
			if k == full || c.closed(i, k) || v <= 0 || !c.fit[k] || c.barred(i, k) {
				continue
			}
			if checkLimit(&c.next.Sites[k])-y[k] >= step*1.001 {
				c.failedf(RuleRounding, r.Source, over, "%s is above its limit by %.2f requests/s, but %s has room",
					c.next.Sites[full].Group.Locality, over, c.next.Sites[k].Group.Locality)
				return
			}
		}
	}
}
