package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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

// load fills the entries with what was saved.
func (p *Provider) load(ctx context.Context) error {
	data, err := p.saver.Load(ctx)
	if err != nil {
		return fmt.Errorf("loading what Kubernetes listed: %w", err)
	}
	if data == nil {
		return nil
	}
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("what Kubernetes listed can't be read: %w", err)
	}
	if s.Format > savedFormat {
		return fmt.Errorf("what Kubernetes listed was saved by a newer version (format %d, this one reads up to %d)", s.Format, savedFormat)
	}
	p.places = s.Nodes
	for _, from := range s.Services {
		var policy *table.Applied
		if f := from.Policy; f != nil {
			policy = &table.Applied{Key: table.Key{Namespace: f.Namespace, Name: f.Name}, Settings: f.Settings}
		}
		p.entries[from.Name] = known(from.Name, from.Localities, policy, from.At)
	}
	return nil
}

// encode gives what is to be saved.
func (p *Provider) encode() (data []byte, empty bool, err error) {
	s := saved{Format: savedFormat, Services: []savedService{}}
	p.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(p.entries)) {
		if e := p.entries[name]; e.taken { // what it holds is never written again, so it is shared
			one := savedService{Name: name, At: e.at, Localities: e.inForce}
			if e.policy != nil {
				one.Policy = &savedPolicy{Namespace: e.policy.Namespace, Name: e.policy.Name, Settings: e.policy.Settings}
			}
			s.Services = append(s.Services, one)
		}
	}
	s.Nodes = p.placesOfNodes()
	p.mu.Unlock()
	data, err = json.Marshal(s)
	return data, len(s.Services) == 0 && len(s.Nodes) == 0, err
}
