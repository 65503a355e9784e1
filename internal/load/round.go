package load

import (
	"math"

	"github.com/isobar-xds/isobar"
)

// Round is what a source's clients did with the shares that they were told, in
// windows that began after enough of them had acknowledged these: the requests
// that were held against the shares, and those of them that landed elsewhere.
// What chance (one standard deviation) and changes of the shares within the
// windows explain does not count as elsewhere; windows in which a share changed
// by more than 5 points are not in it at all.
type Round struct {
	Source   isobar.Locality
	Requests float64 // at least 50
	Off      float64 // of these; at most Requests
}

// round tells what the tally says of a source.
func (t *tally) round(source isobar.Locality) Round {
	out := Round{Source: source, Requests: t.total}
	for i := range t.sites {
		x := &t.sites[i]
		share := min(1, x.expected/t.total)
		chance := math.Sqrt(t.total * share * (1 - share))
		// Each request that is elsewhere is missing in one place and too much in
		// another.
		out.Off += max(0, math.Abs(x.issued-x.expected)-x.slack-chance) / 2
	}
	out.Off = min(out.Off, out.Requests)
	return out
}
