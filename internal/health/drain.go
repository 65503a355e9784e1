package health

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// Where a locality is drained and used again, as shares of its endpoints, with
// a wide gap between so that it does not oscillate.
const (
	drainBelow  = 0.25
	undrainFrom = 0.35
	undrainHold = 60 * time.Second
)

// Drained is the set of localities that are drained because most of their
// endpoints are unhealthy. It is immutable, and nil is empty.
type Drained struct {
	list []drainedLocality // sorted
}

type drainedLocality struct {
	service  string
	locality isobar.Locality
}

func (d drainedLocality) compare(o drainedLocality) int {
	return cmp.Or(strings.Compare(d.service, o.service), d.locality.Compare(o.locality))
}

// Has reports whether a locality of a service is drained.
func (d *Drained) Has(service string, l isobar.Locality) bool {
	if d == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(d.list, drainedLocality{service: service, locality: l}, drainedLocality.compare)
	return found
}

// Of lists the drained localities of a service, sorted.
func (d *Drained) Of(service string) []isobar.Locality {
	var out []isobar.Locality
	if d != nil {
		for _, e := range d.list {
			if e.service == service {
				out = append(out, e.locality)
			}
		}
	}
	return out
}

// Drains decides which localities are drained: those of which less than 25% of
// the endpoints are healthy, until at least 35% have been for 60 s, but never
// so many that more than half of a service's localities are out of use. One
// without any healthy endpoint is out of use by itself: it counts for that
// half, is not drained, and is used as soon as it comes back. The zero value
// is ready to use.
type Drains struct {
	states   []drainState // sorted; only those with something to remember
	current  *Drained
	topology *isobar.Topology // last seen
	table    Table
	buffer   []ward // memory for those of a service
}

type drainState struct {
	drainedLocality

	drained  bool
	since    time.Time // of the state
	enough   time.Time // since when it has been healthy enough to be used again; zero: it is not
	released bool      // used again because too much was out of use, not for its health
}

// SavedDrain is a drained locality, as it survives a restart.
type SavedDrain struct {
	Service  string          `json:"service"`
	Locality isobar.Locality `json:"locality"`
	Since    time.Time       `json:"since"`
}

// Current returns the drained localities; equal pointers hold the same.
func (d *Drains) Current() *Drained { return d.current }

// Save lists the drained localities.
func (d *Drains) Save() []SavedDrain {
	var out []SavedDrain
	for i := range d.states {
		if s := &d.states[i]; s.drained {
			out = append(out, SavedDrain{Service: s.service, Locality: s.locality, Since: s.since})
		}
	}
	return out
}

// RestoreDrains continues where an earlier process stopped. The time of 60 s
// starts again.
func RestoreDrains(saved []SavedDrain) *Drains {
	d := &Drains{}
	for _, s := range saved {
		d.states = append(d.states, drainState{drainedLocality: drainedLocality{service: s.Service, locality: s.Locality}, drained: true, since: s.Since})
	}
	slices.SortStableFunc(d.states, func(a, b drainState) int { return a.compare(b.drainedLocality) })
	d.states = slices.CompactFunc(d.states, func(a, b drainState) bool { return a.drainedLocality == b.drainedLocality })
	d.publish()
	return d
}

// Observe takes the health of everything and returns the services of which the
// drained localities changed, sorted. It looks at those that changed, and at
// those for which time makes a difference.
func (d *Drains) Observe(now time.Time, topology *isobar.Topology, table Table) (changed []string) {
	before := d.current
	var next []drainState
	if topology != d.topology || !slices.Equal(table.overrides, d.table.overrides) {
		for i := range topology.Services {
			next = append(next, d.service(now, &topology.Services[i], table)...)
		}
	} else {
		for _, name := range d.due(table) {
			if spec, found := topology.Service(name); found {
				next = append(next, d.service(now, spec, table)...)
			}
		}
	}
	d.states, d.topology, d.table = next, topology, table
	d.publish()
	return before.changed(d.current)
}

// due lists the services of which verdicts changed or something is remembered:
// all others stay as they are, with nothing drained. Sorted.
func (d *Drains) due(table Table) []string {
	out := d.table.verdicts.Changed(table.verdicts)
	for i := range d.states {
		out = append(out, d.states[i].service)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (d *Drains) publish() {
	next := &Drained{}
	for i := range d.states {
		if d.states[i].drained {
			next.list = append(next.list, d.states[i].drainedLocality)
		}
	}
	if d.current == nil || !slices.Equal(d.current.list, next.list) {
		d.current = next
	}
}

func (d *Drained) changed(o *Drained) []string {
	var out []string
	for _, pair := range [2][2]*Drained{{d, o}, {o, d}} {
		if pair[0] == nil {
			continue
		}
		for _, e := range pair[0].list {
			if !pair[1].Has(e.service, e.locality) {
				out = append(out, e.service)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
