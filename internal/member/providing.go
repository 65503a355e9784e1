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

// providerSettle is how long a provider of a new leader has to have listed everything
// before a service or an endpoint that it does not list counts as gone. Another control
// plane that has just started may not know everything yet.
const providerSettle = 5 * time.Minute

// providing is what a replica knows of its own providers, and how far they count. It belongs
// to who holds [groupConfiguration.mu].
type providing struct {
	registry  *discovery.Registry
	providers lister
	settle    time.Duration // how long providers have to have listed everything; see [providerSettle]

	complete map[string]time.Time // since when a provider has listed everything, by owner
	trusted  map[string]bool      // providers that settled in the epoch that this replica leads
	told     string               // what [discovery.Registry.Lead] was told last
}

// lister is what a replica watches of its providers.
type lister interface {
	// Complete reports, by owner, whether the provider has listed everything.
	Complete() map[string]bool
	// Outdated lists the services whose endpoints their provider does not confirm.
	Outdated(now time.Time) []plan.InputAge
}

// newProviding watches the providers of this replica; after is Options.ProviderSettle.
func newProviding(registry *discovery.Registry, providers lister, after time.Duration) providing {
	if after <= 0 {
		after = providerSettle
	}
	return providing{registry: registry, providers: providers, settle: after}
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
		case now.Sub(since) >= p.settle && p.trusted != nil:
			p.trusted[owner] = true // for as long as this replica leads: from here on the provider itself keeps what it can't see
		}
	}
}

// begin forgets which providers were trusted. adds is that of [providing.trust].
func (p *providing) begin(adds bool) error {
	p.trusted, p.told = map[string]bool{}, ""
	p.observe(time.Now())
	return p.lead(adds)
}

// trust says how far the providers of this replica count, with a text that is the same
// for as long as that is. adds says whether they may add services: the configuration of this
// replica is in force.
func (p *providing) trust(adds bool) (*discovery.Leading, string) {
	trusted, outdated := maps.Clone(p.trusted), map[string]bool{}
	for _, o := range p.providers.Outdated(time.Now()) {
		outdated[o.Service] = true
	}
	_, cluster := p.complete[isobar.OwnerKubernetes]
	l := &discovery.Leading{
		Adds: adds,
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
// changed.
func (p *providing) lead(adds bool) error {
	l, told := p.trust(adds)
	if told == p.told {
		return nil
	}
	p.told = told // an error would come again
	return p.registry.Lead(l)
}
