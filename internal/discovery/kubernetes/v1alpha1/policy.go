package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LoadBalancingPolicy says how Isobar balances Services of its namespace. Isobar serves
// these Services even if the selector of the installation leaves them out.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=loadbalancingpolicies,shortName=lbp,categories=isobar
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.ancestors[*].conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Programmed",type=string,JSONPath=`.status.ancestors[*].conditions[?(@.type=="Programmed")].status`
// +kubebuilder:printcolumn:name="Fullest zone",type=string,JSONPath=`.status.fullestZone`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LoadBalancingPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec LoadBalancingPolicySpec `json:"spec"`
	// +optional
	Status LoadBalancingPolicyStatus `json:"status,omitempty"`
}

// LoadBalancingPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type LoadBalancingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LoadBalancingPolicy `json:"items"`
}

// LoadBalancingPolicySpec is what a policy asks for.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxShift) || self.mode == 'Bounded'",message="maxShift has no effect in this mode: set mode to Bounded, or remove maxShift"
type LoadBalancingPolicySpec struct {
	// TargetRefs are the Services, or single ports of them, that the policy is for. If
	// two policies have the same target, the older one is in force. A policy for a port
	// precedes one for its whole Service.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.name == b.name && (has(a.sectionName) ? a.sectionName : '') == (has(b.sectionName) ? b.sectionName : '')))",message="a target occurs twice: name each Service, or port of a Service, once"
	// +listType=atomic
	TargetRefs []TargetRef `json:"targetRefs"`

	// Mode says how much of what Isobar computes it also serves. Observe serves the
	// nearest healthy zone and computes beside it, Bounded moves at most maxShift away
	// from that, Full serves what Isobar computes, and Auto goes from Observe to Full
	// while predictions hold.
	//
	// +optional
	// +kubebuilder:default=Observe
	Mode Mode `json:"mode,omitempty"`

	// MaxShift is the share of the traffic of a zone, in percent, that mode Bounded may
	// move away from the nearest healthy zone; 20 by default.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxShift *int32 `json:"maxShift,omitempty"`

	// Capacity declares what endpoints can serve. Without it, Isobar goes by what it
	// observes.
	//
	// +optional
	Capacity *Capacity `json:"capacity,omitempty"`

	// HealthCheck says how health checkers probe the endpoints, beside their readiness.
	//
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`

	// +optional
	Failover *Failover `json:"failover,omitempty"`
}

// Mode is a mode of balancing.
//
// +kubebuilder:validation:Enum=Observe;Bounded;Auto;Full
type Mode string

// The modes.
const (
	Observe Mode = "Observe"
	Bounded Mode = "Bounded"
	Auto    Mode = "Auto"
	Full    Mode = "Full"
)

// TargetRef names a Service in the namespace of the policy, or one port of it.
type TargetRef struct {
	// Group is the API group of the target: empty, as that of Services.
	//
	// +optional
	// +kubebuilder:validation:Enum=""
	Group string `json:"group,omitempty"`

	// +required
	// +kubebuilder:validation:Enum=Service
	Kind string `json:"kind"`

	// Name is that of the Service.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// SectionName is the name of a port of the Service; without it, the policy is for
	// all ports.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	SectionName string `json:"sectionName,omitempty"`
}

// Capacity is what endpoints can serve.
//
// +kubebuilder:validation:XValidation:rule="!has(self.concurrencyPerEndpoint) || has(self.maxRatePerEndpoint) || has(self.localities)",message="concurrencyPerEndpoint says nothing without a rate: add maxRatePerEndpoint or localities"
type Capacity struct {
	// MaxRatePerEndpoint is how many requests per second one endpoint can serve.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	MaxRatePerEndpoint *int32 `json:"maxRatePerEndpoint,omitempty"`

	// ConcurrencyPerEndpoint is how many requests one endpoint can work on at once.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	ConcurrencyPerEndpoint *int32 `json:"concurrencyPerEndpoint,omitempty"`

	// Localities has the capacity of whole zones.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.zone == b.zone))",message="a zone occurs twice: give each zone once"
	// +listType=atomic
	Localities []LocalityCapacity `json:"localities,omitempty"`
}

// LocalityCapacity is what all endpoints of a zone can serve together.
type LocalityCapacity struct {
	// Zone is the label topology.kubernetes.io/zone of the Nodes.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone"`

	// MaxRate is how many requests per second the zone can serve.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	MaxRate int32 `json:"maxRate"`
}

// HealthCheck is a probe of endpoints by health checkers: one of grpc, http and tcp.
//
// +kubebuilder:validation:XValidation:rule="[has(self.grpc), has(self.http), has(self.tcp)].exists_one(x, x)",message="give one of grpc, http and tcp; tcp: {} only connects"
// +kubebuilder:validation:XValidation:rule="duration(has(self.timeout) ? self.timeout : '10ms') <= duration(has(self.interval) ? self.interval : '5s')",message="timeout is longer than interval: make it shorter, or probe less often"
// +kubebuilder:validation:XValidation:rule="duration(has(self.interval) ? self.interval : '5s') >= duration('100ms') && duration(has(self.interval) ? self.interval : '5s') <= duration('1h')",message="interval has to be between 100ms and 1h"
// +kubebuilder:validation:XValidation:rule="duration(has(self.timeout) ? self.timeout : '1s') >= duration('10ms')",message="timeout has to be 10ms or more"
type HealthCheck struct {
	// GRPC asks grpc.health.v1.Health/Check.
	//
	// +optional
	GRPC *GRPCCheck `json:"grpc,omitempty"`
	// HTTP sends a request that has to be answered with 200.
	//
	// +optional
	HTTP *HTTPCheck `json:"http,omitempty"`
	// TCP opens a connection.
	//
	// +optional
	TCP *TCPCheck `json:"tcp,omitempty"`

	// Interval is the time between two probes of one checker; 5s by default.
	//
	// +optional
	Interval Duration `json:"interval,omitempty"`
	// Timeout is that of one probe; 1s by default.
	//
	// +optional
	Timeout Duration `json:"timeout,omitempty"`
}

// Duration is a duration such as 5s or 250ms.
//
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
type Duration string

// GRPCCheck is a probe by the gRPC health service.
type GRPCCheck struct {
	// Service is the name that the probe asks for; empty means the whole server.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Service string `json:"service,omitempty"`
}

// HTTPCheck is a probe by a request.
type HTTPCheck struct {
	// Path begins with a slash.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[!-~]*$`
	Path string `json:"path"`
	// Host is the Host header; the name of the Service without the port by default.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$`
	Host string `json:"host,omitempty"`
}

// TCPCheck is a probe that connects.
type TCPCheck struct{}

// Failover says when a zone gives traffic to others.
type Failover struct {
	// Threshold is the share of endpoints of a zone, in percent, that has to be healthy
	// for the zone to keep all of its traffic.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Threshold int32 `json:"threshold"`
}

// LoadBalancingPolicyStatus is what became of a policy.
type LoadBalancingPolicyStatus struct {
	// Ancestors has an entry for each target.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Ancestors []AncestorStatus `json:"ancestors,omitempty"`

	// FullestZone is the zone of the targets that uses most of its capacity, with the
	// share in percent. Isobar writes it about once a minute.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	FullestZone string `json:"fullestZone,omitempty"`
}

// AncestorStatus is what became of a policy for one target.
type AncestorStatus struct {
	// +required
	AncestorRef TargetRef `json:"ancestorRef"`

	// ControllerName names the installation of Isobar that wrote the entry.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ControllerName string `json:"controllerName"`

	// Conditions are Accepted, ResolvedRefs and Programmed.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ControllerName is what Isobar calls itself in statuses.
const ControllerName = "isobar.dev/isobar"

// The types of conditions.
const (
	Accepted     = "Accepted"     // the policy is valid, and no other one has the target
	ResolvedRefs = "ResolvedRefs" // the target exists
	Programmed   = "Programmed"   // clients are balanced by the policy
)

// Reasons of conditions that are false. The reason of one that is true is its type.
const (
	ReasonConflicted     = "Conflicted"       // another policy, or the configuration file, has the target
	ReasonTargetNotFound = "TargetNotFound"   // there is no such Service with a TCP port
	ReasonPortNotFound   = "PortNotFound"     // the Service has no port of this name
	ReasonNoEndpoints    = "NoEndpoints"      // the Service has no endpoint that is ready
	ReasonLeftOut        = "EndpointsLeftOut" // no endpoint can be used, for example because its zone is not known
	ReasonRefused        = "Refused"          // Isobar refuses the service
	ReasonPending        = "Pending"          // Isobar has not read the cluster yet
)
