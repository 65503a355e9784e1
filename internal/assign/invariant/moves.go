package invariant

import (
	"math"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// The bounds on moves as the checker knows them, as shares.
const (
	checkUnit   = 1.0 / isobar.WeightScale
	checkStep   = 0.10
	checkRelief = 0.30
	checkProbe  = 0.01
)

// ceilings: at current demand no locality is lifted above its limit, and no
// excess over that grows. What left unfit capacity may land anywhere, and probes
// have to.
func (c *checker) ceilings() {
	if !c.ceilingsBind() || !c.anyFit {
		return
	}
	ref := c.reference()
	displaced, slack := c.displaced(), c.rounding()+c.unpublished()
	for l := range c.next.Sites {
		if c.next.Sites[l].Unreachable {
			continue // what goes there is told by what is fit
		}
		y, probes := 0.0, 0.0
		for i := range c.next.Sources {
			y += c.rate(i) * c.next.Sources[i].Shares[l]
			if c.barred(i, l) && !c.forbidden(i, l) {
				probes += c.rate(i) * checkProbe
			}
		}
		limit := math.Max(checkLimit(&c.next.Sites[l]), probes)
		if most := math.Max(limit, ref[l]) + displaced + slack; y > most*(1+1e-5) {
			c.failedf(RuleCeiling, isobar.Locality{}, y-math.Max(limit, ref[l]),
				"%s is lifted from %.1f to %.1f requests/s, its limit is %.1f", c.next.Sites[l].Group.Locality, ref[l], y, limit)
		}
	}
}

// steps: what leaves fit capacity is bounded per tick, and nothing leaves it
// without a decision. Sites that lost endpoints may be left faster.
func (c *checker) steps() {
	if !c.anyFit {
		return
	}
	ref, rounding := c.reference(), c.rounding()
	for i := range c.next.Sources {
		was := c.was[i]
		if was == nil {
			continue
		}
		r := &c.next.Sources[i]
		other, relief := 0.0, 0.0
		for l, v := range was {
			gone := v - c.leaves(i, l, v) - r.Shares[l]
			switch {
			case gone <= 0 || c.shrunk(l):
			case c.ceilingsBind() && ref[l]+rounding > checkLimit(&c.next.Sites[l]):
				relief += gone
			default:
				other += gone
			}
		}
		slack := checkUnit * float64(len(was)+1)
		if c.in.Trigger != assign.Tick || c.in.Hold != "" {
			if other+relief > slack {
				c.failedf(RuleStep, r.Source, c.rate(i)*(other+relief), "%.2f%% of its traffic moved without a decision", 100*(other+relief))
			}
			continue
		}
		step := checkStep
		if c.in.Pace > 0 {
			step *= math.Min(1, c.in.Pace)
		}
		back := c.comesBack(i, was)
		step, most := math.Max(step, back), math.Max(checkRelief, back)
		if other > step+slack || other+relief > most+slack {
			beyond := math.Max(other-step, other+relief-most)
			c.failedf(RuleStep, r.Source, c.rate(i)*beyond,
				"%.2f%% of its traffic moved, %.2f percentage points of that to relieve overload; want at most %g%%, and 30%% with relief",
				100*(other+relief), 100*relief, 100*step)
		}
	}
}

// checkEntry is the least share with which a site enters: a point, less what
// rounding takes.
const checkEntry = 0.0095

// entries: a locality enters priority 0 with at least a point. Exempt are probes, sources that
// lost share to failures, for which any headroom is welcome, and shares that were recorded to
// find no headroom elsewhere.
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

func hasReason(r *assign.SourceResult, code assign.ReasonCode) bool {
	for i := range r.Reasons {
		if r.Reasons[i].Code == code {
			return true
		}
	}
	return false
}

// rounded: where a unit of a source takes a locality above its limit, none of
// the others that it uses may have headroom for the unit. When share had to find a
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
				c.failedf(RuleRounding, r.Source, over, "%s is above its limit by %.2f requests/s, but %s has headroom",
					c.next.Sites[full].Group.Locality, over, c.next.Sites[k].Group.Locality)
				return
			}
		}
	}
}
