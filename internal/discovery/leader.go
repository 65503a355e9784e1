package discovery

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// Every replica of a group runs the providers. On a follower the services that the
// leader's plan has are in force, and what its own providers list is kept beside. A
// leader goes on from the services that are in force, and its own providers change
// them as far as [Leading] says.

// Leading says how far the providers of a leader count.
type Leading struct {
	// Adds says that this replica's configuration is the one of the group: its settings
	// and its new services count. Otherwise its providers may add endpoints, and no more.
	Adds bool
	// Complete returns how complete the list of an owner's provider is for a service.
	Complete func(owner, service string) Complete
}

// Complete says which absences in a provider's list count. An incomplete list may add
// endpoints and removes none.
type Complete struct {
	Endpoints bool // an endpoint that is not listed was removed
	Services  bool // a service that is not listed was removed
}

// SetProviders takes what the providers of this replica list. It is in force as far as
// [Registry.Lead] says.
func (r *Registry) SetProviders(providers []Provided) error {
	providers = cloneProvided(providers)
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.now.setOwn(providers)
	if err != nil {
		return err
	}
	return r.adopt(next)
}

// Lead says how far the providers of this replica count, until the next [Registry.Follow]
// with a configuration. nil = this replica does not lead.
func (r *Registry) Lead(l *Leading) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leading = l
	return r.adopt(r.now)
}

// changeOwn is ChangeListed of a replica of a group. r.mu is held.
func (r *Registry) changeOwn(owner string, put []isobar.Service, remove []string) error {
	own, err := contents{listed: r.now.own, awaited: r.now.ownAwaited}.changeListed(owner, put, remove)
	if err != nil {
		return err
	}
	next := r.now
	next.own = own.listed
	if r.leading == nil { // the provider shall know now what would be refused once this replica leads
		led := next
		led.listed, led.awaited = next.own, next.ownAwaited
		if _, _, err := r.checked(led); err != nil {
			return err
		}
	}
	return r.adopt(next)
}

// adopt puts in force what follows from what the providers of this replica list. r.mu is
// held.
func (r *Registry) adopt(next contents) error {
	own, awaited := next.own, next.ownAwaited
	if r.leading != nil {
		next = next.led(r.leading)
	}
	next, changed, err := r.checked(next)
	if err != nil {
		return err
	}
	r.now.own, r.now.ownAwaited = own, awaited
	if !changed {
		return nil
	}
	r.shareRemovals(next)
	if next.revision-r.savedRevision >= restartGap/2 || !next.health.Equal(r.now.health) {
		r.trySave(next)
	}
	r.publish(next)
	return nil
}

func (c contents) setOwn(providers []Provided) (contents, error) {
	set, err := contents{}.setListed(providers)
	c.own, c.ownAwaited = set.listed, set.awaited
	return c, err
}

// led returns what is in force on a leader.
func (c contents) led(l *Leading) contents {
	listed := make(map[string]*isobar.Object, max(len(c.listed), len(c.own)))
	for name, have := range c.listed {
		own, lists := c.own[name]
		lists = lists && own.Owner == have.Owner
		trust := l.Complete(have.Owner, name)
		switch {
		case lists:
			listed[name] = joinedObject(have, own, l.Adds, trust.Endpoints)
		case !l.Adds || !trust.Services:
			listed[name] = have
		}
	}
	if l.Adds {
		for name, own := range c.own {
			if _, there := listed[name]; !there {
				listed[name] = own
			}
		}
		c.awaited = c.ownAwaited
	}
	c.listed = listed
	return c
}

// joinedObject joins a service in force with what a provider lists of it.
func joinedObject(have, own *isobar.Object, settings, trusted bool) *isobar.Object {
	if settings && trusted {
		return own
	}
	out, other := *have, own
	if settings {
		out, other = *own, have
	}
	out.Service.Localities = slices.Clone(out.Service.Localities)
	place := map[string]bool{}
	for i := range out.Service.Localities {
		for _, e := range out.Service.Localities[i].Endpoints {
			place[e.Address] = true
		}
	}
	for i := range other.Service.Localities {
		addEndpoints(&out.Service, &other.Service.Localities[i], place)
	}
	out.Service = cloneService(out.Service)
	return &out
}

// addEndpoints adds the endpoints of a locality that a service does not have yet. The
// locality's settings count where the service has no such locality.
func addEndpoints(to *isobar.Service, from *isobar.ServiceLocality, known map[string]bool) {
	missing := slices.DeleteFunc(slices.Clone(from.Endpoints), func(e isobar.Endpoint) bool { return known[e.Address] })
	if len(missing) == 0 {
		return
	}
	for _, e := range missing {
		known[e.Address] = true
	}
	i := slices.IndexFunc(to.Localities, func(l isobar.ServiceLocality) bool { return l.Locality == from.Locality })
	if i < 0 {
		l := *from
		l.Endpoints = missing
		to.Localities = append(to.Localities, l)
		return
	}
	l := &to.Localities[i]
	l.Endpoints = append(slices.Clone(l.Endpoints), missing...)
}
