package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plural"
)

const (
	massFlips     = 3 // endpoints at least: two of three are no mass
	massIntervals = 2 // of reports that a mass flip is held at least
	// massMemory is for how long endpoints that went down count as a part of a mass failure:
	// checkers that take endpoints one by one do as much harm as those that take all at once.
	massMemory = 5 * time.Minute
)

// opposedFor is for how long after an endpoint went down failing requests in its locality show
// that clients lost it, too: their reports about the time before the verdict arrive later than
// those of checkers, and they report nothing about the time after it, since they send no requests
// there any more.
const opposedFor = time.Minute

// stillOpposed reports whether the requests of clients contradict the loss of an endpoint for having
// contradicted the one before. Clients need some time to come back to one that recovers: checkers could take it
// again before a report of them shows that it serves.
func (r *record) stillOpposed(b *voting) bool {
	return r.opposed && (classOf(r.status).lost() || b.since(r.since) <= opposedFor)
}

// concede records that many requests fail in a locality: clients then confirm the verdicts of a
// moment ago.
func (l *serviceVotes) concede(now instant, at isobar.Locality) {
	for i := range l.records {
		if r := &l.records[i]; r.opposed && classOf(r.status).lost() && r.locality == at && time.Duration(now-r.since) <= opposedFor {
			r.opposed, l.dirty = false, true
		}
	}
}

// mass is the state of a mass flip.
type mass struct {
	active   bool
	since    instant
	total    int               // endpoints that count; those that are added meanwhile do not
	released []isobar.Locality // accepted whatever checkers see elsewhere
	all      bool              // the whole service is released
}

// judgeLosses decides on the endpoints that are voted down or degraded.
func (l *serviceVotes) judgeLosses(b *voting, s *sight, candidates []*record) {
	if l.mass.active || len(candidates) > 0 {
		l.watch(b, len(candidates) > 0)
	}
	ripe := b.since(l.mass.since) >= massIntervals*b.interval
	for _, r := range candidates {
		if !l.mass.active || (ripe && (l.mass.frees(r.locality) || (!l.reached(r.locality) && s.believes(l, r)))) {
			l.flip(b, r, r.leaving)
			continue
		}
		r.held = true
	}
}

// watch reports whether clients lost more than half of the endpoints within massMemory, or within
// one window where that is longer, or would now: endpoints that are down or degraded. While a mass flip lasts, endpoints count that
// went down shortly before it began: time alone does not confirm it. In localities where the
// requests of clients succeed, or succeeded when an endpoint went down, all endpoints that are
// down count, however long ago they went: checkers could take one endpoint every minute
// otherwise, or one locality after the other, since endpoints that are down get no requests.
// Endpoints that never came up, or are out of use, are no evidence of a present failure.
func (l *serviceVotes) watch(b *voting, candidates bool) {
	from := b.now
	if l.mass.active {
		from = l.mass.since
	}
	flips, total := 0, 0
	for i := range l.records {
		r := &l.records[i]
		if r.expected() {
			continue
		}
		total++
		recent := time.Duration(from-r.since) <= max(l.rule.window, massMemory)
		lost := classOf(r.status).lost() && r.since != never && (r.opposed || l.reached(r.locality) || recent)
		if lost || r.leaving != undecided {
			flips++
		}
	}
	if l.mass.active {
		total = min(total, l.mass.total)
		l.mass.total = total
	}
	many := flips >= massFlips && 2*flips > total
	switch {
	case many && !l.mass.active:
		l.mass.active, l.mass.since, l.mass.total = true, b.now, total
	case l.mass.active && !candidates && b.since(l.mass.since) >= l.rule.window, !many:
		l.mass = mass{}
	}
}

func (m *mass) frees(l isobar.Locality) bool { return m.all || slices.Contains(m.released, l) }

// release believes the mass flip of the service in some localities, or in all. False if
// nothing is held.
func (l *serviceVotes) release(localities []isobar.Locality) bool {
	if !l.mass.active || !slices.ContainsFunc(l.records, func(r record) bool { return r.held }) {
		return false
	}
	l.mass.all = l.mass.all || len(localities) == 0
	released := slices.Concat(l.mass.released, localities)
	slices.SortFunc(released, isobar.Locality.Compare)
	l.mass.released, l.dirty = slices.Compact(released), true
	return true
}

// Alarm lists a mass failure that is held for longer than the usual time until acceptance.
type Alarm struct {
	Service    string            `json:"service"`
	Since      time.Time         `json:"since"`
	Held       int               `json:"held"`  // endpoints whose down verdicts are held
	Total      int               `json:"total"` // endpoints of the service that are probed
	Localities []isobar.Locality `json:"localities"`
	Why        string            `json:"why"`
}

// alarm describes the endpoints of the service that are held for too long: none, if
// Held is 0.
func (l *serviceVotes) alarm(b *voting) Alarm {
	a := Alarm{Service: l.name, Since: b.time(l.mass.since), Total: len(l.records)}
	if !l.mass.active || b.since(l.mass.since) < massIntervals*b.interval {
		return a
	}
	degraded := 0
	for i := range l.records {
		if r := &l.records[i]; r.held {
			a.Held++
			a.Localities = append(a.Localities, r.locality)
			degraded += one(r.leaving == classDegraded)
		}
	}
	votedAs := classDown.loss()
	switch {
	case degraded == a.Held:
		votedAs = classDegraded.loss()
	case degraded > 0:
		votedAs += " or " + classDegraded.loss()
	}
	slices.SortFunc(a.Localities, isobar.Locality.Compare)
	a.Localities = slices.Compact(a.Localities)
	are := plural.Of(a.Held, "is", "are")
	a.Why = fmt.Sprintf("%d of %s %s voted %s, but Isobar holds these verdicts, because many endpoints of the service went down within minutes, "+
		"and their checkers reach few of the endpoints that other checkers reach: "+
		"the network of the checkers may be at fault; run isobar health release if the service is really down",
		a.Held, plural.Count(a.Total, "endpoint", "endpoints"), are, votedAs)
	if served := slices.DeleteFunc(slices.Clone(a.Localities), func(at isobar.Locality) bool { return !l.reached(at) }); len(served) > 0 {
		a.Why = fmt.Sprintf("%d of %s %s voted %s together with others, but the requests of clients succeed in %s: "+
			"the checkers may be at fault; run isobar health release if these endpoints are really %s",
			a.Held, plural.Count(a.Total, "endpoint", "endpoints"), are, votedAs, zoneNames(served), votedAs)
	}
	return a
}

// sight is the view of each checker on all endpoints. It is computed when it is first needed
// after a sweep: once per half a report interval is often enough to judge a checker's network,
// and computing it for each report costs too much.
type sight struct {
	table   *VerdictTable
	counted bool
	all     []seen // per checker
	in      map[vantage]seen
}

// vantage is a part of a checker's view: a locality, or one service in it.
type vantage struct {
	checker  int32
	locality isobar.Locality
	service  string // empty: all services
}

// seen counts fresh votes.
type seen struct{ up, votes int }

func (s *seen) add(v *vote) {
	s.votes++
	if !classOf(v.status).lost() {
		s.up++
	}
}

func (s *sight) count() {
	if s.counted {
		return
	}
	s.counted = true
	s.all, s.in = make([]seen, len(s.table.checkers)), map[vantage]seen{}
	for _, l := range s.table.services {
		for i := range l.records {
			r := &l.records[i]
			if !r.proven || r.withdrawn {
				continue // it would be down for any checker
			}
			for j := range r.votes {
				v := &r.votes[j]
				if !s.table.fresh(v) {
					continue // one that doesn't count yet is none of up nevertheless
				}
				s.all[v.checker].add(v)
				for _, service := range [2]string{"", l.name} {
					at := vantage{checker: v.checker, locality: r.locality, service: service}
					n := s.in[at]
					n.add(v)
					s.in[at] = n
				}
			}
		}
	}
}

// clear reports whether a checker sees most endpoints in other localities up; or, if it probes
// none there, most endpoints of other services.
func (s *sight) clear(v *vote, r *record, service string) bool {
	all, here := s.all[v.checker], s.in[vantage{checker: v.checker, locality: r.locality}]
	if all.votes > here.votes {
		return 2*(all.up-here.up) > all.votes-here.votes
	}
	own := s.in[vantage{checker: v.checker, locality: r.locality, service: service}]
	return 2*(here.up-own.up) > here.votes-own.votes
}

// believes reports whether the checkers that vote an endpoint down or degraded are a quorum without
// those that see few of the other endpoints up.
func (s *sight) believes(l *serviceVotes, r *record) bool {
	s.count()
	t := s.table.count(r, l.rule, func(v *vote) bool { return s.clear(v, r, l.name) })
	return t.agreed(l.rule) == r.leaving
}

func zoneNames(zones []isobar.Locality) string {
	names := make([]string, len(zones))
	for i := range zones {
		names[i] = zones[i].String()
	}
	return strings.Join(names, ", ")
}
