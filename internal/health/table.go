// Package health keeps what is known about the health of endpoints. Until
// designated checkers report, the only input beside the configuration is the
// operator. It is pure: values in, values out.
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

// Table is an immutable set of overrides, sorted by key. The zero Table is
// empty.
type Table struct {
	overrides []Override
}

// NewTable builds a table; the last override of a key wins.
func NewTable(overrides []Override) Table {
	var t Table
	for _, o := range overrides {
		t = t.With(o)
	}
	return t
}

// With gives a table with o added, in place of what stood under its key.
func (t Table) With(o Override) Table {
	i, found := t.find(o.Key)
	next := slices.Clone(t.overrides)
	if found {
		next[i] = o
	} else {
		next = slices.Insert(next, i, o)
	}
	return Table{overrides: next}
}

// Without gives a table without the keys that drop tells.
func (t Table) Without(drop func(Key) bool) Table {
	return Table{overrides: slices.DeleteFunc(slices.Clone(t.overrides), func(o Override) bool { return drop(o.Key) })}
}

// Overrides lists what is set, sorted.
func (t Table) Overrides() []Override { return slices.Clone(t.overrides) }

// Status gives the health of an endpoint: the override, else what the
// configuration says.
func (t Table) Status(service string, e *isobar.Endpoint) isobar.HealthStatus {
	if i, found := t.find(Key{Service: service, Address: e.Address}); found {
		return t.overrides[i].Status
	}
	return e.Health
}

func (t Table) find(k Key) (int, bool) {
	return slices.BinarySearchFunc(t.overrides, k, func(o Override, k Key) int { return o.compare(k) })
}
