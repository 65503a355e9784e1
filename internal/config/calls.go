package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// placedCall is a call with who makes it and where that is written.
type placedCall struct {
	from string
	call isobar.Call
	at   strict.Value
}

func (r *serviceReader) readCalls(v strict.Value, from string) []isobar.Call {
	items, _ := v.List()
	out := make([]isobar.Call, 0, len(items))
	seen := map[string]bool{}
	for _, item := range items {
		c := isobar.Call{}
		at := item
		item.Object([]strict.Field{
			{Name: "service", Required: true, Read: func(v strict.Value) {
				c.Service, _ = v.Text()
				at = v
			}},
			requiredFloat("per_request", &c.PerRequest, perRequest),
		})
		switch {
		case c.Service == "" || c.PerRequest == 0: // told already
		case seen[c.Service]:
			at.Errorf("add their per_request up", "calls to %s are given twice", c.Service)
		default:
			seen[c.Service] = true
			out = append(out, c)
			r.calls = append(r.calls, placedCall{from: from, call: c, at: at})
		}
	}
	return out
}

func requiredFloat(name string, into *float64, r strict.Range) strict.Field {
	f := floatField(name, into, r)
	f.Required = true
	return f
}

// checkCalls warns of calls to services that are not listed (they may come
// from the API) and refuses cycles. known has the line of each service.
func checkCalls(calls []placedCall, known map[string]int) {
	graph := map[string][]string{}
	for _, c := range calls {
		if _, ok := known[c.call.Service]; !ok {
			c.at.Warnf("check the name, unless that service comes from the API", "no service %s in this list", c.call.Service)
		}
		graph[c.from] = append(graph[c.from], c.call.Service)
	}
	refuseCycle(calls, graph)
}

// refuseCycle reports a cycle at the call that begins it.
func refuseCycle(calls []placedCall, graph map[string][]string) {
	cycle := findCycle(graph)
	if cycle == nil {
		return
	}
	for _, c := range calls {
		if c.from == cycle[0] && c.call.Service == cycle[1] {
			c.at.Errorf("remove one of these calls", "calls go in a circle: %s", strings.Join(cycle, " -> "))
			return
		}
	}
}

// ErrCycle is wrapped by the errors of [CheckCalls].
var ErrCycle = errors.New("calls go in a circle")

// CheckCalls refuses services that call each other in a circle.
func CheckCalls(services []isobar.Service) error {
	graph := map[string][]string{}
	for i := range services {
		for _, c := range services[i].Calls {
			graph[services[i].Name] = append(graph[services[i].Name], c.Service)
		}
	}
	if cycle := findCycle(graph); cycle != nil {
		return fmt.Errorf("%w: %w: %s; remove one of these calls", isobar.ErrInvalid, ErrCycle, strings.Join(cycle, " -> "))
	}
	return nil
}

// findCycle returns the first cycle, in alphabetic order of its start, as names
// of which the last repeats the first; nil when there is none.
func findCycle(graph map[string][]string) []string {
	names := make([]string, 0, len(graph))
	for name := range graph {
		names = append(names, name)
	}
	slices.Sort(names)
	done := map[string]bool{}
	for _, name := range names {
		if cycle := walk(graph, name, done); cycle != nil {
			return cycle
		}
	}
	return nil
}

// walk searches depth-first from start with a stack of its own: call chains
// may be as long as the list of services.
func walk(graph map[string][]string, start string, done map[string]bool) []string {
	type frame struct {
		name string
		next int
	}
	var path []frame
	on := map[string]int{}
	push := func(name string) {
		on[name] = len(path)
		path = append(path, frame{name: name})
	}
	if !done[start] {
		push(start)
	}
	for len(path) > 0 {
		top := &path[len(path)-1]
		if top.next == len(graph[top.name]) {
			done[top.name] = true
			delete(on, top.name)
			path = path[:len(path)-1]
			continue
		}
		callee := graph[top.name][top.next]
		top.next++
		if from, open := on[callee]; open {
			var cycle []string
			for _, f := range path[from:] {
				cycle = append(cycle, f.name)
			}
			return append(cycle, callee)
		}
		if !done[callee] {
			push(callee)
		}
	}
	return nil
}
