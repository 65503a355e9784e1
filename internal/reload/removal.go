package reload

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/plural"
)

// fewRemoved is how many services or localities a change may always remove.
const fewRemoved = 1

// lost tells what another file has lost of the one in force: all of its services,
// or all that providers list. Half a file, or one that a tool has cut, must not
// take every client's endpoints away, so each of the two sections is missed by
// itself. What moved to the other one by name is not lost.
func (c *Configuration) lost(name string, next *config.Live) error {
	now := c.settings.Current()
	var out []config.Problem
	note := func(n int, section, one, many, hint string) {
		if n == 0 {
			return
		}
		p := config.Problem{File: name, Text: section + ": missing, but " + plural.Count(n, one, many), Hint: hint}
		p.Line, p.Column = 1, 1
		out = append(out, p)
	}
	if next.Services == nil {
		note(missing(ownNames(now), listedNames(next)),
			"services", "service of this file is in force and stays", "services of this file are in force and stay", "write services: [] to remove them")
	}
	if !next.Discovery.Given {
		note(missing(append(listedNames(now), c.providers.ClusterNames(now)...), ownNames(next)),
			"discovery", "service whose endpoints it lists is in force and stays", "services whose endpoints it lists are in force and stay",
			"write discovery: {} to remove them")
	}
	if len(out) == 0 {
		return nil
	}
	return &config.Error{Problems: out}
}

// missing counts the names that are not elsewhere.
func missing(names, elsewhere []string) int {
	moved := make(map[string]bool, len(elsewhere))
	for _, n := range elsewhere {
		moved[n] = true
	}
	out := 0
	for _, n := range names {
		if !moved[n] {
			out++
			moved[n] = true // it may be named twice
		}
	}
	return out
}

// ownNames are those of the services that the file itself lists.
func ownNames(c *config.Live) []string {
	out := make([]string, len(c.Services))
	for i := range c.Services {
		out[i] = c.Services[i].Name
	}
	return out
}

// listedNames are those of the services that a configuration names for providers:
// another control plane, DNS, or a Kubernetes cluster, which has more.
func listedNames(c *config.Live) []string {
	var out []string
	if c.Discovery.XDS != nil {
		for i := range c.Discovery.XDS.Services {
			out = append(out, c.Discovery.XDS.Services[i].Service.Name)
		}
	}
	if c.Discovery.DNS != nil {
		for i := range c.Discovery.DNS.Services {
			out = append(out, c.Discovery.DNS.Services[i].Service.Name)
		}
	}
	if c.Discovery.Kubernetes != nil {
		for i := range c.Discovery.Kubernetes.Services {
			out = append(out, c.Discovery.Kubernetes.Services[i].Name)
		}
	}
	return out
}

// names are those of all services of a configuration.
func names(c *config.Live) map[string]bool {
	out := map[string]bool{}
	for _, list := range [][]string{ownNames(c), listedNames(c)} {
		for _, name := range list {
			out[name] = true
		}
	}
	return out
}

// allNames are names with all that the Kubernetes cluster has.
func (c *Configuration) allNames(of *config.Live) map[string]bool {
	out := names(of)
	for _, name := range c.providers.ClusterNames(of) {
		out[name] = true
	}
	return out
}

// served are those of allNames that have endpoints, or whose endpoints others list.
func (c *Configuration) served(of *config.Live) map[string]bool {
	out := c.servedOf(of)
	for _, list := range [][]string{listedNames(of), c.providers.ClusterNames(of)} {
		for _, name := range list {
			out[name] = true
		}
	}
	return out
}

// servedOf are the services of a file that have endpoints there.
func (c *Configuration) servedOf(of *config.Live) map[string]bool {
	out := map[string]bool{}
	for i := range of.Services {
		if hasEndpoints(&of.Services[i]) {
			out[of.Services[i].Name] = true
		}
	}
	return out
}

func hasEndpoints(s *isobar.Service) bool {
	return slices.ContainsFunc(s.Localities, func(l isobar.ServiceLocality) bool { return len(l.Endpoints) > 0 })
}

// removesListed reports whether a file has nothing list services.
func removesListed(c *config.Live) bool {
	return c.Discovery.XDS == nil && c.Discovery.DNS == nil && c.Discovery.Kubernetes == nil
}

// removesAll reports whether an operator wrote that there are no services. That is meant of
// those that discovery lists, too, where it lists none any more.
func removesAll(c *config.Live) bool { return c.Services != nil && len(c.Services) == 0 }

// contentsOf is contentsOf with what the Kubernetes cluster lists.
func (c *Configuration) contentsOf(of *config.Live) contents { return contentsOf(of, c.allNames(of)) }

// removal says how much a change removes, where that has to be confirmed: by itself, or
// together with what the changes before it removed. While a change is held, time alone does
// not make it harmless. c.held.mu is held.
func (c *Configuration) removal(next *config.Live, now time.Time) string {
	current := c.settings.Current()
	return c.removalFrom(c.contentsOf(current), current, next, now)
}

// removalFrom is removal from what another configuration has. With services: [] an operator
// removes what the file itself lists; what others list is not meant by it.
func (c *Configuration) removalFrom(have contents, before, next *config.Live, now time.Time) string {
	left := c.contentsOf(next)
	if removesAll(next) {
		if removesListed(next) {
			return ""
		}
		have.forget(ownNames(before))
	}
	if what := have.takenBy(&left); what != "" {
		return what
	}
	earlier := false
	for i := range c.held.recent {
		if x := &c.held.recent[i]; c.held.pending || now.Sub(x.at) < removalMemory {
			have.remember(x, removesAll(next))
			earlier = true
		}
	}
	if !earlier {
		return ""
	}
	what := have.takenBy(&left)
	if what != "" {
		what += ", together with earlier removals"
	}
	return what
}

// Removes implements [admin.Configuration]: it says what [contents.removedBy] says of the services of
// the API. Programs write those, and their endpoints come and go: fewer of them are no such removal.
func (c *Configuration) Removes(services []isobar.Service) string {
	before := &config.Live{}
	for _, o := range c.registry.Objects() {
		if o.Owner == isobar.OwnerAPI {
			before.Services = append(before.Services, o.Service)
		}
	}
	after := &config.Live{Services: services}
	have, left := contentsOf(before, names(before)), contentsOf(after, names(after))
	return have.removedBy(&left)
}

func large(n, of int) bool { return n > fewRemoved && 3*n > of }

func missingOf[K comparable](before, after map[K]bool) (n int) {
	for x := range before {
		if !after[x] {
			n++
		}
	}
	return n
}
