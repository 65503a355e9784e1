package reload

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
)

// Configured are the services of the configuration as they are kept, for what is removed
// while the process is down.
type Configured struct {
	Services []isobar.Service     `json:"services"`                // sorted by name
	Listed   []string             `json:"listed,omitempty"`        // of these, by another control plane or DNS; sorted
	Held     map[string]SavedHold `json:"held_services,omitempty"` // of these, those that are held
	Removed  []SavedRemoval       `json:"removed,omitempty"`       // recently
	Pending  bool                 `json:"pending,omitempty"`       // a change was held, and none has been taken since
}

// SavedHold is a service that is held: the demand of the saved plan is up to half a minute
// old, and who reports no load is not in it.
type SavedHold struct {
	Rate      float64   `json:"rate"` // requests/s
	Silent    int       `json:"silent,omitempty"`
	Since     time.Time `json:"since"`
	Confirmed bool      `json:"confirmed,omitempty"` // only an operator removes it
	Listed    bool      `json:"listed,omitempty"`    // another control plane or DNS listed it
}

// SavedRemoval is what a change removed.
type SavedRemoval struct {
	At       time.Time    `json:"at"`
	Services []string     `json:"services,omitempty"`
	Places   []SavedPlace `json:"places,omitempty"`

	Endpoints map[string]int `json:"endpoints,omitempty"` // that services had before which lost some
}

// SavedPlace is a locality of a service.
type SavedPlace struct {
	Service  string          `json:"service"`
	Locality isobar.Locality `json:"locality"`
}

// Encode is [json.Marshal] of what is kept, service by service: a million endpoints take 35 MB,
// and json.Marshal would take, and keep for a while, a buffer of up to twice of that.
func (c *Configured) Encode() ([]byte, error) {
	rest := *c
	rest.Services = []isobar.Service{}
	frame, err := json.Marshal(rest)
	if err != nil {
		return nil, err
	}
	pieces := make([][]byte, len(c.Services))
	size := len(frame) + len(pieces)
	for i := range c.Services {
		if pieces[i], err = json.Marshal(&c.Services[i]); err != nil {
			return nil, err
		}
		size += len(pieces[i])
	}
	const head = `{"services":[`
	out := append(make([]byte, 0, size), head...)
	for i, p := range pieces {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, p...)
	}
	return append(out, bytes.TrimPrefix(frame, []byte(head))...), nil
}

// saveConfigured keeps what the configuration has put in force, but for what a
// Kubernetes cluster lists, which changes without it. c.held.mu is held.
func (c *Configuration) saveConfigured() {
	if c.path == "" {
		return
	}
	saved := Configured{Services: []isobar.Service{}, Removed: c.held.recent.saved(), Pending: c.held.pending}
	for _, o := range c.registry.Objects() {
		if o.Owner == isobar.OwnerAPI || o.Owner == isobar.OwnerKubernetes {
			continue
		}
		saved.Services = append(saved.Services, o.Service)
		if o.Owner != isobar.OwnerFile {
			saved.Listed = append(saved.Listed, o.Service.Name)
		}
	}
	for name, h := range c.held.services {
		if saved.Held == nil {
			saved.Held = map[string]SavedHold{}
		}
		saved.Held[name] = SavedHold{Rate: h.rate, Silent: h.silent, Since: h.since, Confirmed: h.confirmed, Listed: h.listed}
	}
	if err := c.state.SaveConfigured(saved); err != nil {
		c.log.Error("could not save the configured services; services removed while the process is down are not held", "error", err)
	}
}

// holdAtStart is hold for what was removed while the process was down. Where that is so much
// that an operator has to confirm it, the previous services stay in the settings in force,
// and all other settings of the file are in force.
func (c *Configuration) holdAtStart() (map[string]*heldService, *heldChangeError) {
	out := map[string]*heldService{}
	if c.path == "" {
		return out, nil
	}
	saved, err := c.state.LoadConfigured()
	if err != nil {
		c.log.Error("could not read the previous services; removed services are not held", "error", err)
		return out, nil
	}
	if saved == nil {
		return out, nil // nothing is known of before
	}
	c.held.recent, c.held.pending = recentOf(saved.Removed, time.Now()), saved.Pending
	listed := map[string]bool{}
	for _, name := range saved.Listed {
		listed[name] = true
	}
	before, others := c.before(saved, listed)
	next := c.settings.Current()
	services := names(before)
	for i := range others {
		if listed[others[i].Name] {
			services[others[i].Name] = true
		}
	}
	var waiting *heldChangeError
	if what := c.removalFrom(contentsOf(before, services), before, next, time.Now()); what != "" {
		waiting = &heldChangeError{digest: digestOf(c.data), what: what}
		next = c.keepPrevious(before, next)
	}
	rates, stay := c.savedRates(saved), c.served(next)
	for _, spec := range append(others, before.Services...) {
		was, held := saved.Held[spec.Name]
		switch {
		case stay[spec.Name] || !hasEndpoints(&spec):
		case removesAll(next) && (removesListed(next) || !was.Listed && !listed[spec.Name]):
		case held:
			out[spec.Name] = &heldService{
				spec: spec, rate: was.Rate, silent: was.Silent, since: was.Since, listed: was.Listed, confirmed: was.Confirmed || waiting != nil,
			}
		case rates[spec.Name] > heldRate || waiting != nil:
			out[spec.Name] = &heldService{
				spec: spec, rate: rates[spec.Name], since: time.Now(), listed: listed[spec.Name], confirmed: waiting != nil,
			}
		}
	}
	return out, waiting
}

// before is the configuration that was in force before the start, as far as it is known, and
// apart from it the services that others listed, and those that were held. It is without what
// the API has by now.
func (c *Configuration) before(saved *Configured, listed map[string]bool) (own *config.Live, others []isobar.Service) {
	own = &config.Live{}
	for i := range saved.Services {
		spec := saved.Services[i]
		if _, err := c.registry.Get(spec.Name); err == nil {
			continue
		}
		if _, held := saved.Held[spec.Name]; held || listed[spec.Name] {
			others = append(others, spec)
		} else {
			own.Services = append(own.Services, spec)
		}
	}
	return own, others
}

// keepPrevious puts the settings of a file in force with the services of its own that were in
// force before.
func (c *Configuration) keepPrevious(before, next *config.Live) *config.Live {
	kept := *next
	kept.Services = before.Services
	c.settings.live.Store(&kept)
	return &kept
}

// savedRates are what clients sent to services before the start, requests/s.
func (c *Configuration) savedRates(saved *Configured) map[string]float64 {
	rates := map[string]float64{}
	if demand, err := c.state.LoadPlan(); demand != nil && err == nil { // a plan that can't be read is told elsewhere
		for _, d := range demand.Demand() {
			rates[d.Service] += d.Rate
		}
	}
	for name, h := range saved.Held {
		rates[name] = max(rates[name], h.Rate)
	}
	return rates
}

func (r *recentRemovals) saved() []SavedRemoval {
	var out []SavedRemoval
	for _, x := range *r {
		s := SavedRemoval{At: x.at, Services: slices.Sorted(maps.Keys(x.services)), Endpoints: x.endpoints}
		for at := range x.places {
			s.Places = append(s.Places, SavedPlace{Service: at.service, Locality: at.locality})
		}
		out = append(out, s)
	}
	return out
}

// recentOf reads what was saved; what is dated later than now was removed now.
func recentOf(saved []SavedRemoval, now time.Time) recentRemovals {
	var out recentRemovals
	for _, s := range saved {
		if s.At.After(now) {
			s.At = now
		}
		x := removedAt{at: s.At, services: map[string]bool{}, places: map[place]bool{}, endpoints: s.Endpoints}
		for _, name := range s.Services {
			x.services[name] = true
		}
		for _, p := range s.Places {
			x.places[place{p.Service, p.Locality}] = true
		}
		out = append(out, x)
	}
	return out
}

// share gives up the services of a configuration in force for those of the registry, which has
// a copy of each: a million endpoints take 80 MB. A replica of a group keeps its own: the registry
// has what the leader's file says.
func (c *Configuration) share(held map[string]*heldService) {
	if c.group != nil {
		return
	}
	objects := map[string]*isobar.Service{}
	for _, o := range c.registry.Objects() {
		if o.Owner == isobar.OwnerFile && held[o.Service.Name] == nil {
			objects[o.Service.Name] = &o.Service
		}
	}
	shared := *c.settings.Current()
	shared.Services = slices.Clone(shared.Services)
	for i := range shared.Services {
		if o := objects[shared.Services[i].Name]; o != nil {
			shared.Services[i] = *o
		}
	}
	c.settings.live.Store(&shared)
}
