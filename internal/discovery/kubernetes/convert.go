package kubernetes

import (
	"math"
	"net/netip"
	"strconv"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

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
