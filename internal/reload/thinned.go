package reload

import (
	"fmt"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plural"
)

// leastEndpoints is how many endpoints a service must have for the loss of most of them to be
// held: of a smaller one, a usual change of one or two endpoints may be most.
const leastEndpoints = 6

// extent is how many endpoints a service has.
type extent struct {
	all    int
	usable int // those that the configuration itself does not take out of use
}

func extentOf(s *isobar.Service) (out extent) {
	for i := range s.Localities {
		for j := range s.Localities[i].Endpoints {
			out.all++
			if h := s.Localities[i].Endpoints[j].Health; h.Usable() || h == isobar.Degraded {
				out.usable++
			}
		}
	}
	return out
}

// thinnedBy names the services that keep less than half of their endpoints in another
// configuration; "" if there are none. Endpoints count and not their addresses, because a
// rollout replaces all of them. Endpoints that were marked as draining before are expected to
// go, and do not count. A service that loses all is not listed here: it is held under load. One that
// comes back after an earlier change removed it, as in a file that is written in parts, is
// compared with what it had before.
func (c *contents) thinnedBy(next *contents) string {
	var thinned []string
	for name, left := range next.endpoints {
		have, before := c.endpoints[name], c.earlier[name]
		if have.all == 0 {
			have.usable = before
		}
		most := max(have.usable, before)
		if 0 < left.all && left.all < have.usable && most >= leastEndpoints && 2*left.all < most {
			thinned = append(thinned, name)
		}
	}
	if len(thinned) == 0 {
		return ""
	}
	first := slices.Min(thinned)
	most := max(c.endpoints[first].usable, c.earlier[first])
	text := fmt.Sprintf("%d of the %d endpoints of service %s", most-next.endpoints[first].all, most, first)
	if n := len(thinned) - 1; n > 0 {
		text += ", and more than half of those of " + plural.Count(n, "other service", "other services")
	}
	return text
}

// thinnedFrom lists how many endpoints the services had that lost some.
func thinnedFrom(before, after *contents) map[string]int {
	out := map[string]int{}
	for name, had := range before.endpoints {
		if after.endpoints[name].all < had.usable {
			out[name] = had.usable
		}
	}
	return out
}

// had notes how many endpoints services had before earlier changes.
func (c *contents) had(endpoints map[string]int) {
	if c.earlier == nil {
		c.earlier = map[string]int{}
	}
	for name, n := range endpoints {
		c.earlier[name] = max(c.earlier[name], n)
	}
}

func (x *removedAt) empty() bool { return len(x.services)+len(x.places)+len(x.endpoints) == 0 }
