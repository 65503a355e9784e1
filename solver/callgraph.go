package solver

import (
	"fmt"
	"slices"
)

const (
	maxPerRequest = 1e6
	// maxJoint is how many localities services that are connected by calls may
	// have together: the solver's memory grows with its square.
	maxJoint = 2000
)

// edge is one of a service's Calls, seen from the called service: the
// localities of the caller are its sources from the row first on.
type edge struct {
	from, call, to int
	first          int
}

// callGraph is who calls whom.
type callGraph struct {
	in    [][]edge // per service: the calls that reach it, in the order of its sources
	order []int    // all services, callers before those they call
}

// Sources is how many sources service i has: its own, then the localities of
// each service that calls it, in the order of Services. The rows of Latency,
// Price, Allowed and Previous are these.
func (p Problem) Sources(i int) int {
	n := len(p.Services[i].Demand)
	for j := range p.Services {
		for _, c := range p.Services[j].Calls {
			if c.Service == i {
				n += len(p.Services[j].Localities)
			}
		}
	}
	return n
}

// graph reads the calls of a problem. The error names a call that can't be.
func (p Problem) graph() (*callGraph, error) {
	g := &callGraph{in: make([][]edge, len(p.Services))}
	for i := range p.Services {
		seen := map[int]bool{}
		for k, c := range p.Services[i].Calls {
			place := fmt.Sprintf("services[%d].calls[%d]", i, k)
			switch {
			case c.Service < 0 || c.Service >= len(p.Services):
				return nil, invalid(place+".service", "there is no service %d", c.Service)
			case seen[c.Service]:
				return nil, invalid(place+".service", "service %d is called twice: add up per_request", c.Service)
			case !(c.PerRequest > 0 && c.PerRequest <= maxPerRequest):
				return nil, invalid(place+".per_request", "%v is not above 0 and at most %g", c.PerRequest, float64(maxPerRequest))
			}
			seen[c.Service] = true
			first := len(p.Services[c.Service].Demand)
			for _, e := range g.in[c.Service] {
				first += len(p.Services[e.from].Localities)
			}
			g.in[c.Service] = append(g.in[c.Service], edge{from: i, call: k, to: c.Service, first: first})
		}
	}
	return g, g.sort(p)
}

// sort puts callers before those they call (Kahn 1962); the error wraps
// ErrCycle.
func (g *callGraph) sort(p Problem) error {
	waits := make([]int, len(p.Services))
	for i := range g.in {
		waits[i] = len(g.in[i])
		if waits[i] == 0 {
			g.order = append(g.order, i)
		}
	}
	for k := 0; k < len(g.order); k++ {
		for _, c := range p.Services[g.order[k]].Calls {
			if waits[c.Service]--; waits[c.Service] == 0 {
				g.order = append(g.order, c.Service)
			}
		}
	}
	for i, w := range waits {
		if w > 0 {
			return fmt.Errorf("services[%d]: %w: %w: it is called by a service that its calls lead to", i, ErrInvalid, ErrCycle)
		}
	}
	return nil
}

// groups are the services that calls connect, each in the graph's order and
// all in the order of their first services.
func (g *callGraph) groups() [][]int {
	root := make([]int, len(g.in))
	for i := range root {
		root[i] = i
	}
	find := func(i int) int {
		for root[i] != i {
			root[i] = root[root[i]]
			i = root[i]
		}
		return i
	}
	for i := range g.in {
		for _, e := range g.in[i] {
			a, b := find(i), find(e.from)
			root[max(a, b)] = min(a, b)
		}
	}
	members := make([][]int, len(g.in))
	for _, i := range g.order {
		members[find(i)] = append(members[find(i)], i)
	}
	return slices.DeleteFunc(members, func(m []int) bool { return len(m) == 0 })
}

// validateCalls checks what only the services together can tell: sizes, and
// that calls do not multiply demand beyond what numbers hold.
func (p Problem) validateCalls(g *callGraph) error {
	for _, group := range g.groups() {
		columns := 0
		for _, i := range group {
			columns += len(p.Services[i].Localities)
		}
		if len(group) > 1 && columns > maxJoint {
			return invalid(fmt.Sprintf("services[%d]", group[0]), "%d services connected by calls have %d localities, more than %d",
				len(group), columns, maxJoint)
		}
	}
	total := make([]float64, len(p.Services))
	for _, i := range g.order {
		s := &p.Services[i]
		for _, d := range s.Demand {
			total[i] += d
		}
		if len(g.in[i]) > 0 && total[i] > MaxRate {
			return invalid(fmt.Sprintf("services[%d]", i), "calls make a demand of %v, more than %g", total[i], float64(MaxRate))
		}
		for _, c := range s.Calls {
			total[c.Service] += c.PerRequest * total[i]
		}
		if s.Allowed == nil {
			continue
		}
		for r := len(s.Demand); r < len(s.Allowed); r++ {
			if slices.Contains(s.Allowed[r], false) {
				return invalid(fmt.Sprintf("services[%d].allowed[%d]", i, r), "calls may go anywhere: keep them away by price")
			}
		}
	}
	return nil
}
