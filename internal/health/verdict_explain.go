package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plural"
)

// Explain returns for every probed endpoint of a service the verdict, its time, the votes and the
// reason; sorted by address. The result belongs to the caller.
func (b *VerdictTable) Explain(service string) []Verdict {
	l := b.votesOf(service)
	if l == nil {
		return nil
	}
	open := b.failsOpen(l)
	withheld := l.withholds()
	out := make([]Verdict, len(l.records))
	for i := range l.records {
		r := &l.records[i]
		v := Verdict{
			Key: Key{Service: l.name, Address: r.address}, Locality: r.locality, Status: r.status,
			Since: b.time(r.since), Confirmed: b.time(r.confirmed), Votes: make([]Vote, len(r.votes)),
			Frozen: r.status != isobar.Unknown && !r.quorum && !r.held, Divided: b.path(r, l.rule),
			Pending: r.pending && withheld, Held: r.held, FailOpen: open,
		}
		for j := range r.votes {
			o := &r.votes[j]
			fresh := b.fresh(o)
			v.Votes[j] = Vote{
				Checker: b.checkers[o.checker].id, Zone: b.checkers[o.checker].zone, Status: o.status,
				Since: b.time(o.since), Heard: b.time(o.heard), Fresh: fresh, Counts: fresh && b.counts(o, l.rule),
			}
			if v.Divided && v.Votes[j].Counts && down(o.status) {
				v.Zones = append(v.Zones, v.Votes[j].Zone)
			}
		}
		slices.SortFunc(v.Zones, isobar.Locality.Compare)
		v.Zones = slices.Compact(v.Zones)
		v.Why = b.why(l, r, &v)
		out[i] = v
	}
	return out
}

// Services lists the services with health checks, sorted.
func (b *VerdictTable) Services() []string {
	out := make([]string, len(b.services))
	for i, l := range b.services {
		out[i] = l.name
	}
	return out
}

// Summary counts the endpoints of a service by verdict.
type Summary struct {
	Endpoints int `json:"endpoints"` // that are probed

	Healthy  int `json:"healthy"` // with the next three: add up to Endpoints
	Degraded int `json:"degraded"`
	Down     int `json:"down"`
	Unknown  int `json:"unknown"`

	Frozen  int `json:"frozen"`
	Divided int `json:"divided"`
	Pending int `json:"pending"`
	Held    int `json:"held"`

	OldestConfirmed time.Time `json:"oldest_confirmed,omitzero"` // zero: nothing is confirmed
	FailOpen        bool      `json:"fail_open,omitempty"`

	FreshVotes     int `json:"fresh_votes"`
	StaleVotes     int `json:"stale_votes"`
	UncountedVotes int `json:"uncounted_votes"`
	NoVotes        int `json:"no_votes"`
}

// Summary sums up a service, for metrics: without the texts of Explain.
func (b *VerdictTable) Summary(service string) Summary {
	var s Summary
	l := b.votesOf(service)
	if l == nil {
		return s
	}
	withheld := l.withholds()
	for i := range l.records {
		r := &l.records[i]
		s.Endpoints++
		switch classOf(r.status) {
		case classHealthy:
			s.Healthy++
		case classDegraded:
			s.Degraded++
		case classDown:
			s.Down++
		default:
			s.Unknown++
		}
		s.Frozen += one(r.status != isobar.Unknown && !r.quorum && !r.held)
		s.Divided += one(b.path(r, l.rule))
		s.Pending += one(r.pending && withheld)
		s.Held += one(r.held)
		if c := b.time(r.confirmed); !c.IsZero() && (s.OldestConfirmed.IsZero() || c.Before(s.OldestConfirmed)) {
			s.OldestConfirmed = c
		}
		for j := range r.votes {
			v := &r.votes[j]
			fresh := b.fresh(v)
			s.FreshVotes += one(fresh && b.counts(v, l.rule))
			s.UncountedVotes += one(fresh && !b.counts(v, l.rule))
			s.NoVotes += one(v.status == isobar.Unknown)
			s.StaleVotes += one(!fresh && v.status != isobar.Unknown)
		}
	}
	s.FailOpen = b.failsOpen(l)
	return s
}

// failsOpen reports whether a service has nothing left to use because all that is
// probed is voted down.
func (b *VerdictTable) failsOpen(l *serviceVotes) bool {
	if len(l.records) == 0 || slices.ContainsFunc(l.records, func(r record) bool { return classOf(r.status) != classDown }) {
		return false
	}
	operators := Table{overrides: b.overrides}
	return !slices.ContainsFunc(l.others, func(o other) bool {
		return !down(operators.Status(l.name, &isobar.Endpoint{Address: o.address, Health: o.configured}))
	})
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// why puts the reason for a verdict into words.
func (b *VerdictTable) why(l *serviceVotes, r *record, v *Verdict) string {
	t := b.count(r, l.rule, nil)
	var out []string
	switch c := t.agreed(l.rule); {
	case v.Held:
		out = append(out, fmt.Sprintf("voted %s by %d of %d, held: more than half of the service went down at once", c.loss(), t.votes[c], t.fresh))
	case v.Pending:
		out = append(out, fmt.Sprintf("new: gets no traffic until its first verdict, or for %s", firstVerdict-b.since(r.appeared).Round(time.Second)))
	case r.quorum:
		out = append(out, agreement(t.votes[c], t.fresh, t.zones[c]))
	case r.status == isobar.Unknown:
		out = append(out, "no verdict yet, the configured status counts: "+lacking(&t, l.rule))
	default:
		out = append(out, "frozen: "+lacking(&t, l.rule))
	}
	if v.Divided {
		out = append(out, fmt.Sprintf("a path problem: down as seen from %s only", zoneNames(v.Zones)))
	}
	if v.FailOpen {
		out = append(out, "all endpoints of the service are voted down: clients may still use them")
	}
	return strings.Join(out, "; ")
}

// lacking says why votes do not make a verdict.
func lacking(t *tally, r rule) string {
	most := classHealthy
	for c := classHealthy; c < classes; c++ {
		if t.votes[c] > t.votes[most] {
			most = c
		}
	}
	switch {
	case t.fresh == 0:
		return "no fresh votes"
	case 2*t.votes[most] <= t.fresh:
		return fmt.Sprintf("no majority among %d fresh votes", t.fresh)
	case t.votes[most] < r.least:
		return fmt.Sprintf("%s, %d must agree", plural.Count(t.fresh, "fresh vote", "fresh votes"), r.least)
	case t.zones[most] < r.domains:
		return fmt.Sprintf("fresh votes that agree come from %s, %d are needed", plural.Count(t.zones[most], "zone", "zones"), r.domains)
	default:
		return "the votes are new"
	}
}

// agreement says how many votes agree.
func agreement(votes, fresh, zones int) string {
	return fmt.Sprintf("%d of %s in %s %s", votes, plural.Count(fresh, "fresh vote", "fresh votes"), plural.Count(zones, "zone", "zones"),
		plural.Of(votes, "agrees", "agree"))
}

// VerdictAge is for how long verdicts on a service have not been confirmed.
type VerdictAge struct {
	Service string
	Checked bool          // its endpoints are probed, and there are verdicts
	Some    time.Duration // since which more than a fifth of them have not; 0 = they have
	Most    time.Duration // the same of half of them
}

// Ages lists the services with health checks, sorted, and the age of their verdicts: endpoints
// that operators took out of use do not count.
func (b *VerdictTable) Ages() []VerdictAge {
	out := make([]VerdictAge, len(b.services))
	for i, l := range b.services {
		out[i] = b.age(l)
	}
	return out
}

func (b *VerdictTable) age(l *serviceVotes) VerdictAge {
	a := VerdictAge{Service: l.name}
	verdicts := 0
	var frozen []time.Duration // since they were last confirmed
	for i := range l.records {
		r := &l.records[i]
		if r.withdrawn || r.status == isobar.Unknown {
			continue
		}
		verdicts++
		if !r.quorum && !r.held {
			age := b.freshFor() // at least: one without votes is as old as that
			if r.confirmed != never {
				age = b.since(r.confirmed)
			}
			frozen = append(frozen, max(0, age))
		}
	}
	a.Checked = verdicts > 0
	slices.SortFunc(frozen, func(a, b time.Duration) int { return cmp.Compare(b, a) }) // the oldest first
	// More than a fifth is older than the one after the oldest fifth is.
	if n := verdicts / 5; n < len(frozen) {
		a.Some = frozen[n]
	}
	if n := verdicts / 2; n < len(frozen) {
		a.Most = frozen[n]
	}
	return a
}
