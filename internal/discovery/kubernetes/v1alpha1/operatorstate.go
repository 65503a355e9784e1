package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OperatorState has what operators wrote at one time, in a group of replicas whose
// election engine is Kubernetes: health that they set, and pauses. Isobar makes and
// deletes these objects; the Lease of the group lists those that count. Change them by
// the commands of isobar, not by kubectl.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=operatorstates,categories=isobar
// +kubebuilder:printcolumn:name="Lease",type=string,JSONPath=`.metadata.labels.isobar\.dev/lease`
// +kubebuilder:printcolumn:name="Epoch",type=string,JSONPath=`.metadata.labels.isobar\.dev/epoch`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OperatorState struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Changes are applied in the order of the objects in the list of the Lease.
	//
	// +optional
	// +listType=atomic
	Changes []OperatorChange `json:"changes,omitempty"`
}

// OperatorStateList is a list of these objects.
//
// +kubebuilder:object:root=true
type OperatorStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OperatorState `json:"items"`
}

// OperatorChange sets an entry, or removes it.
type OperatorChange struct {
	// Key names the entry, such as health/SERVICE/ADDRESS or pauses/SERVICE.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Key string `json:"key"`

	// Data is the entry.
	//
	// +optional
	Data []byte `json:"data,omitempty"`

	// Removed says that the entry is removed.
	//
	// +optional
	Removed bool `json:"removed,omitempty"`
}
