// Package v1alpha1 has the objects of the API group isobar.dev that users write into
// their Kubernetes clusters.
//
// `make crds` generates the functions DeepCopy of this package and the CRDs in
// deploy/kubernetes/crds from the types.
//
// +kubebuilder:object:generate=true
// +groupName=isobar.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group of the objects and their version.
var GroupVersion = schema.GroupVersion{Group: "isobar.dev", Version: "v1alpha1"}

// Resources of the group.
const (
	Policies       = "loadbalancingpolicies" // [LoadBalancingPolicy]
	OperatorStates = "operatorstates"        // [OperatorState]
)

// AddToScheme adds the types of the package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &LoadBalancingPolicy{}, &LoadBalancingPolicyList{}, &OperatorState{}, &OperatorStateList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
