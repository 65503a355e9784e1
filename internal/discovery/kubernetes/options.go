// Package kubernetes takes endpoints from a Kubernetes cluster: it watches
// Services, EndpointSlices and Nodes and hands the services that they amount to
// over to the registry. What counts of which endpoint is decided in package table.
//
// While the API server can't be reached, what it listed last stays in force, over
// restarts too. What a synchronised watch no longer lists is removed at once: the
// addresses of Pods are used again by others within seconds.
package kubernetes

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
)

// Config says which Services of which cluster to serve. It is not changed after
// it was handed over.
type Config struct {
	Cluster

	Places   table.Places
	Template isobar.Service            // of services without settings; no name, no localities
	Ceiling  float64                   // of localities without settings; 0 = isobar.DefaultCeiling
	Services map[string]isobar.Service // settings by name; their localities have no endpoints
	// Lease elects the leader of a group of replicas, in the namespace of the service
	// account; empty = none. Only an [Analysis] needs it.
	Lease string
}

// Cluster says where the API server is, and what of it to watch.
type Cluster struct {
	Kubeconfig string   // file; empty = the service account of the Pod that this runs in
	Context    string   // of the file; empty = its current one
	Namespaces []string // sorted; empty = all
	Selector   string   // label selector of Services; empty = all
	Policies   bool     // LoadBalancingPolicies count, and select Services, too
}

// Registry is where the services go.
type Registry interface {
	// ChangeListed replaces or adds some services and removes others, as one change.
	ChangeListed(put []isobar.Service, remove []string) error
	// Get returns the object in force under a name, or isobar.ErrNotFound.
	Get(name string) (isobar.Object, error)
}

// Options of [Open]. Registry and Store are required.
type Options struct {
	Registry   Registry
	Store      keep.Store
	Log        *slog.Logger          // nil = none
	Registerer prometheus.Registerer // nil = no metrics
	// MayWrite reports whether this process writes the statuses of policies: one of a
	// group of replicas does. nil = it does.
	MayWrite func() bool
	// Fullest returns the locality of a service that uses most of its capacity, and
	// which share of it; nil = not known.
	Fullest func(service string) (where isobar.Locality, used float64, ok bool)
}

func (o Options) complete() (Options, error) {
	if o.Registry == nil || o.Store == nil {
		return o, errors.New("kubernetes: Registry and Store must be given")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Permission is one that the service account needs.
type Permission struct {
	Group, Resource string
	Verbs           []string
	Name            string // of the only object that is needed; empty = any
	// Optional resources are those that can be done without: the configuration has
	// the regions of zones then.
	Optional bool
}

// leasePermissions lists what a group of replicas needs in its namespace beside
// [Permissions].
func leasePermissions(lease string) []Permission {
	return []Permission{
		{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"create"}},
		{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"get", "update"}, Name: lease},
		{Group: v1alpha1.GroupVersion.Group, Resource: v1alpha1.OperatorStates, Verbs: []string{"get", "list", "create", "delete"}},
	}
}

// Permissions lists all that a provider needs, with policies or without. Nodes belong to
// no namespace.
func Permissions(policies bool) []Permission {
	read := []string{"list", "watch"}
	out := []Permission{
		{Resource: "services", Verbs: read}, {Group: "discovery.k8s.io", Resource: "endpointslices", Verbs: read},
		{Resource: "nodes", Verbs: read, Optional: true},
	}
	if policies {
		out = append(out, Permission{Group: v1alpha1.GroupVersion.Group, Resource: v1alpha1.Policies, Verbs: read},
			Permission{Group: v1alpha1.GroupVersion.Group, Resource: v1alpha1.Policies + "/status", Verbs: []string{"patch"}})
	}
	return out
}

const (
	storeKey = "kubernetes-source"
	// savedFormat is the version of saved; a newer one is refused.
	savedFormat = 1
)

// saved is what is known of the cluster.
type saved struct {
	Format   int            `json:"format"`
	Services []savedService `json:"services"` // sorted by name
	// Nodes says where Nodes are, for clients that say only on which Node they run.
	Nodes map[string]isobar.Locality `json:"nodes,omitempty"`
}

type savedService struct {
	Name       string                   `json:"name"`
	At         time.Time                `json:"at,omitzero"`
	Localities []isobar.ServiceLocality `json:"localities"` // Locality and Endpoints alone
	Policy     *savedPolicy             `json:"policy,omitempty"`
}

// savedPolicy is the policy that is in force for a service.
type savedPolicy struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Settings  table.Settings `json:"settings"`
}
