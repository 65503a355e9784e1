package table

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Table is the state of a cluster. Make one with [New].
type Table struct {
	places   Places
	services map[Key]Service
	slices   map[Key]Slice
	of       map[Key]map[string]struct{} // the names of the slices of each Service
	nodes    map[string]Node
	regions  map[string]string // by zone, as Nodes had it first
	losses   map[Key]*loss
	names    map[Key][]string // of each Service, as they were given last
	dirty    map[Key]struct{}

	machines map[netip.Addr]string // the Node of each address; empty = of several; nil = to be made again

	policies   map[Key]Policy
	policiesOf map[Key]map[string]struct{} // the names of the policies of each Service
}

// New makes an empty table.
func New(places Places) *Table {
	return &Table{
		places: places, services: map[Key]Service{}, slices: map[Key]Slice{}, of: map[Key]map[string]struct{}{},
		nodes: map[string]Node{}, regions: map[string]string{}, losses: map[Key]*loss{}, names: map[Key][]string{}, dirty: map[Key]struct{}{},
		policies: map[Key]Policy{}, policiesOf: map[Key]map[string]struct{}{},
	}
}

// SetPlaces replaces what is configured of places.
func (t *Table) SetPlaces(p Places) {
	t.places = p
	t.Touch()
}

// Touch lets the next [Table.Take] give all services.
func (t *Table) Touch() {
	for k := range t.services { //isobar:sorted a copy of a set
		t.dirty[k] = struct{}{}
	}
}

// SetService adds or replaces a Service.
func (t *Table) SetService(s Service) {
	t.services[s.Key] = s
	t.dirty[s.Key] = struct{}{}
}

// DeleteService removes a Service; its slices may stay.
func (t *Table) DeleteService(k Key) {
	delete(t.services, k)
	t.dirty[k] = struct{}{}
}

// ReplaceServices replaces all Services of a namespace; empty = of all.
func (t *Table) ReplaceServices(namespace string, list []Service) {
	stay := make(map[Key]struct{}, len(list))
	for _, s := range list {
		stay[s.Key] = struct{}{}
		t.SetService(s)
	}
	for k := range t.services { //isobar:sorted each by itself
		if _, stays := stay[k]; !stays && within(k, namespace) {
			t.DeleteService(k)
		}
	}
}

// SetSlice adds or replaces a slice. It may move to another Service.
func (t *Table) SetSlice(s Slice) {
	t.DeleteSlice(s.Key)
	t.slices[s.Key] = s
	t.machines = nil
	owner := Key{s.Namespace, s.Service}
	if t.of[owner] == nil {
		t.of[owner] = map[string]struct{}{}
	}
	t.of[owner][s.Name] = struct{}{}
	t.dirty[owner] = struct{}{}
}

// DeleteSlice removes a slice: its endpoints are gone.
func (t *Table) DeleteSlice(k Key) {
	s, found := t.slices[k]
	if !found {
		return
	}
	delete(t.slices, k)
	t.machines = nil
	owner := Key{s.Namespace, s.Service}
	delete(t.of[owner], s.Name)
	if len(t.of[owner]) == 0 {
		delete(t.of, owner)
	}
	t.dirty[owner] = struct{}{}
}

// ReplaceSlices replaces all slices of a namespace; empty = of all.
func (t *Table) ReplaceSlices(namespace string, list []Slice) {
	stay := make(map[Key]struct{}, len(list))
	for i := range list {
		stay[list[i].Key] = struct{}{}
		t.SetSlice(list[i])
	}
	for _, k := range slices.Collect(maps.Keys(t.slices)) { //isobar:sorted each by itself
		if _, stays := stay[k]; !stays && within(k, namespace) {
			t.DeleteSlice(k)
		}
	}
}

func within(k Key, namespace string) bool { return namespace == "" || k.Namespace == namespace }

// SetNode adds or replaces a Node.
func (t *Table) SetNode(n Node) {
	if t.nodes[n.Name] == n {
		return
	}
	t.nodes[n.Name] = n
	if _, known := t.regions[n.Zone]; !known && n.Zone != "" && n.Region != "" {
		t.regions[n.Zone] = n.Region
		t.touchWhere(func(e *Endpoint) bool { return e.Zone == n.Zone || e.Node == n.Name })
		return
	}
	t.touchWhere(func(e *Endpoint) bool { return e.Node == n.Name })
}

// DeleteNode removes a Node. What its zone's region is stays known.
func (t *Table) DeleteNode(name string) {
	if _, found := t.nodes[name]; !found {
		return
	}
	delete(t.nodes, name)
	t.touchWhere(func(e *Endpoint) bool { return e.Node == name })
}

// ReplaceNodes replaces all Nodes.
func (t *Table) ReplaceNodes(list []Node) {
	stay := make(map[string]struct{}, len(list))
	for _, n := range list {
		stay[n.Name] = struct{}{}
		t.SetNode(n)
	}
	for _, name := range slices.Collect(maps.Keys(t.nodes)) { //isobar:sorted each by itself
		if _, stays := stay[name]; !stays {
			t.DeleteNode(name)
		}
	}
}

// touchWhere lets the next Take give the services that have such an endpoint.
func (t *Table) touchWhere(is func(*Endpoint) bool) {
	for _, s := range t.slices { //isobar:sorted it adds to a set
		for i := range s.Endpoints {
			if is(&s.Endpoints[i]) {
				t.dirty[Key{s.Namespace, s.Service}] = struct{}{}
				break
			}
		}
	}
}

// Take returns the services that may have changed since the last call, sorted by
// name, and the names of those that are gone.
func (t *Table) Take(now time.Time) (changed []Listed, removed []string) {
	for k := range t.dirty { //isobar:sorted what it gives is sorted below
		svc, exists := t.services[k]
		before := t.names[k]
		if !exists {
			removed = append(removed, before...)
			delete(t.names, k)
			delete(t.losses, k)
			continue
		}
		listed := t.translate(&svc, now)
		names := make([]string, len(listed))
		for i := range listed {
			names[i] = listed[i].Name
		}
		for _, name := range before {
			if !slices.Contains(names, name) {
				removed = append(removed, name)
			}
		}
		t.names[k] = names
		changed = append(changed, listed...)
	}
	clear(t.dirty)
	slices.SortFunc(changed, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(removed)
	return changed, removed
}
