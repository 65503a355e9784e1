package invariant

import (
	"math"

	"github.com/isobar-xds/isobar"
)

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
