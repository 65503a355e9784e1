package health

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// sync takes over a new topology and placement. The state of remaining endpoints is kept, and the
// votes of checkers that stay designated to them.
func (b *VerdictTable) sync(o *Observation) {
	before, checkers := b.services, b.checkers
	b.topology, b.placement = o.Topology, o.Placement
	b.checkers = nil
	for i := range o.Placement.Designations {
		k := known{id: o.Placement.Designations[i].Checker}
		if j, found := slices.BinarySearchFunc(checkers, k.id, func(k known, id string) int { return strings.Compare(k.id, id) }); found {
			k = checkers[j]
		}
		b.checkers = append(b.checkers, k)
	}
	b.services = nil
	if o.Topology == nil {
		return
	}
	for i := range o.Topology.Services {
		spec := &o.Topology.Services[i]
		if len(spec.HealthChecks) == 0 {
			continue
		}
		j, found := slices.BinarySearchFunc(before, spec.Name, func(l *serviceVotes, name string) int { return strings.Compare(l.name, name) })
		var old *serviceVotes
		if found {
			old = before[j]
		}
		b.services = append(b.services, b.open(spec, old))
	}
	b.designate(before, checkers)
}

// open makes the votes of a service.
func (b *VerdictTable) open(spec *isobar.Service, old *serviceVotes) *serviceVotes {
	l := &serviceVotes{name: spec.Name, rule: b.rule(spec), sockets: Sockets(spec), index: map[string]int32{}}
	if old != nil {
		l.judged, l.mass, l.served, l.recalled = old.judged, old.mass, old.served, old.recalled
	}
	for i := range spec.Localities {
		sl := &spec.Localities[i]
		for j := range sl.Endpoints {
			e := &sl.Endpoints[j]
			if Probed(spec, e) {
				l.records = append(l.records, b.enter(l.judged, sl.Locality, e, old))
			} else {
				l.others = append(l.others, other{address: e.Address, configured: e.Health})
			}
		}
	}
	slices.SortFunc(l.others, func(a, b other) int { return strings.Compare(a.address, b.address) })
	slices.SortStableFunc(l.records, func(a, b record) int { return strings.Compare(a.address, b.address) })
	l.records = slices.CompactFunc(l.records, func(a, b record) bool { return a.address == b.address })
	for i := range l.records {
		l.index[l.records[i].address] = int32(i)
		if old != nil && old.sockets != l.sockets {
			l.records[i].moved = b.now
		}
	}
	return l
}

// enter makes the record of an endpoint, which waits if it is new to a service
// that has verdicts.
func (b *VerdictTable) enter(judged bool, at isobar.Locality, e *isobar.Endpoint, old *serviceVotes) record {
	added := judged && !old.serves(e.Address)
	r := record{address: e.Address, since: never, confirmed: never, appeared: b.now, moved: never, disputed: never, pending: added, added: added}
	if was := old.record(e.Address); was != nil {
		r = *was
		r.votes = nil // designate fills them in
	}
	b.place(&r, at, e)
	return r
}

// place notes where an endpoint is and is probed. For checkers one that changes
// there is another, with which they begin with unhealthy.
func (b *VerdictTable) place(r *record, at isobar.Locality, e *isobar.Endpoint) {
	var probe isobar.EndpointCheck
	if e.Check != nil {
		probe = *e.Check
	}
	if !r.locality.IsZero() && (r.locality != at || r.probe != probe) {
		r.moved = b.now
	}
	r.locality, r.probe, r.configured, r.dirty = at, probe, e.Health, true
}

// rule works out how long things take, by the slowest check.
func (b *VerdictTable) rule(spec *isobar.Service) rule {
	count, domains := wanted(spec)
	r := rule{domains: domains, least: min(twoVotes, count)}
	for i := range spec.HealthChecks {
		c := &spec.HealthChecks[i]
		every := c.Interval + c.Jitter + c.Timeout
		r.grace = max(r.grace, every*time.Duration(max(1, c.UnhealthyThreshold)))
		r.window = max(r.window, every+2*b.interval)
	}
	return r
}

// designate makes a vote for each designation, with its checker's last report. Designations are
// sorted by checker, so votes are too.
func (b *VerdictTable) designate(before []*serviceVotes, checkers []known) {
	old := &VerdictTable{services: before}
	for c := range b.placement.Designations {
		d := &b.placement.Designations[c]
		var l, was *serviceVotes
		for _, k := range d.Endpoints {
			if l == nil || l.name != k.Service {
				l, was = b.votesOf(k.Service), old.votesOf(k.Service)
			}
			r := l.record(k.Address)
			if r == nil {
				continue
			}
			v := vote{checker: int32(c), since: never, heard: never, listed: never}
			if o := was.record(k.Address); o != nil {
				for i := range o.votes {
					if checkers[o.votes[i].checker].id == d.Checker {
						v = o.votes[i]
						v.checker = int32(c)
						if r.moved != o.moved {
							v.listed, v.healthy = never, false
						}
					}
				}
			}
			r.votes = append(r.votes, v)
		}
	}
}

// withdraw marks the endpoints that are out of use whatever checkers find: by an operator's
// override, or as configured. They are most likely about to be stopped, so their failure is
// expected: they make no mass flip, are not held, and are no evidence for or against others. It
// reports whether operators changed anything.
func (b *VerdictTable) withdraw(operators Table, synced bool) (changed bool) {
	if !synced && slices.Equal(operators.overrides, b.overrides) {
		return false
	}
	b.overrides = operators.overrides
	for _, l := range b.services {
		for i := range l.records {
			r := &l.records[i]
			status := r.configured
			if at, found := operators.find(Key{Service: l.name, Address: r.address}); found {
				status = operators.overrides[at].Status
			}
			r.withdrawn = down(status)
		}
	}
	return true
}

// Served is a locality of a service to which clients send requests.
type Served struct {
	Service  string          `json:"service"`
	Locality isobar.Locality `json:"locality"`
}

// recallFor is for how long after a restart a service keeps where its requests succeeded before it, as
// long as no load report mentions the service. Forged checkers could take a service right after a
// restart otherwise: their votes arrive within seconds, and load reports within some intervals.
const recallFor = 2 * time.Minute

// ClientReports is the evidence about health from load reports.
type ClientReports struct {
	Served []Served // where requests succeed: all there are, in any order
	Failed []Served // where many fail, the same
}

// learn takes over the evidence from load reports.
func (b *VerdictTable) learn(reports *ClientReports) {
	if reports == nil {
		return
	}
	served := slices.Clone(reports.Served)
	slices.SortFunc(served, func(x, y Served) int {
		if c := strings.Compare(x.Service, y.Service); c != 0 {
			return c
		}
		return x.Locality.Compare(y.Locality)
	})
	for _, l := range b.services {
		first, _ := slices.BinarySearchFunc(served, l.name, func(s Served, name string) int { return strings.Compare(s.Service, name) })
		var now []isobar.Locality
		for _, s := range served[first:] {
			if s.Service != l.name {
				break
			}
			now = append(now, s.Locality)
		}
		heard := len(now) > 0 || slices.ContainsFunc(reports.Failed, func(f Served) bool { return f.Service == l.name })
		if l.recalled && !heard && b.now <= instant(recallFor) {
			continue
		}
		l.recalled = false
		if !slices.Equal(now, l.served) {
			l.served, l.dirty = now, true
		}
	}
	for _, f := range reports.Failed {
		if l := b.votesOf(f.Service); l != nil {
			l.concede(b.now, f.Locality)
		}
	}
}

// meet notes which checkers are connected. A stream that is new makes its
// checker begin again.
func (b *VerdictTable) meet(checkers []Checker) {
	for i := range checkers {
		c := &checkers[i]
		if k, found := b.checker(c.ID); found {
			b.checkers[k].zone = c.Zone()
			if !c.Since.IsZero() {
				b.checkers[k].since = c.Since // which is earlier after the clock was set back
			}
		}
	}
}
