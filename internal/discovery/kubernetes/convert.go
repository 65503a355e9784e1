package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
)

// shared gives equal strings one memory: the names of zones, Nodes and ports
// stand in every endpoint.
func shared(s string) string { return unique.Make(s).Value() }

// serviceOf reads Services; false for one without TCP ports.
func serviceOf(selector labels.Selector) func(*corev1.Service) (table.Service, bool) {
	return func(from *corev1.Service) (table.Service, bool) {
		s, ok := portsOf(from)
		s.Unselected = !selector.Matches(labels.Set(from.Labels))
		return s, ok
	}
}

func portsOf(from *corev1.Service) (table.Service, bool) {
	s := table.Service{Key: table.Key{Namespace: shared(from.Namespace), Name: from.Name}}
	if len(from.Spec.IPFamilies) > 0 {
		s.Family = map[corev1.IPFamily]table.Family{corev1.IPv4Protocol: table.IPv4, corev1.IPv6Protocol: table.IPv6}[from.Spec.IPFamilies[0]]
	}
	if from.Spec.Type == corev1.ServiceTypeExternalName {
		return s, false
	}
	for i := range from.Spec.Ports {
		p := &from.Spec.Ports[i]
		if p.Protocol == corev1.ProtocolTCP || p.Protocol == "" {
			s.Ports = append(s.Ports, table.Port{Name: shared(p.Name), Number: portNumber(p.Port)})
		}
	}
	return s, len(s.Ports) > 0
}

func portNumber(n int32) uint16 {
	if n < 0 || n > math.MaxUint16 {
		return 0
	}
	return uint16(n)
}

// sliceOf reads an EndpointSlice; false for one that belongs to no Service.
func sliceOf(from *discoveryv1.EndpointSlice) (table.Slice, bool) {
	s := table.Slice{
		Key:     table.Key{Namespace: shared(from.Namespace), Name: from.Name},
		Service: shared(from.Labels[discoveryv1.LabelServiceName]),
	}
	// Resource versions of one API server are numbers that grow.
	s.Version, _ = strconv.ParseUint(from.ResourceVersion, 10, 64)
	switch from.AddressType {
	case discoveryv1.AddressTypeIPv4:
		s.Family = table.IPv4
	case discoveryv1.AddressTypeIPv6:
		s.Family = table.IPv6
	case discoveryv1.AddressTypeFQDN:
		s.Family = table.NoIPFamily
	default:
		s.Family = table.NoIPFamily
	}
	for i := range from.Ports {
		p := &from.Ports[i]
		if p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP || p.Port == nil {
			continue
		}
		s.Ports = append(s.Ports, table.Port{Name: shared(deref(p.Name)), Number: portNumber(*p.Port)})
	}
	s.Endpoints = make([]table.Endpoint, len(from.Endpoints))
	for i := range from.Endpoints {
		s.Endpoints[i] = endpointOf(&from.Endpoints[i])
	}
	return s, s.Service != ""
}

func endpointOf(from *discoveryv1.Endpoint) table.Endpoint {
	c := from.Conditions
	e := table.Endpoint{
		Zone: shared(deref(from.Zone)), Node: shared(deref(from.NodeName)),
		State: table.StateOf(c.Ready, c.Serving, c.Terminating), Terminating: c.Terminating != nil && *c.Terminating,
	}
	if len(from.Addresses) > 0 { // of several only the first counts, as for all consumers
		if ip, err := netip.ParseAddr(from.Addresses[0]); err == nil {
			e.Address = ip.Unmap()
		}
	}
	if from.TargetRef != nil {
		e.UID = string(from.TargetRef.UID)
	}
	return e
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// nodeOf reads the labels of a Node.
func nodeOf(from *metav1.PartialObjectMetadata) (table.Node, bool) {
	return table.Node{
		Name: shared(from.Name), Region: shared(from.Labels[corev1.LabelTopologyRegion]), Zone: shared(from.Labels[corev1.LabelTopologyZone]),
	}, true
}

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

// nodePatience bounds how long [Provider.Place] waits for a Node.
const nodePatience = 5 * time.Second

// Place returns the locality of the Node on which a client runs, which connects from an
// address. It waits a little for a Node that is not known yet. An address that an
// endpoint on another Node has contradicts the client: then, too, there is an error.
func (p *Provider) Place(ctx context.Context, node string, from netip.Addr) (isobar.Locality, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	for {
		p.mu.Lock()
		where, wait, err := p.place(node, from)
		changed := p.nodes
		p.mu.Unlock()
		if !wait {
			return where, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return where, err
		}
	}
}

// place is Place without the wait. p.mu is held.
func (p *Provider) place(node string, from netip.Addr) (where isobar.Locality, wait bool, err error) {
	s := p.session
	switch {
	case p.cfg == nil:
		return where, false, errors.New("no Kubernetes cluster is configured")
	case s == nil || s.nodes == nil || !s.nodes.synced && !s.nodes.without():
		where, known := p.places[node]
		if !known {
			return where, true, errors.New("the Nodes of the cluster are not listed yet")
		}
		return where, false, nil
	case s.nodes.without():
		return where, false, errors.New("the service account may not list and watch nodes, by a ClusterRole")
	}
	if at := s.table.NodeAt(from.Unmap()); at != "" && at != node {
		return where, false, fmt.Errorf("%s is the address of a Pod on Node %s", from, at)
	}
	where, reason := s.table.PlaceNode(node)
	if reason != "" {
		return where, true, errors.New(reason)
	}
	return where, false, nil
}

// placesOfNodes returns where Nodes are, to be saved. p.mu is held.
func (p *Provider) placesOfNodes() map[string]isobar.Locality {
	if s := p.session; s != nil && s.nodes != nil && s.nodes.synced {
		return s.table.PlacesOfNodes()
	}
	return p.places
}

// nodesChanged wakes those that wait for a Node. p.mu is held.
func (p *Provider) nodesChanged() {
	close(p.nodes)
	p.nodes = make(chan struct{})
}
