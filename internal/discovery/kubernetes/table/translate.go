package table

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plural"
)

// maxEndpoints bounds the endpoints of one service, as of other providers.
const maxEndpoints = 30_000

// member is one endpoint of a Service with the slice that it stands in.
type member struct {
	*Endpoint

	id    string
	slice *Slice
	where isobar.Locality
	held  bool // it was lost with most others at once
}

// translate returns the services of all ports of a Service.
func (t *Table) translate(svc *Service, now time.Time) []Listed {
	members, rejected := t.join(svc)
	l := t.losses[svc.Key]
	if l == nil {
		l = &loss{}
		t.losses[svc.Key] = l
	}
	l.look(members, now)
	out := make([]Listed, 0, len(svc.Ports))
	for _, port := range svc.Ports {
		policy := t.policyFor(svc.Key, port.Name)
		if svc.Unselected && policy == nil {
			continue
		}
		b := builder{rejected: rejected}
		if policy != nil {
			b.out.Policy = &Applied{policy.Key, policy.Settings}
		}
		b.out.Name = ServiceName(svc.Key, port.Number)
		b.add(members, port)
		out = append(out, b.finish())
	}
	return out
}

// rejection is why endpoints are left out.
type rejection struct {
	count int
	first string
}

func (r *rejection) notef(n int, format string, args ...any) {
	if r.count == 0 {
		r.first = fmt.Sprintf(format, args...)
	}
	r.count += n
}

// join returns the endpoints of a Service, each once, sorted by id, and says which
// can't be used. Controllers move endpoints between slices in two writes, so one
// may stand in two of them: the slice that was written last is right about it.
func (t *Table) join(svc *Service) ([]member, rejection) {
	family := t.familyOf(svc)
	found := map[string]member{}
	var out rejection
	for _, name := range slices.Sorted(maps.Keys(t.of[svc.Key])) {
		slice := t.slices[Key{svc.Namespace, name}]
		if slice.Family == NoIPFamily {
			out.notef(len(slice.Endpoints), "slice %s lists host names, not addresses", name)
		}
		if slice.Family != family {
			continue // the same Pods by their other addresses
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if a := e.Address; !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" {
				out.notef(1, "an address of slice %s is none that clients can connect to", name)
				continue
			}
			m := member{Endpoint: e, id: e.id(), slice: &slice}
			if old, twice := found[m.id]; !twice || m.newer(&old) {
				found[m.id] = m
			}
		}
	}
	members := make([]member, 0, len(found))
	for _, id := range slices.Sorted(maps.Keys(found)) {
		m := found[id]
		where, reason := t.place(m.Endpoint)
		if m.where = where; reason != "" {
			out.notef(1, "%s", reason)
			continue
		}
		members = append(members, m)
	}
	return members, out
}

// newer reports whether what m says of an endpoint counts rather than what o says.
func (m *member) newer(o *member) bool {
	if m.slice.Version != o.slice.Version {
		return m.slice.Version > o.slice.Version
	}
	return m.State > o.State
}

// familyOf is the family of the addresses that count: the Service's first, or
// that of the slices, IPv4 before IPv6.
func (t *Table) familyOf(svc *Service) Family {
	if svc.Family != AnyFamily {
		return svc.Family
	}
	out := IPv6
	for name := range t.of[svc.Key] { //isobar:sorted it looks for any
		if t.slices[Key{svc.Namespace, name}].Family == IPv4 {
			out = IPv4
		}
	}
	return out
}

// place says where an endpoint is, or why that is not known.
func (t *Table) place(e *Endpoint) (where isobar.Locality, reason string) {
	node := t.nodes[e.Node]
	where.Zone = e.Zone
	if where.Zone == "" {
		where.Zone = node.Zone
	}
	if where.Zone == "" {
		if t.places.Default.IsZero() {
			return where, fmt.Sprintf("endpoint %s has no zone: label Node %s with topology.kubernetes.io/zone, or set default_locality", e.Address, orUnknown(e.Node))
		}
		return t.places.Default, ""
	}
	if where.Region = t.regionOf(node, where.Zone); where.Region != "" {
		return where, ""
	}
	return where, fmt.Sprintf("endpoint %s is in zone %s, whose region is not known: label Node %s with topology.kubernetes.io/region, or add the zone to regions",
		e.Address, where.Zone, orUnknown(e.Node))
}

// regionOf returns the region of a zone with a Node; empty = it is not known.
func (t *Table) regionOf(node Node, zone string) string {
	candidates := [...]string{"", t.places.Regions[zone], t.regions[zone], t.places.Default.Region}
	if node.Zone == zone || node.Zone == "" {
		candidates[0] = node.Region
	}
	for _, region := range candidates {
		if region != "" {
			return region
		}
	}
	return ""
}

// PlaceNode says where a Node is, or why that is not known.
func (t *Table) PlaceNode(name string) (where isobar.Locality, reason string) {
	node, found := t.nodes[name]
	if !found {
		return where, fmt.Sprintf("the cluster has no Node %s", name)
	}
	if node.Zone == "" {
		if t.places.Default.IsZero() {
			return where, fmt.Sprintf("Node %s has no zone: label it with topology.kubernetes.io/zone, or set default_locality", name)
		}
		return t.places.Default, ""
	}
	if where.Region = t.regionOf(node, node.Zone); where.Region == "" {
		return where, fmt.Sprintf("the region of Node %s is not known: label it with topology.kubernetes.io/region, or add its zone %s to regions", name, node.Zone)
	}
	where.Zone = node.Zone
	return where, ""
}

// PlacesOfNodes returns where each Node is of which that is known.
func (t *Table) PlacesOfNodes() map[string]isobar.Locality {
	out := make(map[string]isobar.Locality, len(t.nodes))
	for name := range t.nodes { //isobar:sorted it fills a map
		if where, reason := t.PlaceNode(name); reason == "" {
			out[name] = where
		}
	}
	return out
}

// NodeAt returns the Node of the endpoint that has an address; empty = none has it, or
// endpoints of several Nodes do.
func (t *Table) NodeAt(address netip.Addr) string {
	if t.machines == nil {
		t.machines = map[netip.Addr]string{}
		for _, s := range t.slices { //isobar:sorted what it makes does not depend on the order
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				if other, twice := t.machines[e.Address]; twice && other != e.Node {
					t.machines[e.Address] = ""
				} else {
					t.machines[e.Address] = e.Node
				}
			}
		}
	}
	return t.machines[address]
}

func orUnknown(node string) string {
	if node == "" {
		return "(not named)"
	}
	return node
}

// builder makes one service.
type builder struct {
	rejected rejection
	out      Listed
	chosen   map[netip.AddrPort]*member
}

// add takes the endpoints that have the port.
func (b *builder) add(members []member, port Port) {
	b.chosen = map[netip.AddrPort]*member{}
	unnamed := 0
	for i := range members {
		m := &members[i]
		at := slices.IndexFunc(m.slice.Ports, func(p Port) bool { return p.Name == port.Name })
		if at < 0 || m.slice.Ports[at].Number == 0 {
			unnamed++
			continue
		}
		address := netip.AddrPortFrom(m.Address, m.slice.Ports[at].Number)
		other, twice := b.chosen[address]
		switch {
		case !twice && len(b.chosen) == maxEndpoints:
			b.rejected.notef(1, "more than %d endpoints", maxEndpoints)
		case !twice:
			b.chosen[address] = m
		default: // a Pod that has just gone had the address before
			b.rejected.notef(1, "two Pods have the address %s", address)
			if m.State > other.State || m.State == other.State && m.slice.Version > other.slice.Version {
				b.chosen[address] = m
			}
		}
	}
	if unnamed > 0 {
		b.rejected.notef(unnamed, "%s no port %s: name it in targetPort of the Service as the Pods do",
			plural.Count(unnamed, "endpoint has", "endpoints have"), portName(port))
	}
}

func portName(p Port) string {
	if p.Name == "" {
		return fmt.Sprint(p.Number)
	}
	return p.Name
}

// finish counts, and puts what is to be served into its localities.
func (b *builder) finish() Listed {
	for _, m := range b.chosen { //isobar:sorted it counts
		switch {
		case m.State == Ready:
			b.out.Counts.Ready++
		case m.State == Draining:
			b.out.Counts.Draining++
		case m.held:
			b.out.Counts.Held++
		default:
			b.out.Counts.NotReady++
		}
	}
	b.out.Counts.LeftOut, b.out.Reason = b.rejected.count, b.rejected.first
	at := map[isobar.Locality]int{}
	addresses := slices.SortedFunc(maps.Keys(b.chosen), netip.AddrPort.Compare)
	for _, address := range addresses {
		m := b.chosen[address]
		status, used := b.status(m)
		if !used {
			continue
		}
		i, exists := at[m.where]
		if !exists {
			i = len(b.out.Localities)
			at[m.where] = i
			b.out.Localities = append(b.out.Localities, isobar.ServiceLocality{Locality: m.where})
		}
		l := &b.out.Localities[i]
		l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: address.String(), Health: status})
	}
	slices.SortFunc(b.out.Localities, func(x, y isobar.ServiceLocality) int { return x.Locality.Compare(y.Locality) })
	return b.out
}

// status says how an endpoint is served. One that is not ready is not served at
// all, so that it is no capacity either: it may just have started. Where a
// Service has nothing ready, what still serves gets the requests until it ends.
func (b *builder) status(m *member) (status isobar.HealthStatus, used bool) {
	switch {
	case m.State == Ready, m.State == Draining && b.out.Counts.Ready == 0:
		return isobar.Healthy, true
	case m.State == Draining:
		return isobar.Draining, true
	default:
		return isobar.Unhealthy, m.held
	}
}
