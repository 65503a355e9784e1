package sim

import (
	"time"

	"github.com/isobar-xds/isobar"
)

// Serving is how endpoints serve single requests; see [Scenario.Requests].
type Serving struct {
	Service  string          // empty = all
	Locality isobar.Locality // a locality, or a region or zone with all in it; zero = all
	// Variation is the squared coefficient of variation of the service time; 0 = 1,
	// an exponential distribution.
	Variation float64
	// Waiting is how many requests may wait in an endpoint: it refuses more. 0 = it
	// refuses none.
	Waiting int
	// Wastes says that requests are worked on that their clients gave up.
	Wastes bool
}

// Trouble is what happens to requests without a server being busy for it.
type Trouble struct {
	Service  string          // empty = all
	Locality isobar.Locality // a locality, or a region or zone with all in it; zero = all
	Share    float64         // of the endpoints of each locality, the first ones; 0 = all
	From, To time.Duration
	SlowMS   float64 // that each request takes longer, as for a slow dependency
	Failing  float64 // part of the requests that fails whatever the load
	Hangs    bool    // no request is answered: all time out
}

// hits reports whether the trouble concerns an endpoint at a moment.
func (t *Trouble) hits(s *service, e *endpoint, index int, at time.Duration) bool {
	x := &s.sites[e.at]
	if at < t.From || at >= t.To || (t.Service != "" && t.Service != s.spec.Name) || !within(x.locality, t.Locality) {
		return false
	}
	hit := x.end - x.first
	if t.Share > 0 {
		hit = int(t.Share*float64(hit) + 0.5)
	}
	return index-x.first < hit
}
