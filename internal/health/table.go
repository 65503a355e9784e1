// Package health turns the reports of designated checkers, and the marks of operators, into the
// health of endpoints: it designates checkers ([Place]), makes verdicts of their votes
// ([VerdictTable]), drains localities with too few healthy endpoints ([Drains]), and limits how
// often changes may be pushed ([Coalescer]). It is pure: values in, values out.
package health

import (
	"cmp"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// Key names an endpoint of a service.
type Key struct {
	Service string `json:"service"`
	Address string `json:"address"`
}

func (k Key) compare(o Key) int {
	return cmp.Or(strings.Compare(k.Service, o.Service), strings.Compare(k.Address, o.Address))
}

// Override is a health state that an operator set.
type Override struct {
	Key

	Status isobar.HealthStatus `json:"status"`
}

// Table is an immutable view of the health of all endpoints: the operator's
// overrides, sorted by key, over the verdicts of checkers, and the localities
// that are drained for being mostly unhealthy. The zero Table is empty.
type Table struct {
	overrides []Override
	verdicts  *Verdicts
	drained   *Drained
}

// NewTable builds a table; the last override of a key wins.
func NewTable(overrides []Override) Table {
	var t Table
	for _, o := range overrides {
		t = t.With(o)
	}
	return t
}

// With returns a table with o added, which replaces an entry of the same key.
func (t Table) With(o Override) Table {
	i, found := t.find(o.Key)
	next := slices.Clone(t.overrides)
	if found {
		next[i] = o
	} else {
		next = slices.Insert(next, i, o)
	}
	t.overrides = next
	return t
}

// WithAll returns a table with all of these added, as With does with each.
func (t Table) WithAll(all []Override) Table {
	if len(all) == 0 {
		return t
	}
	next := slices.Concat(t.overrides, all)
	slices.SortStableFunc(next, func(a, b Override) int { return a.compare(b.Key) })
	kept := next[:0]
	for i, o := range next { // the last of a key wins
		if i+1 == len(next) || next[i+1].Key != o.Key {
			kept = append(kept, o)
		}
	}
	t.overrides = kept
	return t
}

// Without returns a table without the keys that drop tells.
func (t Table) Without(drop func(Key) bool) Table {
	t.overrides = slices.DeleteFunc(slices.Clone(t.overrides), func(o Override) bool { return drop(o.Key) })
	return t
}

// WithVerdicts returns a table with these verdicts in place of its own.
func (t Table) WithVerdicts(v *Verdicts) Table {
	t.verdicts = v
	return t
}

// WithDrained returns a table with these localities drained in place of its own.
func (t Table) WithDrained(d *Drained) Table {
	t.drained = d
	return t
}

// Overrides lists the overrides, sorted.
func (t Table) Overrides() []Override { return slices.Clone(t.overrides) }

// Equal reports whether two tables give every endpoint the same health.
func (t Table) Equal(o Table) bool {
	return t.verdicts == o.verdicts && t.drained == o.drained && slices.Equal(t.overrides, o.overrides)
}

// Status returns the health of an endpoint of a service, see
// [ServiceTable.Status].
func (t Table) Status(service string, e *isobar.Endpoint) isobar.HealthStatus {
	return t.Of(service).Status(e)
}

// Drained reports whether a locality of a service is to get no traffic because too few of its
// endpoints are healthy.
func (t Table) Drained(service string, l isobar.Locality) bool { return t.drained.Has(service, l) }

func (t Table) find(k Key) (int, bool) {
	return slices.BinarySearchFunc(t.overrides, k, func(o Override, k Key) int { return o.compare(k) })
}
