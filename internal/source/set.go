package source

import (
	"context"

	"github.com/isobar-xds/isobar"
)

// SetFile replaces the services of the file and the network. Where the API
// already owns a name, it keeps it: the file's service waits until the API's
// is deleted, and a conflict tells so. With an error nothing has changed.
//
// The file itself is durable, so a store that can't be written does not keep
// its content from taking effect.
func (r *Registry) SetFile(services []isobar.Service, network *isobar.Network) (conflicts []string, err error) {
	services = cloneServices(services)
	return r.set(func(c contents) (contents, error) { return c.setFile(services, network) })
}

// Provided is what one provider of endpoints has: another control plane, or DNS.
type Provided struct {
	Owner  string // isobar.OwnerXDS or isobar.OwnerDNS
	Listed []isobar.Service
	// Awaited are services whose endpoints the provider does not know yet, without
	// endpoints: what operators said of those is kept for them, and clients are
	// not told that the services are gone.
	Awaited []isobar.Service
}

func cloneProvided(providers []Provided) []Provided {
	out := make([]Provided, len(providers))
	for i := range providers {
		p := &providers[i]
		out[i] = Provided{Owner: p.Owner, Listed: cloneServices(p.Listed), Awaited: cloneServices(p.Awaited)}
	}
	return out
}

// SetConfigured replaces the services of the file, those of all providers, and
// the network, in one change: a service that moves between them is never
// missing. Where the API owns a name it keeps it, and the file comes before the
// providers; conflicts tell so. A name may belong to one provider only.
func (r *Registry) SetConfigured(file []isobar.Service, providers []Provided, network *isobar.Network) (conflicts []string, err error) {
	file, providers = cloneServices(file), cloneProvided(providers)
	return r.set(func(c contents) (contents, error) {
		c, err := c.setFile(file, network)
		if err != nil {
			return c, err
		}
		return c.setListed(providers)
	})
}

// Provider is the registry as one provider of endpoints sees it.
type Provider struct {
	registry *Registry
	owner    string
}

// Provider gives the registry to the provider whose services have this owner.
func (r *Registry) Provider(owner string) Provider { return Provider{r, owner} }

// Get is [Registry.Get].
func (p Provider) Get(name string) (isobar.Object, error) { return p.registry.Get(name) }

// PutListed is [Registry.PutListed] for the provider's owner.
func (p Provider) PutListed(services []isobar.Service) error {
	return p.registry.PutListed(p.owner, services)
}

// PutListed replaces some of the services of a provider, or adds to them; the
// others stay. The provider keeps them over restarts.
func (r *Registry) PutListed(owner string, services []isobar.Service) error {
	services = cloneServices(services)
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.now.putListed(owner, services)
	if err != nil {
		return err
	}
	next, changed, err := r.checked(next)
	if err != nil || !changed {
		return err
	}
	// Nothing of it is saved here but its revision and, with an endpoint that
	// goes, what operators said of it. A restart skips restartGap revisions, so
	// not every one needs a write.
	if next.revision-r.savedRevision >= restartGap/2 || !next.health.Equal(r.now.health) {
		r.trySave(next)
	}
	r.publish(next)
	return nil
}

// set makes a change whose content is durable elsewhere.
func (r *Registry) set(edit func(contents) (contents, error)) (conflicts []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := edit(r.now)
	if err != nil {
		return nil, err
	}
	next, changed, err := r.checked(next)
	if err != nil {
		return nil, err
	}
	conflicts = next.conflicts()
	for _, c := range conflicts {
		r.log.Warn("a configured service is not in force", "reason", c)
	}
	if changed {
		r.trySave(next)
		r.publish(next)
	}
	return conflicts, nil
}

func (r *Registry) trySave(c contents) {
	if err := r.save(context.Background(), c); err != nil {
		r.log.Error("revision of the configuration could not be saved", "error", err)
	}
}
