package discovery

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

// Provided is what one provider of endpoints has: another control plane, DNS, or a
// Kubernetes cluster.
type Provided struct {
	Owner  string // isobar.OwnerXDS, isobar.OwnerDNS or isobar.OwnerKubernetes
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
//
// settle, if not nil, is called once nothing can refuse the change any more, and before
// [Registry.State] shows it: what settle puts in force is in force with the services.
func (r *Registry) SetConfigured(file []isobar.Service, providers []Provided, network *isobar.Network, settle func()) (conflicts []string, err error) {
	file, providers = cloneServices(file), cloneProvided(providers)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.setLocked(settle, func(c contents) (contents, error) {
		c, err := c.setFile(file, network)
		if err != nil {
			return c, err
		}
		return c.setListed(providers)
	})
}

// SetLeading is [Registry.SetConfigured] for the leader of a group: what its providers
// list is in force as far as l says.
func (r *Registry) SetLeading(l *Leading, file []isobar.Service, providers []Provided, network *isobar.Network) (conflicts []string, err error) {
	file, providers = cloneServices(file), cloneProvided(providers)
	r.mu.Lock()
	defer r.mu.Unlock()
	conflicts, err = r.setLocked(nil, func(c contents) (contents, error) {
		c, err := c.setFile(file, network)
		if err != nil {
			return c, err
		}
		if c, err = c.setOwn(providers); err != nil {
			return c, err
		}
		return c.led(l), nil
	})
	if err == nil {
		r.leading = l
	}
	return conflicts, err
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

// PutListed is [Registry.ChangeListed] for the provider's owner, with nothing to
// remove.
func (p Provider) PutListed(services []isobar.Service) error { return p.ChangeListed(services, nil) }

// ChangeListed is [Registry.ChangeListed] for the provider's owner.
func (p Provider) ChangeListed(put []isobar.Service, remove []string) error {
	return p.registry.ChangeListed(p.owner, put, remove)
}

// ChangeListed replaces some of the services of a provider, or adds to them, and
// removes others, in one change; the rest stays. The provider keeps them over
// restarts.
func (r *Registry) ChangeListed(owner string, put []isobar.Service, remove []string) error {
	put = cloneServices(put)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opts.Shared != nil {
		return r.changeOwn(owner, put, remove)
	}
	next, err := r.now.changeListed(owner, put, remove)
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
	return r.setLocked(nil, edit)
}

// setLocked is set where r.mu is held. settle is that of SetConfigured.
func (r *Registry) setLocked(settle func(), edit func(contents) (contents, error)) (conflicts []string, err error) {
	next, err := edit(r.now)
	if err != nil {
		return nil, err
	}
	own, awaited := next.own, next.ownAwaited
	next, changed, err := r.checked(next)
	if err != nil {
		return nil, err
	}
	r.now.own, r.now.ownAwaited = own, awaited
	conflicts = next.conflicts()
	for _, c := range conflicts {
		r.log.Warn("a configured service is not in force", "reason", c)
	}
	if changed {
		if r.opts.Shared != nil {
			r.shareRemovals(next)
		}
		r.trySave(next)
	}
	if settle != nil {
		settle()
	}
	if changed {
		r.publish(next)
	}
	return conflicts, nil
}

func (r *Registry) trySave(c contents) {
	if err := r.save(context.Background(), c); err != nil {
		r.log.Error("could not save the configuration revision", "error", err)
	}
}
