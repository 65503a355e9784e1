package load

import (
	"math"

	"github.com/isobar-xds/isobar"
)

// Round compares the requests of a source's clients with their shares, in windows that began
// after enough of the clients had acknowledged these: the compared requests, and those of them
// that landed elsewhere. Differences within chance (one standard deviation) and within changes of
// the shares in a window do not count as elsewhere. Windows in which a share changed by more than
// 5 points are not in it at all.
type Round struct {
	Source   isobar.Locality
	Requests float64 // at least 50
	Off      float64 // of these; at most Requests
}

// round returns the tally of a source as a Round.
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
