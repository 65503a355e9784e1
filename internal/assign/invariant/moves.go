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

// checkLimit is the rate that a site may carry.
func checkLimit(s *assign.Site) float64 {
	return math.Max(0, s.Ceiling*math.Max(1, s.Scale)*s.Capacity-s.Background)
}

// published fills in a source's shares before, on today's sites; nil for a
// source that had no answer.
func (c *checker) published(source int, out []float64) []float64 {
	was := c.prev.Source(c.next.Sources[source].Source)
	if was == nil || total(was.Shares) == 0 {
		return nil
	}
	for l, k := range c.before {
		if k >= 0 && k < len(was.Shares) {
			out[l] = was.Shares[k]
		}
	}
	return out
}

// reference is the load that the shares from before would send today. Sources
// without any count with what they got now.
func (c *checker) reference() []float64 {
	ref := make([]float64, len(c.next.Sites))
	for i := range c.next.Sources {
		shares := c.was[i]
		if shares == nil {
			shares = c.next.Sources[i].Shares
		}
		for l, v := range shares {
			ref[l] += c.rate(i) * v
		}
	}
	return ref
}

// rounding is the load that rounding may add to a site: a unit of each source.
func (c *checker) rounding() float64 {
	sum := 0.0
	for i := range c.next.Sources {
		sum += c.rate(i) * checkUnit
	}
	return sum
}

// untold is the load of what sources want in shares too small for the wire: it
// goes where they send most.
func (c *checker) untold() float64 {
	sum := 0.0
	for i := range c.next.Sources {
		s := &c.next.Sources[i]
		for l, v := range s.Want {
			if l < len(s.Shares) && s.Shares[l] == 0 && v > 0 && v < checkUnit {
				sum += c.rate(i) * v
			}
		}
	}
	return sum
}

// leaves tells how much of a published share may leave a site at once, because
// it can't or should not stay.
func (c *checker) leaves(source, site int, share float64) float64 {
	switch {
	case !c.fit[site] || c.forbidden(source, site):
		return share
	case c.barred(source, site):
		return math.Max(0, share-math.Min(checkProbe, c.next.Sources[source].Shares[site]))
	default:
		return 0
	}
}

func (c *checker) barred(source, site int) bool {
	b := c.in.Sources[source].Barred
	return site < len(b) && b[site]
}

// displaced is the load that left unfit capacity, or sites that it can't reach.
func (c *checker) displaced() float64 {
	displaced := 0.0
	for i := range c.next.Sources {
		if was := c.was[i]; was != nil {
			stays := 0.0
			for l, v := range was {
				gone := c.leaves(i, l, v)
				if !c.fit[l] {
					gone = math.Max(0, v-c.next.Sources[i].Shares[l])
				}
				stays += v - gone
			}
			displaced += c.rate(i) * math.Max(0, 1-stays)
		}
	}
	return displaced
}

// ceilingsBind: mode full, with a policy that uses them.
func (c *checker) ceilingsBind() bool {
	return c.in.Service.Mode == isobar.ModeFull && !c.in.Service.Policy.IgnoresLoad()
}

// ceilings: at current demand no locality is lifted above its limit, and no
// excess over that grows. What left unfit capacity may land anywhere, and probes
// have to.
func (c *checker) ceilings() {
	if !c.ceilingsBind() || !c.anyFit {
		return
	}
	ref := c.reference()
	displaced, slack := c.displaced(), c.rounding()+c.untold()
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

// comesBack is the share that may return at once to sites that work again.
func (c *checker) comesBack(source int, was []float64) float64 {
	back, sum := c.in.Sources[source].Back, 0.0
	for l, v := range was {
		if l < len(back) && back[l] && c.in.Service.Mode == isobar.ModeFull {
			sum += math.Max(0, c.next.Sources[source].Want[l]-v)
		}
	}
	return sum
}

// shrunk reports whether a site lost endpoints.
func (c *checker) shrunk(l int) bool {
	k := c.before[l]
	return k >= 0 && countUsable(c.next.Sites[l].Group) < countUsable(c.prev.Sites[k].Group)
}
