package member

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/providers"
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

// Offers takes what the configuration file of this replica lists.
type Offers struct {
	registry  *discovery.Registry
	providers *providers.Set
	newest    atomic.Pointer[offered]
	joined    bool // whether this replica takes part in its group
}

// NewOffers returns where the configuration file of a replica is offered to its group.
func NewOffers(registry *discovery.Registry, providers *providers.Set) *Offers {
	return &Offers{registry: registry, providers: providers}
}

// own returns what the file lists now.
func (o *Offers) own() *offered { return o.newest.Load() }

// Offer implements [reload.Group]: it takes what the configuration file lists. The group decides whether it is in
// force; before this replica takes part in a group, nothing else is.
func (o *Offers) Offer(c *config.Live, services []isobar.Service) error {
	digest, err := sharedDigest(c, services)
	if err != nil {
		return err
	}
	o.newest.Store(&offered{Configured: discovery.Configured{Services: services, Network: c.Network}, config: c, digest: digest})
	if o.joined {
		return nil
	}
	if _, err := o.registry.SetFile(services, c.Network); err != nil {
		return err
	}
	return o.providers.Configure(c, o.registry.SetProviders)
}

// sharedDigest names the part of a configuration that all replicas of a group have to
// have. Certificates and the access to a cluster are in the files of each replica.
func sharedDigest(c *config.Live, services []isobar.Service) (string, error) {
	from := c.Discovery
	if x := from.XDS; x != nil {
		local := *x
		local.TLS = nil
		from.XDS = &local
	}
	if k := from.Kubernetes; k != nil {
		local := *k
		local.Kubeconfig, local.Context = "", ""
		from.Kubernetes = &local
	}
	shared := struct {
		Services  []isobar.Service     `json:"services"`
		Latency   []isobar.LatencyRule `json:"latency"`
		Egress    []isobar.EgressRule  `json:"egress"`
		Providers *config.Discovery    `json:"providers,omitempty"`
	}{services, c.Network.Rules(), c.Network.Egress(), nil}
	if !from.None() {
		shared.Providers = &from
	}
	data, err := json.Marshal(shared) //nolint:musttag // a digest of it, and nothing reads it
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// groupConfiguration keeps the registry at the configuration that the group has in force,
// with what operators wrote.
type groupConfiguration struct {
	self      *self
	offers    *Offers
	peers     int // how many others the group has
	registry  *discovery.Registry
	providers *providers.Set
	operated  *Operated
	kept      State
	log       *slog.Logger

	mu        sync.Mutex // held while the configuration of the group is put in force
	assumed   uint64     // the epoch in which this replica took over; 0 = none
	inForce   *offered   // what of this replica's own file is in force; nil = another's
	provided  *offered   // by which the providers of this replica list endpoints; nil = the file of the start
	providing providing
	followed  followed
	before    *before // until this replica has the group's state; nil = it has

	// digestInForce names the configuration that this replica's plans are made with.
	digestInForce atomic.Pointer[string]
	accepted      atomic.Pointer[string] // digest of the configuration that an operator accepted
	takeovers     takeovers
}

// digest returns the digest of what this replica's own configuration lists.
func (c *groupConfiguration) digest() string { return c.offers.own().digest }

// agreed reports whether more than half of the group offer the configuration that this
// replica does.
func (c *groupConfiguration) agreed() bool {
	have, digest := 1, c.digest()
	for _, other := range c.self.Digests() {
		if other == digest {
			have++
		}
	}
	return have > (c.peers+1)/2
}

// accepts reports whether the configuration of this replica's file may be in force while
// it leads: the group agrees, or an operator accepted this very one.
func (c *groupConfiguration) accepts() bool {
	accepted := c.accepted.Load()
	return c.agreed() || accepted != nil && *accepted == c.digest()
}

// accept puts the configuration of this replica's file in force without a majority.
// The plan names it, so the next leader goes on with it, whatever its own file has.
func (c *groupConfiguration) accept(digest string) error {
	if err := c.self.explained(c.self.leading()); err != nil {
		return fmt.Errorf("%w: %w", isobar.ErrUnavailable, err)
	}
	if own := c.digest(); digest != own {
		for name, other := range c.self.Digests() {
			if other == digest {
				return fmt.Errorf("the file of %s, which leads, is %s: have %s lead (`isobar replicas step-down`), or copy its file to %s",
					c.self.name, own, name, c.self.name)
			}
		}
		return fmt.Errorf("no live replica has a configuration with the digest %q; the file of %s, which leads, is %s", digest, c.self.name, own)
	}
	c.accepted.Store(&digest)
	return nil
}

// digestOfPlan returns the digest of the configuration that the plan is made with.
func (c *groupConfiguration) digestOfPlan() string {
	if c.self.leading() == nil {
		if digest := c.digestInForce.Load(); digest != nil {
			return *digest
		}
		return ""
	}
	if o, _ := c.self.received(); o != nil {
		return o.digest
	}
	return ""
}

// followed says what of a plan the registry has.
type followed struct{ epoch, revision, sequence uint64 }

// follow keeps the registry at what the group has in force, until ctx ends: on a
// follower the leader's configuration and operators' state, on the leader its own
// configuration once the group agrees.
func (c *groupConfiguration) follow(ctx context.Context) {
	look := time.NewTicker(configureLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if err := c.configure(ctx); err != nil && ctx.Err() == nil {
			c.log.Error("could not take over the configuration in force in the group", "error", err)
		}
	}
}

func (c *groupConfiguration) configure(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.providing.observe(time.Now())
	switch role, epoch := c.self.Role(); {
	case role == group.Caretaker:
		return nil
	case role != group.Leading:
		if _, led := c.self.received(); led > 0 {
			c.takeovers.ledBy(led)
		}
		return errors.Join(c.followPlan(), c.followProviders())
	case epoch != c.assumed: // the loop has not taken over yet
		return nil
	}
	if !c.operated.isKnown() {
		if _, err := c.recall(ctx, nil); err != nil {
			return err
		}
	}
	own := c.offers.own()
	if c.inForce == own && c.provided == c.inForce || !c.accepts() {
		return c.providing.lead(c.inForce != nil)
	}
	c.inForce, c.provided = own, own // an error would come again
	leading, told := c.providing.standing(true)
	c.providing.lastStanding = told
	return c.providers.Configure(own.config, func(listed []discovery.Provided) error {
		_, err := c.registry.SetLeading(leading, own.Services, listed, own.Network)
		if err == nil {
			c.digestInForce.Store(&own.digest)
			c.self.EndAlarm(alarmProviders)
		}
		return err
	})
}

// followPlan takes over what the leader's plan has. c.mu is held.
func (c *groupConfiguration) followPlan() error {
	o, epoch := c.self.received()
	if o == nil {
		return nil // there is none, or it is this replica's own, of the time when it led
	}
	now := followed{epoch, o.Plan.Topology.Revision, o.operators.Sequence}
	if now == c.followed {
		return nil
	}
	file, api := o.configured()
	marks, err := discovery.DecodeShared(o.operators.Entries)
	if err != nil {
		return err
	}
	if c.before != nil {
		entries, err := o.entries()
		if err != nil {
			return err
		}
		c.settle(entries)
	}
	c.inForce = nil
	if err := c.registry.Follow(marks.WithServices(api), &file); err != nil {
		return err
	}
	c.followed = now
	c.self.EndAlarm(alarmProviders) // those of the leader count
	return nil
}

// followProviders has the providers of a follower list what the file of this replica
// names, once the group agrees on it. c.mu is held.
func (c *groupConfiguration) followProviders() error {
	c.providing.converged = nil
	own := c.offers.own()
	if own == c.provided || !c.agreed() {
		return nil
	}
	c.provided = own // an error would come again
	return c.providers.Configure(own.config, c.registry.SetProviders)
}

// configured divides the services of a plan into those of the configuration and those
// of the API.
func (o *opened) configured() (file discovery.Configured, api []isobar.Service) {
	t := o.Plan.Topology
	file.Network = t.Network
	listed := map[string]*discovery.Provided{}
	of := func(owner string) *discovery.Provided {
		if listed[owner] == nil {
			listed[owner] = &discovery.Provided{Owner: owner}
		}
		return listed[owner]
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
	for _, owner := range slices.Sorted(maps.Keys(listed)) {
		file.Providers = append(file.Providers, *listed[owner])
	}
	return file, api
}
