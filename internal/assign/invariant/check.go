package invariant

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// Violation is a broken invariant.
type Violation struct {
	Rule    string          `json:"rule"` // a short, stable name, used as a metric label
	Service string          `json:"service"`
	Source  isobar.Locality `json:"source,omitzero"`
	Text    string          `json:"text"`
	Rate    float64         `json:"rate,omitempty"` // of the traffic that breaks the rule, requests/s; 0 where it is not about traffic
	At      time.Time       `json:"at,omitzero"`
}

// The rules that [Check] knows; the names are stable.
const (
	RuleWeights      = "weights"      // weights >= 1, sums < 2^32, priority 0 sums to WeightScale
	RuleUnique       = "unique"       // localities and addresses occur once per assignment
	RuleEndpoints    = "endpoints"    // each locality has the endpoints of the service there, and no others
	RuleGapless      = "gapless"      // priorities have no gaps, and there are at most 4
	RuleNonEmpty     = "non-empty"    // a service with endpoints gives every source some
	RuleDrain        = "drain"        // at most half of the usable localities are drained
	RuleDrop         = "drop"         // drops stay within what the operator allows
	RuleFailover     = "failover"     // every source has all fit localities in one of its priorities
	RuleForbidden    = "forbidden"    // no endpoint, in no priority, where the source must not send
	RuleUnhealthy    = "unhealthy"    // no flow to unfit capacity while fit capacity remains
	RuleConservation = "conservation" // shares and targets sum to 1, loads are what shares send
	RuleFinite       = "finite"       // shares and loads are finite numbers, >= 0
	RuleCeiling      = "ceiling"      // no locality is lifted above its limit
	RuleRounding     = "rounding"     // units are not put above a limit while another locality has headroom
	RuleEntry        = "entry"        // a new share has at least a point, or no other site has headroom
	RuleStep         = "step"         // shares move at most the step of a tick
	RuleRealised     = "realised"     // data planes do what is planned, within 1 point
)

// CheckInput is what the checker needs besides the results: the facts, not the
// reasoning, behind the decision.
type CheckInput struct {
	Service *isobar.Service
	Sources []assign.Source // as given to Assign
	Trigger assign.Trigger
	Hold    string
	Pace    float64 // the part of the usual step that is allowed; 0 = all of it
}

// Check vets a result against the invariants, given the result before it (nil
// for a new service). It is independent of how the result was made. An empty
// answer means that the result may be published.
func Check(prev, next *assign.Result, in CheckInput) []Violation {
	c := &checker{facts: facts{in: in, prev: prev, next: next}}
	if next == nil || len(next.Sources) != len(in.Sources) {
		c.failf(RuleNonEmpty, isobar.Locality{}, "the result does not have the sources that were asked for")
		return c.out
	}
	for i := range next.Sources {
		r := &next.Sources[i]
		if len(r.Shares) != len(next.Sites) || r.Assignment == nil || r.Source != in.Sources[i].Locality {
			c.failf(RuleNonEmpty, r.Source, "the source has no complete answer")
			return c.out
		}
	}
	c.survey()
	c.shape()
	c.nonEmpty()
	c.drains()
	c.drops()
	c.failover()
	c.forbids()
	c.unhealthy()
	c.finite()
	c.conservation()
	c.ceilings()
	c.rounded()
	c.entries()
	c.steps()
	c.realised()
	return c.out
}

// failedf notes a broken rule and the rate of the traffic that breaks it,
// requests/s.
func (c *checker) failedf(rule string, source isobar.Locality, rate float64, format string, args ...any) {
	c.failf(rule, source, format, args...)
	c.out[len(c.out)-1].Rate = rate
}

func (c *checker) failf(rule string, source isobar.Locality, format string, args ...any) {
	c.out = append(c.out, Violation{Rule: rule, Service: c.in.Service.Name, Source: source, Text: fmt.Sprintf(format, args...)})
}

// mostPerPriority bounds sums of weights: clients refuse more.
const mostPerPriority = math.MaxUint32

// shape checks weights, uniqueness and priorities.
func (c *checker) shape() {
	known := c.groups(c.next.Groups, isobar.Locality{})
	seen := make([]isobar.Locality, 0, len(c.next.Sites))
	for i := range c.next.Sources {
		r := &c.next.Sources[i]
		a := r.Assignment
		if len(a.Priorities) > 4 {
			c.failf(RuleGapless, r.Source, "%d priorities, want at most 4", len(a.Priorities))
		}
		var foreign []*isobar.EndpointGroup
		seen = seen[:0]
		for p, ls := range a.Priorities {
			if len(ls) == 0 {
				c.failf(RuleGapless, r.Source, "priority %d is empty", p)
			}
			c.weights(r, p, ls)
			for _, lw := range ls {
				if slices.Contains(seen, lw.Locality) {
					c.failf(RuleUnique, r.Source, "locality %s occurs twice", lw.Locality)
				}
				seen = append(seen, lw.Locality)
				if !known || !slices.Contains(c.next.Groups, lw.EndpointGroup) {
					foreign = append(foreign, lw.EndpointGroup)
				}
			}
		}
		if len(foreign) > 0 {
			// Some group is not one of the service's: look at all of them.
			foreign = foreign[:0]
			for _, ls := range a.Priorities {
				for _, lw := range ls {
					foreign = append(foreign, lw.EndpointGroup)
				}
			}
			c.groups(foreign, r.Source)
		}
	}
}

func (c *checker) weights(r *assign.SourceResult, p int, ls []isobar.LocalityWeight) {
	var total uint64
	for _, lw := range ls {
		if lw.Weight == 0 {
			c.failf(RuleWeights, r.Source, "priority %d: locality %s has weight 0", p, lw.Locality)
		}
		total += uint64(lw.Weight)
	}
	if total > mostPerPriority {
		c.failf(RuleWeights, r.Source, "priority %d: weights sum to %d", p, total)
	}
	if p == 0 && total != isobar.WeightScale {
		c.failf(RuleWeights, r.Source, "priority 0: weights sum to %d, want %d", total, isobar.WeightScale)
	}
}

// groups checks endpoints, and reports whether they were all right.
func (c *checker) groups(gs []*isobar.EndpointGroup, source isobar.Locality) bool {
	before := len(c.out)
	n := 0
	for _, g := range gs {
		n += len(g.Endpoints)
	}
	seen := make(map[string]struct{}, n)
	for _, g := range gs {
		var total uint64
		for _, e := range g.Endpoints {
			if e.Weight == 0 {
				c.failf(RuleWeights, source, "endpoint %s has weight 0", e.Address)
			}
			total += uint64(e.Weight)
			c.once(seen, e.Address, source)
			if e.Config != nil && e.Config.Details != nil {
				for _, more := range e.Config.Details.AdditionalAddresses {
					c.once(seen, more, source)
				}
			}
		}
		if total > mostPerPriority {
			c.failf(RuleWeights, source, "endpoint weights of %s sum to %d", g.Locality, total)
		}
		c.complete(g, source)
	}
	return len(c.out) == before
}

// complete wants a group to have the endpoints of the service in its locality: all of them, in
// their order, whatever their health. Clients would send to others although nobody listed them.
func (c *checker) complete(g *isobar.EndpointGroup, source isobar.Locality) {
	var want []isobar.Endpoint // none in a locality that the service does not have
	for i := range c.in.Service.Localities {
		if sl := &c.in.Service.Localities[i]; sl.Locality == g.Locality {
			want = sl.Endpoints
			break
		}
	}
	if len(g.Endpoints) != len(want) {
		c.failf(RuleEndpoints, source, "endpoints of %s: %d, want the %d of the service", g.Locality, len(g.Endpoints), len(want))
		return
	}
	for k := range want {
		if got := g.Endpoints[k].Address; got != want[k].Address {
			c.failf(RuleEndpoints, source, "%s has endpoint %s in place of %s", g.Locality, got, want[k].Address)
			return
		}
	}
}

// once fails for an address that was seen before.
func (c *checker) once(seen map[string]struct{}, address string, source isobar.Locality) {
	if _, twice := seen[address]; twice {
		c.failf(RuleUnique, source, "address %s occurs twice", address)
	}
	seen[address] = struct{}{}
}

// checker holds the facts of one check, and the violations that it found.
type checker struct {
	facts

	out []Violation
}

// Milder reports whether the violations a do less harm than b. What breaks the
// form of an answer comes first, as clients may refuse it or nobody can tell
// what they make of it; then the traffic that goes where it should not; then
// the number.
func Milder(a, b []Violation) bool {
	return cmp.Or(cmp.Compare(malformed(a), malformed(b)), compareRates(misdirected(a), misdirected(b)), cmp.Compare(len(a), len(b))) < 0
}

// malformed counts the violations of rules about the form of an answer: all but those listed.
func malformed(vs []Violation) int {
	n := 0
	for i := range vs {
		switch vs[i].Rule {
		case RuleCeiling, RuleRounding, RuleEntry, RuleStep, RuleUnhealthy, RuleDrain, RuleFailover:
		default:
			n++
		}
	}
	return n
}

func misdirected(vs []Violation) float64 {
	sum := 0.0
	for i := range vs {
		sum += vs[i].Rate
	}
	return sum
}

// sameRate is by how much rates differ that count as the same, relative to the larger.
const sameRate = 1e-9

// compareRates takes rates that differ by rounding for the same.
func compareRates(a, b float64) int {
	if d := a - b; d < sameRate*max(1, a, b) && -d < sameRate*max(1, a, b) {
		return 0
	}
	return cmp.Compare(a, b)
}
