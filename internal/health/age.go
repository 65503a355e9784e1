package health

import (
	"cmp"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// Age is for how long verdicts on a service have not been confirmed.
type Age struct {
	Service string
	Checked bool          // its endpoints are probed, and there are verdicts
	Some    time.Duration // since which more than a fifth of them have not; 0 = they have
	Most    time.Duration // the same of half of them
}

// Ages lists the services with health checks, sorted, and how old the verdicts
// on them are: of endpoints that operators took out of use none is waited for.
func (b *VerdictTable) Ages() []Age {
	out := make([]Age, len(b.services))
	for i, l := range b.services {
		out[i] = b.age(l)
	}
	return out
}

func (b *VerdictTable) age(l *serviceVotes) Age {
	a := Age{Service: l.name}
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
