package reload

import (
	"fmt"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
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
	note := func(n int, text, hint string) {
		if n == 0 {
			return
		}
		p := config.Problem{File: name, Text: fmt.Sprintf(text, n), Hint: hint}
		p.Line, p.Column = 1, 1
		out = append(out, p)
	}
	if next.Services == nil {
		note(missing(ownNames(now), listedNames(next)),
			"services: missing, but %d of this file are in force and stay", "write services: [] to remove them")
	}
	if !next.Discovery.Given {
		note(missing(append(listedNames(now), c.providers.ClusterNames(now)...), ownNames(next)),
			"discovery: missing, but %d services whose endpoints it lists are in force and stay", "write discovery: {} to remove them")
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

// removesAll reports whether an operator wrote that there are no services.
func removesAll(c *config.Live) bool { return c.Services != nil && len(c.Services) == 0 }

// removal says how much a change of the configuration removes, where that is
// more than a third of the services, or of the localities of services, and more
// than one; "" otherwise. services and left are the names before and after.
func removal(before, after *config.Live, services, left map[string]bool) string {
	if n := missingOf(services, left); large(n, len(services)) {
		return fmt.Sprintf("%d of %d services", n, len(services))
	}
	localities, stay := localitiesOf(before), localitiesOf(after)
	own := make(map[string]bool, len(after.Services))
	for _, name := range ownNames(after) {
		own[name] = true
	}
	for name := range localities {
		if left[name] && !own[name] {
			stay[name] = localities[name] // its endpoints come from elsewhere now
		}
	}
	n, of := 0, 0
	for name, list := range localities {
		of += len(list)
		n += missingOf(list, stay[name])
	}
	if large(n, of) {
		return fmt.Sprintf("%d of the %d localities of all services", n, of)
	}
	return ""
}

// Removes implements [admin.Configuration]: it says what [removal] says of the services of
// the API.
func (c *Configuration) Removes(services []isobar.Service) string {
	before := &config.Live{}
	for _, o := range c.registry.List() {
		if o.Owner == isobar.OwnerAPI {
			before.Services = append(before.Services, o.Service)
		}
	}
	after := &config.Live{Services: services}
	return removal(before, after, names(before), names(after))
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

// localitiesOf lists where the services that the file itself has are.
func localitiesOf(c *config.Live) map[string]map[isobar.Locality]bool {
	out := map[string]map[isobar.Locality]bool{}
	for name := range names(c) {
		out[name] = map[isobar.Locality]bool{}
	}
	for i := range c.Services {
		for j := range c.Services[i].Localities {
			out[c.Services[i].Name][c.Services[i].Localities[j].Locality] = true
		}
	}
	return out
}
