package server

import (
	"fmt"

	"github.com/isobar-xds/isobar/internal/config"
)

// lost tells what another file has lost of the one in force: all of its services,
// or all that providers list. Half a file, or one that a tool has cut, must not
// take every client's endpoints away, so each of the two sections is missed by
// itself. What moved to the other one by name is not lost.
func (c *configuration) lost(name string, next *config.Live) error {
	now := c.settings.current()
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
			"services: missing, but %d of this file are in force and stay", "write services: [] if they shall go")
	}
	if !next.Discovery.Given {
		note(missing(append(listedNames(now), c.providers.ClusterNames(now)...), ownNames(next)),
			"discovery: missing, but %d services whose endpoints it lists are in force and stay", "write discovery: {} if they shall go")
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
