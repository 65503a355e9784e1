package server

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
)

// providerSettle is how long a provider of a new leader has to have listed everything
// before a service or an endpoint that it does not list counts as gone. Another control
// plane that has just started may not know everything yet.
const providerSettle = 5 * time.Minute

// providing is what a replica knows of its own providers. It belongs to who holds
// [replicas.configuring].
type providing struct {
	complete map[string]time.Time // since when a provider has listed everything, by owner
	trusted  map[string]bool      // providers that settled in the epoch that this replica leads
	told     string               // what [discovery.Registry.Lead] was told last
}

// lister is a provider as a replica watches it.
type lister interface {
	// Complete reports whether the provider has listed everything.
	Complete() bool
	Outdated() []keep.Outdated
}

func (r *replicas) listers() map[string]lister {
	return map[string]lister{isobar.OwnerXDS: r.s.upstream, isobar.OwnerDNS: r.s.names, isobar.OwnerKubernetes: r.s.cluster}
}

// settle is how long providers have to have listed everything; see [providerSettle].
func (r *replicas) settle() time.Duration {
	if d := r.s.opts.ProviderSettle; d > 0 {
		return d
	}
	return providerSettle
}

// observeProviders notes which providers have listed everything. r.configuring is held.
func (r *replicas) observeProviders(now time.Time) {
	p := &r.providing
	if p.complete == nil {
		p.complete = map[string]time.Time{}
	}
	for owner, provider := range r.listers() {
		switch since := p.complete[owner]; {
		case !provider.Complete():
			delete(p.complete, owner)
		case since.IsZero():
			p.complete[owner] = now
		case now.Sub(since) >= r.settle() && p.trusted != nil:
			p.trusted[owner] = true // for as long as this replica leads: from here on the provider itself keeps what it can't see
		}
	}
}

// beginLeading forgets which providers were trusted. r.configuring is held.
func (r *replicas) beginLeading() {
	r.providing.trusted, r.providing.told = map[string]bool{}, ""
	r.observeProviders(time.Now())
	if err := r.lead(); err != nil { // what the plan has stays in force
		r.replica.Alarm("what the providers of this replica list is not in force: " + err.Error())
	}
}

// trust says how far the providers of this replica count, with a text that is the same
// for as long as that is. r.configuring is held.
func (r *replicas) trust() (*discovery.Leading, string) {
	p := &r.providing
	trusted, outdated := maps.Clone(p.trusted), map[string]bool{}
	for _, provider := range r.listers() {
		for _, o := range provider.Outdated() {
			outdated[o.Service] = true
		}
	}
	_, cluster := p.complete[isobar.OwnerKubernetes]
	l := &discovery.Leading{
		Adds: r.inForce != nil,
		Trust: func(owner, service string) discovery.Trust {
			// The list of a cluster is whole: a Pod that is not in it is gone, and another Pod may
			// have its address within seconds. The cache of an API server may be behind, so a whole
			// Service has to be missing for longer.
			return discovery.Trust{
				Endpoints: !outdated[service] && (trusted[owner] || owner == isobar.OwnerKubernetes && cluster),
				Services:  trusted[owner],
			}
		},
	}
	text := []string{"", "", strings.Join(slices.Sorted(maps.Keys(trusted)), ","), strings.Join(slices.Sorted(maps.Keys(outdated)), ",")}
	if l.Adds {
		text[0] = "adds"
	}
	if cluster {
		text[1] = "cluster"
	}
	return l, strings.Join(text, ";")
}

// lead tells the registry how far the providers of this replica count, if that has
// changed. r.configuring is held.
func (r *replicas) lead() error {
	l, told := r.trust()
	if told == r.providing.told {
		return nil
	}
	r.providing.told = told // an error would come again
	return r.s.registry.Lead(l)
}

// followProviders has the providers of a follower list what the file of this replica
// names, once the group agrees on it. r.configuring is held.
func (r *replicas) followProviders() error {
	r.providing.trusted = nil
	own := r.s.offered.Load()
	if own == r.provided || !r.agreed() {
		return nil
	}
	r.provided = own // an error would come again
	return r.s.configureProviders(own.config, r.s.registry.SetProviders)
}
