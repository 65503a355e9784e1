package invariant

import (
	"math"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// facts are what the rules are held against: the results, what was asked for, and what
// follows from both.
type facts struct {
	in         CheckInput
	prev, next *assign.Result
	fit        []bool // per site of next
	anyFit     bool
	before     []int       // per site of next: its index in prev, or -1
	was        [][]float64 // per source: the shares published before; nil without
}

// survey finds out which sites are fit to take traffic, and where they were.
func (c *facts) survey() {
	sites := c.next.Sites
	c.fit, c.before = make([]bool, len(sites)), make([]int, len(sites))
	for l := range sites {
		s := &sites[l]
		c.fit[l] = s.Capacity > 0 && !s.Unreachable && countUsable(s.Group) > 0
		c.anyFit = c.anyFit || c.fit[l]
		c.before[l] = -1
		if c.prev == nil {
			continue
		}
		for k := range c.prev.Sites {
			if c.prev.Sites[k].Group.Locality == s.Group.Locality {
				c.before[l] = k
				break
			}
		}
	}
	c.was = make([][]float64, len(c.next.Sources))
	cells := make([]float64, len(c.was)*len(sites))
	for i := range c.was {
		c.was[i] = c.published(i, cells[i*len(sites):(i+1)*len(sites)])
	}
}

func countUsable(g *isobar.EndpointGroup) int {
	n := 0
	for i := range g.Endpoints {
		if h := g.Endpoints[i].Health; h == isobar.Healthy || h == isobar.Unknown {
			n++
		}
	}
	return n
}

// published fills in a source's shares before, on today's sites; nil for a
// source that had no answer.
func (c *facts) published(source int, out []float64) []float64 {
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

// rate is the source's demand after drops.
func (c *facts) rate(source int) float64 {
	return c.in.Sources[source].Demand * (1 - c.dropped(source))
}

// dropped is the part of a source's requests that its clients drop.
func (c *facts) dropped(source int) float64 {
	classes := c.next.Classes
	if classes == nil {
		return c.next.Drop
	}
	mix := c.in.Sources[source].Mix
	all, sum := 0.0, 0.0
	for k, v := range mix {
		all += v
		sum += v * classes.Drops[k]
	}
	if all <= 0 {
		return classes.Drops[isobar.ClassCritical]
	}
	return sum / all
}

// forbidden reports whether a source must never send to a site.
func (c *facts) forbidden(source, site int) bool {
	f := c.in.Sources[source].Forbidden
	return site < len(f) && f[site]
}

// anyFitFor reports whether a source has fit capacity that it may use.
func (c *facts) anyFitFor(source int) bool {
	for l, fit := range c.fit {
		if fit && !c.forbidden(source, l) {
			return true
		}
	}
	return false
}

func (c *facts) barred(source, site int) bool {
	b := c.in.Sources[source].Barred
	return site < len(b) && b[site]
}

// closed reports whether nothing more may be put on a site for a source.
func (c *facts) closed(source, site int) bool {
	s := c.in.Sources[source].Reserve
	return c.forbidden(source, site) || (site < len(s) && s[site])
}

// shrunk reports whether a site lost endpoints.
func (c *facts) shrunk(l int) bool {
	k := c.before[l]
	return k >= 0 && countUsable(c.next.Sites[l].Group) < countUsable(c.prev.Sites[k].Group)
}

// leaves returns how much of a published share may leave a site at once, because
// it can't or should not stay.
func (c *facts) leaves(source, site int, share float64) float64 {
	switch {
	case !c.fit[site] || c.forbidden(source, site):
		return share
	case c.barred(source, site):
		return math.Max(0, share-math.Min(checkProbe, c.next.Sources[source].Shares[site]))
	default:
		return 0
	}
}

// comesBack is the share that may return at once to sites that work again.
func (c *facts) comesBack(source int, was []float64) float64 {
	back, sum := c.in.Sources[source].Back, 0.0
	for l, v := range was {
		if l < len(back) && back[l] && c.in.Service.Mode == isobar.ModeFull {
			sum += math.Max(0, c.next.Sources[source].Want[l]-v)
		}
	}
	return sum
}

// displaced is the load that left unfit capacity, or sites that it can't reach.
func (c *facts) displaced() float64 {
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

// displacedFrom reports whether a part of a source's share had to find a new
// place at once.
func (c *facts) displacedFrom(source int) bool {
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

// reference is the load that the shares from before would send today. Sources
// without any count with what they got now.
func (c *facts) reference() []float64 {
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
func (c *facts) rounding() float64 {
	sum := 0.0
	for i := range c.next.Sources {
		sum += c.rate(i) * checkUnit
	}
	return sum
}

// unpublished is the load of wanted shares that are too small for the wire: it goes to
// the locality with the source's largest share.
func (c *facts) unpublished() float64 {
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

// ceilingsBind: mode full, with a policy that uses them.
func (c *facts) ceilingsBind() bool {
	return c.in.Service.Mode == isobar.ModeFull && !c.in.Service.Policy.IgnoresLoad()
}

// checkLimit is the rate that a site may carry.
func checkLimit(s *assign.Site) float64 {
	return math.Max(0, s.Ceiling*math.Max(1, s.Scale)*s.Capacity-s.Unmanaged)
}

func total(v []float64) float64 {
	t := 0.0
	for _, x := range v {
		t += x
	}
	return t
}
