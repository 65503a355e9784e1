package health

import (
	"slices"
	"strings"
	"time"
)

// restartHold is how long the checkers of an earlier process are waited for:
// clients come back within seconds, but one after the other.
const restartHold = 15 * time.Second

// Roster says which checkers there are to designate. One whose stream breaks
// stays on it for a moment, because it most likely reconnects and goes on
// probing meanwhile: handing its endpoints to others and back would make all
// of them start from nothing.
type Roster struct {
	hold     time.Duration
	entries  []entry // sorted by id
	again    time.Time
	listened time.Time // last
}

type entry struct {
	Checker
	silence

	until time.Time // zero while it is connected
}

// NewRoster makes a roster. hold is how long a checker whose stream broke is
// waited for: one report interval keeps endpoints from being without their
// checkers for more than two. Saved are the checkers of an earlier process.
func NewRoster(hold time.Duration, saved []Checker, now time.Time) *Roster {
	r := &Roster{hold: hold}
	for _, c := range uniqueCheckers(saved) {
		r.entries = append(r.entries, entry{Checker: c, until: now.Add(restartHold)})
	}
	return r
}

// Observe takes the connected checkers, and reports whether to call Place: because the list
// changed, or because some time after a loss the rest can be balanced.
func (r *Roster) Observe(now time.Time, connected []Checker) (place bool) {
	next := make([]entry, 0, len(connected))
	for _, c := range uniqueCheckers(connected) {
		e := entry{Checker: c}
		i, found := r.find(c.ID)
		if found && r.entries[i].Since.Equal(c.Since) {
			e.silence = r.entries[i].silence
		}
		if !found || r.entries[i].Locality != c.Locality || r.entries[i].Protocols != c.Protocols ||
			r.entries[i].MaxEndpoints != c.MaxEndpoints || r.entries[i].aside != e.aside {
			place = true
		}
		next = append(next, e)
	}
	here := len(next)
	for _, e := range r.entries {
		_, found := slices.BinarySearchFunc(next[:here], e.ID, func(e entry, id string) int { return strings.Compare(e.ID, id) })
		if found {
			continue
		}
		if e.until.IsZero() {
			e.until = now.Add(r.hold)
		}
		if e.until.After(now) {
			next = append(next, e)
			continue
		}
		place, r.again = true, now.Add(restartHold)
	}
	slices.SortFunc(next, func(a, b entry) int { return strings.Compare(a.ID, b.ID) })
	r.entries = next
	if !r.again.IsZero() && !now.Before(r.again) {
		place, r.again = true, time.Time{}
	}
	return place
}

func (r *Roster) find(id string) (int, bool) {
	return slices.BinarySearchFunc(r.entries, id, func(e entry, id string) int { return strings.Compare(e.ID, id) })
}

// Checkers lists the checkers that are connected or waited for and not set aside for their
// silence, sorted by id: the input of Place, and worth saving beside the placement.
func (r *Roster) Checkers() []Checker {
	out := make([]Checker, 0, len(r.entries))
	for i := range r.entries {
		if !r.entries[i].aside {
			out = append(out, r.entries[i].Checker)
		}
	}
	return out
}

// Next tells when Observe may have something to say though nothing connects or
// leaves; false if never.
func (r *Roster) Next() (time.Time, bool) {
	next := r.again
	for i := range r.entries {
		if u := r.entries[i].until; !u.IsZero() && (next.IsZero() || u.Before(next)) {
			next = u
		}
	}
	return next, !next.IsZero()
}
