package plan

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// withCalls adds the services that calls connect with those named, whichever
// way: what is decided of the others does not depend on them.
func withCalls(t *isobar.Topology, named map[string]bool) map[string]bool {
	out := make(map[string]bool, len(named))
	for _, group := range callGroups(t, t) {
		if slices.ContainsFunc(group, func(name string) bool { return named[name] }) {
			for _, name := range group {
				out[name] = true
			}
		}
	}
	return out
}

// only gives a turn of some of the services. What it shares with t is not
// changed.
func (t *Turn) only(names map[string]bool) *Turn {
	out := *t
	topology := *t.Topology
	topology.Services = nil
	for i := range t.Topology.Services {
		if names[t.Topology.Services[i].Name] {
			topology.Services = append(topology.Services, t.Topology.Services[i])
		}
	}
	previous := *t.Previous
	previous.Services = nil
	for _, s := range t.Previous.Services {
		if names[s.Spec.Name] {
			previous.Services = append(previous.Services, s)
		}
	}
	out.Topology, out.Previous = &topology, &previous
	out.Watched = nil
	for _, w := range t.Watched {
		if names[w.Service] {
			out.Watched = append(out.Watched, w)
		}
	}
	return &out
}
