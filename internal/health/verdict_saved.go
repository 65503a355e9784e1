package health

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// Saved is the part of a VerdictTable that survives a restart. Verdicts stay as they were; votes
// are shown, and count again once their checkers report again.
type Saved struct {
	Endpoints []SavedEndpoint `json:"endpoints,omitempty"` // sorted by key
	Served    []Served        `json:"served,omitempty"`    // where the requests of clients succeeded, sorted
}

// SavedEndpoint is one endpoint of Saved.
type SavedEndpoint struct {
	Key

	Status    isobar.HealthStatus `json:"status"`
	Since     time.Time           `json:"since,omitzero"`
	Confirmed time.Time           `json:"confirmed,omitzero"`
	// Waiting is when it was added, if it still waits for its first verdict
	// without traffic.
	Waiting time.Time `json:"waiting,omitzero"`
	Added   bool      `json:"added,omitempty"`  // later than the service's first verdict
	Proven  bool      `json:"proven,omitempty"` // it has been healthy or degraded
	// Opposed endpoints last went down while the requests of clients succeeded in their localities.
	Opposed bool        `json:"opposed,omitempty"`
	Votes   []SavedVote `json:"votes,omitempty"` // sorted by checker
}

// SavedVote is one vote of SavedEndpoint.
type SavedVote struct {
	Checker string              `json:"checker"`
	Status  isobar.HealthStatus `json:"status"`
	Since   time.Time           `json:"since,omitzero"`
	Heard   time.Time           `json:"heard,omitzero"`
}

// Save extracts the state that survives a restart. It is worth saving after a change of verdicts.
func (b *VerdictTable) Save() Saved {
	var out Saved
	for _, l := range b.services {
		for i := range l.records {
			r := &l.records[i]
			e := SavedEndpoint{
				Key: Key{Service: l.name, Address: r.address}, Status: r.status,
				Since: b.time(r.since), Confirmed: b.time(r.confirmed), Added: r.added, Proven: r.proven, Opposed: r.opposed,
			}
			if r.pending {
				e.Waiting = b.time(r.appeared)
			}
			for j := range r.votes {
				v := &r.votes[j]
				if v.status != isobar.Unknown {
					e.Votes = append(e.Votes, SavedVote{Checker: b.checkers[v.checker].id, Status: v.status, Since: b.time(v.since), Heard: b.time(v.heard)})
				}
			}
			out.Endpoints = append(out.Endpoints, e)
		}
		for _, at := range l.served {
			out.Served = append(out.Served, Served{Service: l.name, Locality: at})
		}
	}
	return out
}

// restore fills a new table. What makes no sense is left out: a damaged entry
// is an endpoint without a verdict.
func (b *VerdictTable) restore(s Saved) {
	endpoints := slices.Clone(s.Endpoints)
	slices.SortStableFunc(endpoints, func(a, b SavedEndpoint) int { return a.compare(b.Key) })
	endpoints = slices.CompactFunc(endpoints, func(a, b SavedEndpoint) bool { return a.Key == b.Key })
	var ids []string
	for i := range endpoints {
		for _, v := range endpoints[i].Votes {
			ids = append(ids, v.Checker)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		b.checkers = append(b.checkers, known{id: id})
	}
	for i := range endpoints {
		e := &endpoints[i]
		if n := len(b.services); n == 0 || b.services[n-1].name != e.Service {
			b.services = append(b.services, &serviceVotes{name: e.Service, index: map[string]int32{}})
		}
		l := b.services[len(b.services)-1]
		l.index[e.Address] = int32(len(l.records)) //nolint:gosec // services have fewer than 2^31 endpoints
		l.records = append(l.records, b.revive(e))
		l.judged = l.judged || l.records[len(l.records)-1].status != isobar.Unknown
	}
	for _, x := range s.Served {
		if l := b.votesOf(x.Service); l != nil {
			l.served, l.recalled = append(l.served, x.Locality), true
		}
	}
	for _, l := range b.services {
		slices.SortFunc(l.served, isobar.Locality.Compare)
		l.served = slices.Compact(l.served)
		b.verdicts = b.verdicts.put(l.name, l.statuses())
	}
}

func (b *VerdictTable) revive(e *SavedEndpoint) record {
	r := record{address: e.Address, since: never, confirmed: never, appeared: b.past(e.Waiting), moved: never, disputed: never, added: e.Added, proven: e.Proven}
	if classOf(e.Status) != undecided {
		r.status, r.since, r.confirmed = e.Status, b.past(e.Since), b.past(e.Confirmed)
		r.proven = r.proven || !down(e.Status)
		r.opposed = e.Opposed
	} else {
		r.pending = !e.Waiting.IsZero()
	}
	for _, v := range e.Votes {
		c, _ := b.checker(v.Checker)
		twice := slices.ContainsFunc(r.votes, func(o vote) bool { return o.checker == c })
		if classOf(v.Status) != undecided && !twice {
			r.votes = append(r.votes, vote{checker: c, status: v.Status, since: b.past(v.Since), heard: b.past(v.Heard), listed: never})
		}
	}
	slices.SortFunc(r.votes, func(x, y vote) int { return strings.Compare(b.checkers[x.checker].id, b.checkers[y.checker].id) })
	return r
}

// past is a time that is not in the future, which happens if a clock was set back, and not longer
// ago than any rule needs.
func (b *VerdictTable) past(t time.Time) instant {
	if t.IsZero() {
		return never
	}
	return max(min(b.at(t), 0), -instant(100*365*24*time.Hour))
}
