package apitest

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
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

// Policy is one for a Service, or a port "SERVICE:PORT" of it, that is so many hours old.
func Policy(namespace, name, target string, age int, edits ...func(*v1alpha1.LoadBalancingPolicySpec)) *v1alpha1.LoadBalancingPolicy {
	svc, port, _ := strings.Cut(target, ":")
	p := &v1alpha1.LoadBalancingPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: "isobar.dev/v1alpha1", Kind: "LoadBalancingPolicy"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Generation: 1,
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).Add(-time.Duration(age) * time.Hour)),
		},
		Spec: v1alpha1.LoadBalancingPolicySpec{TargetRefs: []v1alpha1.TargetRef{{Kind: "Service", Name: svc, SectionName: port}}, Mode: v1alpha1.Full},
	}
	for _, edit := range edits {
		edit(&p.Spec)
	}
	return p
}
