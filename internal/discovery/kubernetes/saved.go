package kubernetes

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
)

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
