package reload

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
)

// removalMemory is for how long what changes removed counts as a part of later ones: steps
// that each remove little are no better than one change that removes as much.
const removalMemory = 5 * time.Minute

// contents are what a configuration has that clients may need.
type contents struct {
	services map[string]bool
	places   map[place]bool // localities in which the file itself has endpoints
	own      map[string]bool

	endpoints map[string]extent // of services of the file itself
	earlier   map[string]int    // the most that such services had before recent changes
}

// place is a locality of a service.
type place struct {
	service  string
	locality isobar.Locality
}

// contentsOf tells what a configuration has; services are the names of all of its services.
func contentsOf(c *config.Live, services map[string]bool) contents {
	out := contents{services: services, places: map[place]bool{}, own: map[string]bool{}, endpoints: map[string]extent{}}
	for i := range c.Services {
		spec := &c.Services[i]
		out.own[spec.Name], out.endpoints[spec.Name] = true, extentOf(spec)
		for j := range spec.Localities {
			if at := &spec.Localities[j]; len(at.Endpoints) > 0 {
				out.places[place{spec.Name, at.Locality}] = true
			}
		}
	}
	return out
}

// lacks reports whether it has no endpoints of the file in a place, and nobody else
// lists those of its service.
func (c *contents) lacks(at place) bool {
	return !c.places[at] && (c.own[at.service] || !c.services[at.service])
}

// forget leaves services out.
func (c *contents) forget(services []string) {
	for _, name := range services {
		delete(c.services, name)
		delete(c.own, name)
		delete(c.endpoints, name)
	}
	maps.DeleteFunc(c.places, func(at place, _ bool) bool { return !c.services[at.service] })
}

// takenBy is removedBy, or else thinnedBy.
func (c *contents) takenBy(next *contents) string {
	return cmp.Or(c.removedBy(next), c.thinnedBy(next))
}

// removedBy says how much of it another configuration does not have, where that is
// more than a third of the services, or of the localities of services, and more
// than one; "" otherwise.
func (c *contents) removedBy(next *contents) string {
	if n := missingOf(c.services, next.services); large(n, len(c.services)) {
		return fmt.Sprintf("%d of %d services", n, len(c.services))
	}
	n := 0
	for at := range c.places {
		if next.lacks(at) {
			n++
		}
	}
	if large(n, len(c.places)) {
		return fmt.Sprintf("%d of the %d localities of all services, or all endpoints there", n, len(c.places))
	}
	return ""
}

// remember adds what an earlier change removed. With discovered, it is only what others
// listed, which has no places in the file.
func (c *contents) remember(x *removedAt, discovered bool) {
	own := map[string]bool{}
	for at := range x.places {
		own[at.service] = true
	}
	for name := range x.services {
		if !discovered || !own[name] {
			c.services[name] = true
		}
	}
	if !discovered {
		maps.Copy(c.places, x.places)
		c.had(x.endpoints)
	}
}

// removedAt is what a change that is in force removed.
type removedAt struct {
	at       time.Time
	services map[string]bool
	places   map[place]bool

	endpoints map[string]int // that services had before which lost some
}

// recentRemovals are those of the last changes.
type recentRemovals []removedAt

// note records a change that is in force.
func (r *recentRemovals) note(before, after *contents, now time.Time) {
	kept := (*r)[:0]
	for _, x := range *r {
		if now.Sub(x.at) < removalMemory {
			kept = append(kept, x)
		}
	}
	gone := removedAt{at: now, services: map[string]bool{}, places: map[place]bool{}, endpoints: thinnedFrom(before, after)}
	for name := range before.services {
		if !after.services[name] {
			gone.services[name] = true
		}
	}
	for at := range before.places {
		if after.lacks(at) {
			gone.places[at] = true
		}
	}
	if !gone.empty() {
		kept = append(kept, gone)
	}
	*r = kept
}
