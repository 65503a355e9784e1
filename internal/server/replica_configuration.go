package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// digests caches the digest of the configuration that this replica has.
type digests struct {
	mu       sync.Mutex
	topology *isobar.Topology
	digest   string
}

// digest returns the digest of the services and the network that this replica's own
// configuration lists.
func (r *replicas) digest() string {
	topology, _ := r.s.registry.State()
	d := &r.digests
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.topology == topology {
		return d.digest
	}
	data, err := json.Marshal(struct {
		Services []isobar.Service     `json:"services"`
		Latency  []isobar.LatencyRule `json:"latency"`
		Egress   []isobar.EgressRule  `json:"egress"`
	}{topology.Services, topology.Network.Rules(), topology.Network.Egress()})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	d.topology, d.digest = topology, hex.EncodeToString(sum[:8])
	return d.digest
}

// groupTopology is the configuration that the group shares.
type groupTopology struct{ r *replicas }

// Changed implements [control.Topology].
func (g groupTopology) Changed() <-chan struct{} { return g.r.s.registry.Changed() }

// State implements [control.Topology]: the shared configuration. That of this
// replica's own file takes effect once more than half of the group have the same, or
// while the group has none.
func (g groupTopology) State() (*isobar.Topology, health.Table) {
	r := g.r
	own, operators := r.s.registry.State()
	current := r.s.loop.Current()
	if current == nil {
		if base := r.Base(); base != nil {
			current = base.Plan
		}
	}
	if current == nil || r.agreed() {
		return own, operators
	}
	return current.Topology, operators
}

// agreed reports whether more than half of the group have this replica's
// configuration.
func (r *replicas) agreed() bool {
	have, digest := 1, r.digest()
	for _, other := range r.replica.Digests() {
		if other == digest {
			have++
		}
	}
	return have > (len(r.s.cfg.Replicas.Peers)+1)/2
}
