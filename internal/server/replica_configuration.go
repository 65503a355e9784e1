package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// configureLook is how often a replica looks which configuration is in force.
const configureLook = 100 * time.Millisecond

// offered is what the configuration file of this replica lists, and which providers it
// has. It is in force while this replica leads and more than half of the group offer the
// same.
type offered struct {
	discovery.Configured

	config *config.Live
	digest string
}

// offer takes what the configuration file lists. The group decides whether it is in
// force; before this replica takes part in a group, nothing else is.
func (s *Server) offer(c *config.Live, services []isobar.Service) error {
	digest, err := sharedDigest(c, services)
	if err != nil {
		return err
	}
	o := &offered{Configured: discovery.Configured{Services: services, Network: c.Network}, config: c, digest: digest}
	s.offered.Store(o)
	if s.replicas != nil {
		return nil
	}
	if _, err := s.registry.SetFile(services, c.Network); err != nil {
		return err
	}
	return s.configureProviders(c, s.registry.SetProviders)
}

// sharedDigest names the part of a configuration that all replicas of a group have to
// have. Certificates and the access to a cluster are in the files of each replica.
func sharedDigest(c *config.Live, services []isobar.Service) (string, error) {
	providers := c.Discovery
	if x := providers.XDS; x != nil {
		local := *x
		local.TLS = nil
		providers.XDS = &local
	}
	if k := providers.Kubernetes; k != nil {
		local := *k
		local.Kubeconfig, local.Context = "", ""
		providers.Kubernetes = &local
	}
	shared := struct {
		Services  []isobar.Service     `json:"services"`
		Latency   []isobar.LatencyRule `json:"latency"`
		Egress    []isobar.EgressRule  `json:"egress"`
		Providers *config.Discovery    `json:"providers,omitempty"`
	}{services, c.Network.Rules(), c.Network.Egress(), nil}
	if !providers.None() {
		shared.Providers = &providers
	}
	data, err := json.Marshal(shared) //nolint:musttag // a digest of it, and nothing reads it
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// digest returns the digest of what this replica's own configuration lists.
func (r *replicas) digest() string { return r.s.offered.Load().digest }

// agreed reports whether more than half of the group offer the configuration that this
// replica does.
func (r *replicas) agreed() bool {
	have, digest := 1, r.digest()
	for _, other := range r.replica.Digests() {
		if other == digest {
			have++
		}
	}
	return have > (len(r.s.fixed.Replicas.Peers)+1)/2
}

// accepts reports whether the configuration of this replica's file may be in force while
// it leads: the group agrees, or an operator accepted this very one.
func (r *replicas) accepts() bool {
	accepted := r.accepted.Load()
	return r.agreed() || accepted != nil && *accepted == r.digest()
}

// acceptConfig puts the configuration of this replica's file in force without a majority.
// The plan names it, so the next leader goes on with it, whatever its own file has.
func (r *replicas) acceptConfig(digest string) error {
	if err := r.explained(r.leading()); err != nil {
		return fmt.Errorf("%w: %w", isobar.ErrUnavailable, err)
	}
	if own := r.digest(); digest != own {
		for name, other := range r.replica.Digests() {
			if other == digest {
				return fmt.Errorf("the file of %s, which leads, is %s: have %s lead (`isobar replicas step-down`), or copy its file to %s",
					r.s.fixed.Replicas.Name, own, name, r.s.fixed.Replicas.Name)
			}
		}
		return fmt.Errorf("no live replica has a configuration with the digest %q; the file of %s, which leads, is %s", digest, r.s.fixed.Replicas.Name, own)
	}
	r.accepted.Store(&digest)
	return nil
}

// configInForce returns the digest of the configuration that the plan is made with.
func (r *replicas) configInForce() string {
	if r.leading() == nil {
		if digest := r.digestInForce.Load(); digest != nil {
			return *digest
		}
		return ""
	}
	if served, ok := r.replica.Served(); ok {
		if o, _ := served.Opened.(*opened); o != nil {
			return o.digest
		}
	}
	return ""
}

// groupTopology is what the group has in force; see [replicas.keepConfigured].
type groupTopology struct{ r *replicas }

// Changed implements [control.Topology].
func (g groupTopology) Changed() <-chan struct{} { return g.r.s.registry.Changed() }

// State implements [control.Topology].
func (g groupTopology) State() (*isobar.Topology, health.Table) { return g.r.s.registry.State() }

// followed says what of a plan the registry has.
type followed struct{ epoch, revision, sequence uint64 }

// keepConfigured keeps the registry at what the group has in force, until ctx ends: on a
// follower the leader's configuration and operators' state, on the leader its own
// configuration once the group agrees.
func (r *replicas) keepConfigured(ctx context.Context) {
	look := time.NewTicker(configureLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if err := r.configure(ctx); err != nil && ctx.Err() == nil {
			r.s.log.Error("could not take over the configuration in force in the group", "error", err)
		}
	}
}

func (r *replicas) configure(ctx context.Context) error {
	r.configuring.Lock()
	defer r.configuring.Unlock()
	r.observeProviders(time.Now())
	switch role, epoch := r.replica.Role(); {
	case role == group.Caretaker:
		return nil
	case role != group.Leading:
		return errors.Join(r.followPlan(), r.followProviders())
	case epoch != r.assumed: // the loop has not taken over yet
		return nil
	}
	if !r.s.operated.settled() {
		if _, err := r.recall(ctx, nil); err != nil {
			return err
		}
	}
	own := r.s.offered.Load()
	if r.inForce == own && r.provided == r.inForce || !r.accepts() {
		return r.lead()
	}
	r.inForce, r.provided = own, own // an error would come again
	leading, told := r.trust()
	r.providing.told = told
	return r.s.configureProviders(own.config, func(listed []discovery.Provided) error {
		_, err := r.s.registry.SetLeading(leading, own.Services, listed, own.Network)
		if err == nil {
			r.digestInForce.Store(&own.digest)
		}
		return err
	})
}

// followPlan takes over what the leader's plan has. r.configuring is held.
func (r *replicas) followPlan() error {
	served, ok := r.replica.Served()
	if !ok {
		return nil
	}
	o, _ := served.Opened.(*opened)
	if o == nil {
		return nil // its own, of the time when it led
	}
	now := followed{served.Claim.Epoch, o.Plan.Topology.Revision, o.operators.Sequence}
	if now == r.followed {
		return nil
	}
	file, api := o.configured()
	marks, err := discovery.DecodeShared(o.operators.Entries)
	if err != nil {
		return err
	}
	if r.alone > 0 {
		r.replica.Alarm(fmt.Sprintf("this replica had %d services of the admin API and health marks of its own when it joined the group, which has others: "+
			"a copy is in its state directory as %s", r.alone, singleKey))
		r.alone = 0
	}
	r.inForce = nil
	if err := r.s.registry.Follow(marks.WithServices(api), &file); err != nil {
		return err
	}
	r.followed = now
	return nil
}

// configured divides the services of a plan into those of the configuration and those
// of the API.
func (o *opened) configured() (file discovery.Configured, api []isobar.Service) {
	t := o.Plan.Topology
	file.Network = t.Network
	providers := map[string]*discovery.Provided{}
	of := func(owner string) *discovery.Provided {
		if providers[owner] == nil {
			providers[owner] = &discovery.Provided{Owner: owner}
		}
		return providers[owner]
	}
	for i := range t.Services {
		switch owner := t.Owners[t.Services[i].Name]; owner {
		case "":
			file.Services = append(file.Services, t.Services[i])
		case isobar.OwnerAPI:
			api = append(api, t.Services[i])
		default:
			p := of(owner)
			p.Listed = append(p.Listed, t.Services[i])
		}
	}
	for i := range t.Awaited {
		if owner := t.Owners[t.Awaited[i].Name]; owner != "" {
			p := of(owner)
			p.Awaited = append(p.Awaited, t.Awaited[i])
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(providers)) {
		file.Providers = append(file.Providers, *providers[owner])
	}
	return file, api
}
