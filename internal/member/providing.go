package member

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/plan"
)

// providerGrace is how long a provider of a new leader has to have listed everything
// before a service or an endpoint that it does not list counts as removed. Another control
// plane that has just started may not have the full list yet.
const providerGrace = 5 * time.Minute

// providing is the state of a replica's own providers: which of their lists are complete.
// [groupConfiguration.mu] guards it.
type providing struct {
	registry  *discovery.Registry
	providers lister
	grace     time.Duration // see [providerGrace]

	complete     map[string]time.Time // since when a provider has listed everything, by owner
	converged    map[string]bool      // providers that were complete for the grace period, in the epoch that this replica leads
	lastStanding string               // what [discovery.Registry.Lead] was told last
}

// lister is what a replica watches of its providers.
type lister interface {
	// Complete reports, by owner, whether the provider has listed everything.
	Complete() map[string]bool
	// Outdated lists the services whose endpoints their provider does not confirm.
	Outdated(now time.Time) []plan.InputAge
}

// newProviding watches the providers of this replica; after is Options.ProviderGrace.
func newProviding(registry *discovery.Registry, providers lister, after time.Duration) providing {
	if after <= 0 {
		after = providerGrace
	}
	return providing{registry: registry, providers: providers, grace: after}
}

// observe notes which providers have listed everything.
func (p *providing) observe(now time.Time) {
	if p.complete == nil {
		p.complete = map[string]time.Time{}
	}
	for owner, complete := range p.providers.Complete() {
		switch since := p.complete[owner]; {
		case !complete:
			delete(p.complete, owner)
		case since.IsZero():
			p.complete[owner] = now
		case now.Sub(since) >= p.grace && p.converged != nil:
			p.converged[owner] = true // for as long as this replica leads: from here on the provider itself keeps what it can't see
		}
	}
}

// begin discards which providers have converged. adds is that of [providing.standing].
func (p *providing) begin(adds bool) error {
	p.converged, p.lastStanding = map[string]bool{}, ""
	p.observe(time.Now())
	return p.lead(adds)
}

// standing returns how far the providers of this replica count, and a text that changes
// whenever that does. adds says whether they may add services: the configuration of this
// replica is in force.
func (p *providing) standing(adds bool) (*discovery.Leading, string) {
	converged, outdated := maps.Clone(p.converged), map[string]bool{}
	for _, o := range p.providers.Outdated(time.Now()) {
		outdated[o.Service] = true
	}
	_, cluster := p.complete[isobar.OwnerKubernetes]
	l := &discovery.Leading{
		Adds: adds,
		Complete: func(owner, service string) discovery.Complete {
			// The list of a cluster is whole: a Pod that is not in it is gone, and another Pod may
			// have its address within seconds. The cache of an API server may be behind, so a whole
			// Service has to be missing for longer.
			return discovery.Complete{
				Endpoints: !outdated[service] && (converged[owner] || owner == isobar.OwnerKubernetes && cluster),
				Services:  converged[owner],
			}
		},
	}
	text := []string{"", "", strings.Join(slices.Sorted(maps.Keys(converged)), ","), strings.Join(slices.Sorted(maps.Keys(outdated)), ",")}
	if l.Adds {
		text[0] = "adds"
	}
	if cluster {
		text[1] = "cluster"
	}
	return l, strings.Join(text, ";")
}

// lead passes the standing of this replica's providers to the registry, if it has changed.
func (p *providing) lead(adds bool) error {
	l, lastStanding := p.standing(adds)
	if lastStanding == p.lastStanding {
		return nil
	}
	p.lastStanding = lastStanding // an error would come again
	return p.registry.Lead(l)
}
