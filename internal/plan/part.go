package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// withCalls adds the services that calls connect with those named, whichever
// way, and gives all of them sorted: what is decided of the others does not
// depend on them.
func withCalls(t *isobar.Topology, named map[string]bool) []string {
	var out []string
	for _, group := range callGroups(t, t) {
		if slices.ContainsFunc(group, func(name string) bool { return named[name] }) {
			out = append(out, group...)
		}
	}
	slices.Sort(out)
	return out
}

func (t *Turn) sortWatched() {
	slices.SortFunc(t.Watched, func(a, b Watched) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), a.Source.Compare(b.Source))
	})
}

// only gives a turn of some of the services, whose names are sorted. What it
// shares with t, whose Watched are sorted, is not changed.
func (t *Turn) only(names []string) *Turn {
	out, previous := *t, *t.Previous
	out.Topology, previous.Topology = onlyOf(t.Topology, names), onlyOf(t.Previous.Topology, names)
	previous.Services, out.Watched = nil, nil
	for _, name := range names {
		if s, ok := t.Previous.Service(name); ok {
			previous.Services = append(previous.Services, s)
		}
		from, _ := slices.BinarySearchFunc(t.Watched, name, func(w Watched, n string) int { return strings.Compare(w.Service, n) })
		for _, w := range t.Watched[from:] {
			if w.Service != name {
				break
			}
			out.Watched = append(out.Watched, w)
		}
	}
	out.Previous = &previous
	return &out
}

// onlyOf gives the topology of some of the services, whose names are sorted.
func onlyOf(t *isobar.Topology, names []string) *isobar.Topology {
	if t == nil {
		return nil
	}
	out := *t
	out.Services = nil
	for _, name := range names {
		if s, ok := t.Service(name); ok {
			out.Services = append(out.Services, *s)
		}
	}
	return &out
}
