package load

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// Watch says that clients in Source are connected for Service, whether they
// report load or not.
type Watch struct {
	Service string
	Source  isobar.Locality
}

// Age is for how long too much of an input has been missing; zero while it is
// not.
type Age struct {
	Some time.Duration // more than a fifth of it is
	Most time.Duration // more than half of it is
}

// Shares of the demand from which on an Age counts.
const (
	someShare = 0.2
	mostShare = 0.5
)

// SetWatched tells which sources have clients that are connected now. Of those
// a missing report says nothing: what they last told stands in for as long as
// they are there.
func (t *Table) SetWatched(watched []Watch, now time.Time) {
	watched = slices.Clone(watched)
	slices.SortFunc(watched, func(a, b Watch) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), a.Source.Compare(b.Source))
	})
	for _, name := range t.names {
		i, _ := slices.BinarySearchFunc(watched, name, func(w Watch, n string) int { return strings.Compare(w.Service, n) })
		sources := t.services[name].sources
		for ; i < len(watched) && watched[i].Service == name; i++ {
			j, found := slices.BinarySearchFunc(sources, watched[i].Source, func(s *source, l isobar.Locality) int { return s.locality.Compare(l) })
			if found {
				sources[j].watched = now
			}
		}
	}
}

// standIn lets what a source last told stand in for reports that most of its
// streams owe, or that nobody is there any more to send though its clients are
// connected. Saved demand that is awaited has rules of its own; see cover.
func (t *Table) standIn(src *source, l *SourceLoad, now time.Time) {
	if l.Nodes > 0 && 2*l.Stale <= l.Raw {
		heard := min(l.Demand, l.Raw)
		if len(src.lost) > 0 {
			heard = max(heard, src.kept) // an outage takes streams one after the other
		}
		src.kept, src.silent = heard, false
		return
	}
	if src.silent = src.isWatched(now, t.interval); !src.silent {
		src.kept = min(src.kept, src.saved) // which fades if nobody comes
		return
	}
	src.silentAt = now
	if src.kept < negligible {
		return
	}
	l.Stale = max(l.Stale, src.kept-l.fresh)
	if !src.service.awaiting {
		l.Demand = max(l.Demand, src.kept)
		l.Saved, src.demand = src.kept, l.Demand
	}
}

// age tells how much of a service's demand stands in for missing reports, and
// for how long too much of it has.
func (s *service) age(loads []SourceLoad, now time.Time) (stale float64, age Age) {
	all := 0.0
	for i := range loads {
		l := &loads[i]
		stale += l.Stale
		all += max(l.Raw, l.fresh+l.Stale)
	}
	if all < negligible {
		stale, all = 0, 1
	}
	stale = min(1, stale/all)
	if stale <= someShare || s.whole.IsZero() {
		s.whole = now
	}
	if stale <= mostShare || s.heard.IsZero() {
		s.heard = now
	}
	return stale, Age{Some: max(0, now.Sub(s.whole)), Most: max(0, now.Sub(s.heard))}
}
