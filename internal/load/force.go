package load

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// shareGeneration is one set of shares that a source was told, or several in a row that
// became one because the list is full.
type shareGeneration struct {
	from  time.Time // no client used them before
	acked time.Time // since when 95% of the streams use nothing older; zero = not yet
	spans []span    // sorted by locality
}

// span is the range of a share over some time.
type span struct {
	locality  isobar.Locality
	low, high float64 // 0 to 1
	mean      float64 // over the generations in force
}

// maxGenerations bounds how many changes of the shares a source keeps that no client
// has acknowledged yet.
const maxGenerations = 32

// note takes down the shares that are in force and by whom they are
// acknowledged. Pushes that change something else (lower tiers, endpoints) make
// no new generation.
func (s *sourceEvidence) note(now time.Time, planned *PlannedSource) {
	if n := len(s.generations); n > 0 && s.generations[n-1].tells(planned.Shares) {
		if s.generations[n-1].acked.IsZero() {
			s.generations[n-1].acked = planned.Acked
		}
	} else {
		// They came into force after the others were last seen to be.
		r := shareGeneration{from: s.noted, acked: planned.Acked, spans: make([]span, len(planned.Shares))}
		for i, sh := range planned.Shares {
			r.spans[i] = span{locality: sh.Locality, low: sh.Share, high: sh.Share, mean: sh.Share}
		}
		s.generations = append(s.generations, r)
	}
	if len(s.generations) > maxGenerations {
		first, second := &s.generations[0], &s.generations[1]
		second.from = first.from
		if !first.acked.IsZero() {
			second.acked = first.acked
		}
		second.spans = join([]shareGeneration{*first, *second})
		s.generations = slices.Delete(s.generations, 0, 1)
	}
	s.noted = now
}

// tells says whether the generation is of exactly these shares.
func (r *shareGeneration) tells(shares []PlannedShare) bool {
	return slices.EqualFunc(r.spans, shares, func(x span, sh PlannedShare) bool {
		return x.locality == sh.Locality && x.low == sh.Share && x.high == sh.Share
	})
}

// inForce returns the ranges of the shares in a stretch of time: those that 95% had acknowledged
// when it began, and all later ones until it ended. Older shares are forgotten. ok is false while
// no share had been acknowledged.
func (s *sourceEvidence) inForce(since, until time.Time) (spans []span, ok bool) {
	base := s.acknowledged(since)
	if base < 0 {
		return nil, false
	}
	s.generations = slices.Delete(s.generations, 0, base)
	return join(s.generations[:s.before(0, until)]), true
}

// acknowledged returns the index of the shares that 95% had acknowledged at a time; -1
// while nothing had been.
func (s *sourceEvidence) acknowledged(at time.Time) int {
	base := -1
	for i := range s.generations {
		if acked := s.generations[i].acked; !acked.IsZero() && !acked.After(at) {
			base = i
		}
	}
	return base
}

// before returns the index, above base, of the first shares that came into force at a
// time or later.
func (s *sourceEvidence) before(base int, at time.Time) int {
	end := base + 1
	for end < len(s.generations) && s.generations[end].from.Before(at) {
		end++
	}
	return end
}

// join widens the spans to those of all generations. A locality that is missing
// from one had the share 0 there.
func join(generations []shareGeneration) []span {
	if len(generations) == 1 {
		return generations[0].spans
	}
	var out []span
	for i := range generations {
		for _, x := range generations[i].spans {
			j, found := slices.BinarySearchFunc(out, x.locality, func(y span, l isobar.Locality) int { return y.locality.Compare(l) })
			if !found {
				first := span{locality: x.locality, low: x.low, high: x.high}
				if i > 0 {
					first.low = 0
				}
				out = slices.Insert(out, j, first)
			}
			out[j].low, out[j].high = min(out[j].low, x.low), max(out[j].high, x.high)
			out[j].mean += x.mean / float64(len(generations))
		}
		for j := range out {
			if !generations[i].names(out[j].locality) {
				out[j].low = 0
			}
		}
	}
	return out
}

func (r *shareGeneration) names(l isobar.Locality) bool {
	_, found := slices.BinarySearchFunc(r.spans, l, func(x span, l isobar.Locality) int { return x.locality.Compare(l) })
	return found
}
