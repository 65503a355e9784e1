package kubernetes

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
)

// entry is one service.
type entry struct {
	table.Listed

	at      time.Time                // when it was listed so
	refused string                   // why the registry refused it; empty = it did not
	inForce []isobar.ServiceLocality // what the registry took last
	policy  *table.Applied           // by which it was; nil = by none
	taken   bool                     // it has taken something, perhaps without localities
}

// known is an entry of which only this is known.
func known(name string, localities []isobar.ServiceLocality, policy *table.Applied, at time.Time) *entry {
	return &entry{Listed: table.Listed{Name: name, Localities: localities, Policy: policy}, at: at, inForce: localities, policy: policy, taken: true}
}

// selects reports whether a name is of a namespace that is watched.
func (c *Config) selects(name string) bool {
	if len(c.Namespaces) == 0 {
		return true
	}
	_, rest, _ := strings.Cut(name, ".")
	namespace, _, _ := strings.Cut(rest, ":")
	return slices.Contains(c.Namespaces, namespace)
}

// servicesOf returns the services that are to be in force, and those with settings
// of which nothing is: the cluster was not listed yet, or the registry has refused
// them. A service with settings that the cluster does not list does not exist.
func servicesOf(cfg *Config, entries map[string]*entry, synced bool) (listed, unknown []isobar.Service) {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if e := entries[name]; e.taken {
			listed = append(listed, cfg.service(name, e.inForce, e.policy))
		}
	}
	if cfg == nil {
		return listed, nil
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Services)) {
		e := entries[name]
		if e == nil && !synced || e != nil && !e.taken {
			s := cfg.Services[name]
			s.Localities = nil
			unknown = append(unknown, s)
		}
	}
	return listed, unknown
}

// service joins what the cluster lists with what is configured, or what a policy says of
// services that are not.
func (c *Config) service(name string, listed []isobar.ServiceLocality, policy *table.Applied) isobar.Service {
	s, found := c.Services[name]
	settings := s.Localities
	if !found {
		s = c.Template
		s.Name = name
	}
	s.Localities = make([]isobar.ServiceLocality, len(listed))
	for i := range listed {
		where := listed[i].Locality
		s.Localities[i] = isobar.ServiceLocality{Locality: where, Ceiling: c.Ceiling}
		if j := slices.IndexFunc(settings, func(l isobar.ServiceLocality) bool { return l.Locality == where }); j >= 0 {
			s.Localities[i] = settings[j]
		}
		s.Localities[i].Endpoints = listed[i].Endpoints
	}
	if !found && policy != nil && c.Policies {
		return policy.Settings.Apply(s)
	}
	return s
}
