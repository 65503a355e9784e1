package health

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// Defaults of Limits.
const (
	// DefaultCheckerRate is 10,000 endpoints every 5 s.
	DefaultCheckerRate = 2_000.0 // probes/s
	// DefaultEndpointRate is the largest rate of probes of one endpoint by all checkers together,
	// unless the quorum for a verdict needs more.
	DefaultEndpointRate = 10.0 // probes/s
)

const (
	// balance is how far above the mean load of all checkers one may go while
	// another can take over, as in consistent hashing with bounded loads.
	balance = 1.25
	// apart is how much farther away, in milliseconds, a checker may be to be
	// preferred because it is in a zone of its own: with three zones, the loss
	// of one leaves two that can agree. Other continents are not worth that.
	apart = 50.0
)

// PlacementInput is everything that a placement depends on.
type PlacementInput struct {
	Topology *isobar.Topology
	Checkers []Checker // that are connected, in any order
	Previous Placement // the zero value for the first
	Limits   Limits
	Bars     []Bar // pairs of checkers and services that are excluded
}

// Limits bounds the work of checkers and the probes that endpoints have to answer.
type Limits struct {
	CheckerRate  float64 // probes/s of one checker; 0 = DefaultCheckerRate
	EndpointRate float64 // probes/s of one endpoint by all checkers, or by as many as have to agree; 0 = DefaultEndpointRate
}

// Probed reports whether checkers are to probe an endpoint of a service.
func Probed(s *isobar.Service, e *isobar.Endpoint) bool {
	return len(s.HealthChecks) > 0 && (e.Check == nil || !e.Check.Disabled)
}

// Place designates checkers to the endpoints of all services with health checks: for each the
// wanted number in the wanted number of zones, near ones first, no checker much above the mean
// load, none above its limit.
//
// A designation stays unless its checker is gone, can't probe with a protocol that the service
// asks for, is barred, is over its limits, is over 1.25 times the mean load while another could
// do the work, or is one of two in a zone while the endpoint's checkers are in no more zones than
// have to agree and one in a further zone could do it. Place looks at the last two reasons only
// when no checker was lost: a loss moves nothing but the lost share. So call Place once more a
// little after a loss; if nothing has to move it returns its input.
func Place(in PlacementInput) Placement {
	p := newPlacer(&in)
	lost := p.keep(in.Previous)
	p.trim()
	// The quorum for a verdict comes first, for all: if checkers are scarce, a third one for some
	// would leave others without any.
	for i := range p.jobs {
		p.fill(i, p.jobs[i].enough)
	}
	for i := range p.jobs {
		p.fill(i, p.jobs[i].want)
		p.spread(i)
	}
	if !lost {
		p.widen()
		p.rebalance()
	}
	return p.result(in.Previous)
}

// placer is the work in progress.
type placer struct {
	checkers []Checker
	load     []float64 // probes/s per checker
	count    []int     // endpoints per checker, once for each check
	sites    []place   // where checkers are
	siteOf   []int     // per checker
	jobs     []job
	far      [][]float64 // ms, per class of jobs (see job.class) and site
	hard     float64     // probes/s that no checker exceeds
	soft     float64     // probes/s that a checker exceeds only if no other can help
}

// place holds the checkers that differ in nothing but their load.
type place struct {
	locality  isobar.Locality
	protocols Protocols
	most      int // endpoints of a checker, 0 for any number
	zone      int // equal for sites in the same failure domain
	members   []int
	least     int // the member with the least load
}

// job is an endpoint to be probed.
type job struct {
	key      Key
	needs    Protocols
	rate     float64 // probes/s of one checker
	class    int     // jobs of one class are equally far from every site
	asked    int     // checkers that the service asks for
	enough   int     // with fewer there is never a verdict
	want     int     // the wanted number, within the endpoint's budget
	domains  int     // that the service asks for
	chosen   []int   // checkers
	barred   []int   // checkers that must not
	slots    int     // endpoints that it counts for: one for each check
	overfull bool    // a checker that could probe it makes as many probes/s as it may
	full     int     // endpoints that a checker that could probe it may have, and has
}

func newPlacer(in *PlacementInput) *placer {
	p := &placer{checkers: uniqueCheckers(in.Checkers), hard: in.Limits.CheckerRate}
	if p.hard <= 0 {
		p.hard = DefaultCheckerRate
	}
	p.load = make([]float64, len(p.checkers))
	p.count = make([]int, len(p.checkers))
	p.arrange()
	p.addJobs(in)
	total, most := 0.0, 0.0
	for i := range p.jobs {
		total += p.jobs[i].rate * float64(p.jobs[i].want)
		most = max(most, p.jobs[i].rate)
	}
	mean := total / float64(max(1, p.useful()))
	p.soft = min(p.hard, max(balance*mean, mean+most))
	return p
}

// useful counts the checkers that can probe anything.
func (p *placer) useful() int {
	var needs []Protocols
	for i := range p.jobs {
		if !slices.Contains(needs, p.jobs[i].needs) {
			needs = append(needs, p.jobs[i].needs)
		}
	}
	n := 0
	for i := range p.checkers {
		if slices.ContainsFunc(needs, p.checkers[i].Protocols.Has) {
			n++
		}
	}
	return n
}

// uniqueCheckers sorts by id; of several with one id the newest stream counts.
func uniqueCheckers(list []Checker) []Checker {
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b Checker) int {
		if c := strings.Compare(a.ID, b.ID); c != 0 {
			return c
		}
		return b.Since.Compare(a.Since)
	})
	return slices.CompactFunc(out, func(a, b Checker) bool { return a.ID == b.ID })
}

// arrange groups the checkers by place.
func (p *placer) arrange() {
	type where struct {
		locality  isobar.Locality
		protocols Protocols
		most      int
	}
	sites, zones := map[where]int{}, map[isobar.Locality]int{}
	p.siteOf = make([]int, len(p.checkers))
	for i := range p.checkers {
		c := &p.checkers[i]
		at := where{locality: c.Locality, protocols: c.Protocols, most: c.MaxEndpoints}
		s, known := sites[at]
		if !known {
			zone, seen := zones[c.Zone()]
			if !seen {
				zone = len(zones)
				zones[c.Zone()] = zone
			}
			s = len(p.sites)
			sites[at] = s
			p.sites = append(p.sites, place{locality: c.Locality, protocols: c.Protocols, most: c.MaxEndpoints, zone: zone, least: i})
		}
		p.siteOf[i] = s
		p.sites[s].members = append(p.sites[s].members, i)
	}
}

// result writes the placement down; a list that did not change keeps
// its identity.
func (p *placer) result(previous Placement) Placement {
	out := Placement{Designations: make([]Designation, len(p.checkers))}
	sizes := make([]int, len(p.checkers))
	for i := range p.jobs {
		for _, c := range p.jobs[i].chosen {
			sizes[c]++
		}
	}
	for i := range p.checkers {
		out.Designations[i] = Designation{Checker: p.checkers[i].ID, Endpoints: make([]Key, 0, sizes[i])}
	}
	for i := range p.jobs {
		for _, c := range p.jobs[i].chosen {
			d := &out.Designations[c]
			d.Endpoints = append(d.Endpoints, p.jobs[i].key)
		}
		if s, short := p.shortfall(&p.jobs[i]); short {
			out.Shortfalls = append(out.Shortfalls, s)
		}
	}
	for i := range out.Designations {
		d := &out.Designations[i]
		if before := previous.Of(d.Checker); slices.Equal(before, d.Endpoints) && before != nil {
			d.Endpoints = before
		}
	}
	return out
}

// Of lists the designated endpoints of a checker; nil for a checker that is not known.
func (p *Placement) Of(checker string) []Key {
	i, found := slices.BinarySearchFunc(p.Designations, checker, func(d Designation, id string) int { return strings.Compare(d.Checker, id) })
	if !found {
		return nil
	}
	return p.Designations[i].Endpoints
}

// Equal reports whether two placements are the same.
func (p *Placement) Equal(o *Placement) bool {
	return slices.EqualFunc(p.Designations, o.Designations, func(a, b Designation) bool {
		return a.Checker == b.Checker && slices.Equal(a.Endpoints, b.Endpoints)
	}) && slices.Equal(p.Shortfalls, o.Shortfalls)
}
