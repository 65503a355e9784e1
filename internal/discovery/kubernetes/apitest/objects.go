package apitest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node has labels of a region and a zone.
func Node(name, region, zone string) Object {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyRegion: region, corev1.LabelTopologyZone: zone}},
	}
}

// Service has the TCP port 80, named grpc, and a UDP port.
func Service(namespace, name string, edits ...func(*corev1.Service)) Object {
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "grpc", Port: 80, Protocol: corev1.ProtocolTCP}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}},
		},
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// Slice has the port 8080, named grpc, of the Service before the first "-" of its
// name, and endpoints "10.1.0.1" or "10.1.0.1 draining", or "10.1.0.1 unready", in a zone.
func Slice(namespace, name, zone string, endpoints ...string) Object {
	svc, _, _ := strings.Cut(name, "-")
	s := &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: svc}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("grpc"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, text := range endpoints {
		address, condition, _ := strings.Cut(text, " ")
		e := discoveryv1.Endpoint{
			Addresses: []string{address}, Zone: &zone, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: address, UID: types.UID("uid-" + address)},
		}
		switch condition {
		case "draining":
			e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
		case "unready":
			e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(false)}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}
