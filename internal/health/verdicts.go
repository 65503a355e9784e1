package health

import (
	"maps"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// Verdicts is the health that checkers agree on, of every endpoint that has a
// verdict or waits for its first one. It is immutable, and nil is empty: two
// pointers that are equal hold the same.
type Verdicts struct {
	services []*serviceVerdicts // sorted by name; shared between versions
}

type serviceVerdicts struct {
	name   string
	status map[string]belief // by address
}

// belief is the verdict on an endpoint with its votes.
type belief struct {
	status  isobar.HealthStatus
	pending bool // nothing yet: it waits for its first verdict without traffic
}

// belief works on nil, too: then there is no verdict.
func (s *serviceVerdicts) belief(address string) (belief, bool) {
	if s == nil {
		return belief{}, false
	}
	b, found := s.status[address]
	return b, found
}

func (v *Verdicts) service(name string) *serviceVerdicts {
	if v == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(v.services, name, byName)
	if !found {
		return nil
	}
	return v.services[i]
}

func byName(s *serviceVerdicts, name string) int { return strings.Compare(s.name, name) }

// Changed lists the services on which newer says something else, sorted.
func (v *Verdicts) Changed(newer *Verdicts) []string {
	if v == newer {
		return nil
	}
	var out []string
	if newer != nil {
		for _, s := range newer.services {
			if v.service(s.name) != s {
				out = append(out, s.name)
			}
		}
	}
	if v != nil {
		for _, s := range v.services {
			if newer.service(s.name) == nil {
				out = append(out, s.name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Adopt returns these verdicts with those of newer on some services in place of
// their own: so changes of one service can be published now and those of
// another later.
func (v *Verdicts) Adopt(newer *Verdicts, services ...string) *Verdicts {
	out := v
	for _, name := range services {
		if s := newer.service(name); s != out.service(name) {
			out = out.with(name, s)
		}
	}
	return out
}

// with replaces one service; nil removes it.
func (v *Verdicts) with(name string, s *serviceVerdicts) *Verdicts {
	var next []*serviceVerdicts
	if v != nil {
		next = slices.Clone(v.services)
	}
	i, found := slices.BinarySearchFunc(next, name, byName)
	switch {
	case found && s == nil:
		next = slices.Delete(next, i, i+1)
	case found:
		next[i] = s
	case s != nil:
		next = slices.Insert(next, i, s)
	}
	return &Verdicts{services: next}
}

// put replaces the verdicts on one service, and keeps v if they are the same.
func (v *Verdicts) put(name string, status map[string]belief) *Verdicts {
	before := v.service(name)
	switch {
	case len(status) == 0 && before == nil:
		return v
	case len(status) == 0:
		return v.with(name, nil)
	case before != nil && maps.Equal(before.status, status):
		return v
	default:
		return v.with(name, &serviceVerdicts{name: name, status: status})
	}
}
