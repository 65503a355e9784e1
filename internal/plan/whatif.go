package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
)

// WhatIf is a set of assumed changes, all at once.
type WhatIf struct {
	// Lose are regions, zones or localities whose endpoints are lost. Clients there stay, and send
	// elsewhere.
	Lose  []isobar.Locality `json:"lose,omitempty"`
	Drain []Drain           `json:"drain,omitempty"`
	// Restore removes the health that operators set for endpoints.
	Restore  []Drain   `json:"restore,omitempty"`
	Demand   []Growth  `json:"demand,omitempty"`
	Capacity []Scaling `json:"capacity,omitempty"`
	// Rollback returns to earlier weights; it excludes all other changes.
	Rollback *Return `json:"rollback,omitempty"`
}

// Scaling multiplies the declared capacity (max_rate and concurrency) of localities of a
// service; several that apply multiply each other.
type Scaling struct {
	Service  string          `json:"service"`
	Locality isobar.Locality `json:"locality,omitzero"` // region, zone or locality; zero: all
	Factor   float64         `json:"factor"`            // 0.5 is half; above 0, to MaxGrowth
}

// Return names the weights that a rollback returns to.
type Return struct {
	Service string `json:"service,omitempty"` // empty: all
	Version string `json:"version"`
}

// Drain takes endpoints of a service out of traffic: one address, or the endpoints of a region, zone
// or locality. In a WhatIf, a region, zone or locality without a service means the endpoints of all
// services there.
type Drain struct {
	Service  string          `json:"service"`
	Address  string          `json:"address,omitempty"`
	Locality isobar.Locality `json:"locality,omitzero"`
}

// DrainAlone reports whether a single drain is all that is supposed.
func (w *WhatIf) DrainAlone() (d Drain, alone bool) {
	if len(w.Drain) != 1 || len(w.Lose)+len(w.Restore)+len(w.Demand)+len(w.Capacity) > 0 || w.Rollback != nil {
		return Drain{}, false
	}
	return w.Drain[0], true
}

// Growth multiplies demand; several that apply multiply each other.
type Growth struct {
	Service string          `json:"service,omitempty"` // empty: all
	Source  isobar.Locality `json:"source,omitzero"`   // region, zone or locality; zero: all
	Factor  float64         `json:"factor"`            // 1.2 is 20% more; 0 to MaxGrowth
}

// Bounds of a WhatIf.
const (
	MaxGrowth   = 1000.0
	maxSupposed = 1000 // entries of each list
)

// NewWhatIf plays what is supposed through, beginning with a turn whose previous
// plan must exist. Services that it does not concern are left out. Errors wrap
// isobar.ErrInvalid, and isobar.ErrNotFound for what is not there.
func NewWhatIf(t *Turn, tick time.Duration, w *WhatIf) (*Preview, error) {
	if n := max(len(w.Lose), len(w.Drain), len(w.Restore), len(w.Demand), len(w.Capacity)); n > maxSupposed {
		return nil, fmt.Errorf("what if: %w: %d entries, want at most %d", isobar.ErrInvalid, n, maxSupposed)
	}
	down, concerned, err := w.down(t.Topology)
	if err != nil {
		return nil, err
	}
	restored, err := w.restored(t.Topology, concerned)
	if err != nil {
		return nil, err
	}
	if err := w.checkDemand(t); err != nil {
		return nil, err
	}
	for i := range t.Topology.Services {
		if name := t.Topology.Services[i].Name; w.grows(name) {
			concerned[name] = true
		}
	}
	scaled, err := w.scaled(t.Topology, concerned)
	if err != nil {
		return nil, err
	}
	t.sortSubscribed()
	part := t.only(withCalls(t.Topology, concerned))
	part.Topology = onlyOf(scaled, serviceNames(part.Topology))
	part.Health = t.Health.Without(func(k health.Key) bool { return restored[k] }).WithAll(down)
	p, err := NewPreview(part, tick)
	if err != nil {
		return nil, err
	}
	p.elsewhere = len(t.Topology.Services) - len(part.Topology.Services)
	if len(w.Demand) > 0 {
		p.in.Load, p.in.Deviations = w.grown(part.Previous, t.Now)
		p.in.Learned = learnedIn(part.Previous)
		for _, s := range part.Previous.Services {
			p.changed[s.Spec.Name] = w.grows(s.Spec.Name) || p.changed[s.Spec.Name]
		}
		p.wake()
	}
	return p, nil
}

// down lists the endpoints that get no traffic, and their services.
func (w *WhatIf) down(t *isobar.Topology) (down []health.Override, concerned map[string]bool, err error) {
	concerned = map[string]bool{}
	take := func(s *isobar.Service, e *isobar.Endpoint, status isobar.HealthStatus) {
		concerned[s.Name] = true
		down = append(down, health.Override{Key: health.Key{Service: s.Name, Address: e.Address}, Status: status})
	}
	for _, d := range distinct(w.Drain) {
		if err := d.take(t, func(s *isobar.Service, e *isobar.Endpoint) { take(s, e, isobar.Draining) }); err != nil {
			return nil, nil, err
		}
	}
	for _, lost := range distinct(w.Lose) {
		if lost.IsZero() {
			return nil, nil, fmt.Errorf("lose: %w: name a region, a zone or a locality", isobar.ErrInvalid)
		}
		before := len(down)
		for i := range t.Services {
			s := &t.Services[i]
			endpointsIn(s, lost, func(e *isobar.Endpoint) { take(s, e, isobar.Unhealthy) })
		}
		if len(down) == before {
			return nil, nil, fmt.Errorf("lose %s: %w: no service has endpoints there", lost, isobar.ErrNotFound)
		}
	}
	return down, concerned, nil
}

// distinct leaves repeated entries out: each would list all of its endpoints again, and 1,000
// names of a region with 39,000 endpoints took more than 7 GB.
func distinct[T comparable](list []T) []T {
	var out []T
	seen := make(map[T]bool, len(list))
	for _, x := range list {
		if !seen[x] {
			seen[x] = true
			out = append(out, x)
		}
	}
	return out
}

// restored lists the endpoints that are again what the configuration and checkers
// say, and adds their services to those concerned.
func (w *WhatIf) restored(t *isobar.Topology, concerned map[string]bool) (map[health.Key]bool, error) {
	out := map[health.Key]bool{}
	for _, d := range distinct(w.Restore) {
		err := d.take(t, func(s *isobar.Service, e *isobar.Endpoint) {
			concerned[s.Name] = true
			out[health.Key{Service: s.Name, Address: e.Address}] = true
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// scaled is a topology with the capacities that are supposed, and adds their services to
// those concerned.
func (w *WhatIf) scaled(t *isobar.Topology, concerned map[string]bool) (*isobar.Topology, error) {
	if len(w.Capacity) == 0 {
		return t, nil
	}
	out := *t
	out.Services = slices.Clone(t.Services)
	copied := map[string]bool{}
	for _, c := range w.Capacity {
		if !(c.Factor > 0) || c.Factor > MaxGrowth {
			return nil, fmt.Errorf("capacity: %w: factor %v, want above 0, to %v", isobar.ErrInvalid, c.Factor, MaxGrowth)
		}
		i := slices.IndexFunc(out.Services, func(s isobar.Service) bool { return s.Name == c.Service })
		if i < 0 {
			return nil, fmt.Errorf("capacity: service %q: %w", c.Service, isobar.ErrNotFound)
		}
		concerned[c.Service] = true
		if !copied[c.Service] { // once, however often it is named
			copied[c.Service], out.Services[i].Localities = true, ownLocalities(&out.Services[i])
		}
		if !c.scale(&out.Services[i]) {
			return nil, fmt.Errorf("capacity: service %q declares no capacity at %s: %w", c.Service, c.Locality, isobar.ErrNotFound)
		}
	}
	return &out, nil
}

// ownLocalities copies the localities of a service with their endpoints.
func ownLocalities(s *isobar.Service) []isobar.ServiceLocality {
	out := slices.Clone(s.Localities)
	for i := range out {
		out[i].Endpoints = slices.Clone(out[i].Endpoints)
	}
	return out
}

// scale changes the capacities of a service, and reports whether any is declared.
func (c *Scaling) scale(s *isobar.Service) (found bool) {
	for i := range s.Localities {
		l := &s.Localities[i]
		if !within(l.Locality, c.Locality) {
			continue
		}
		if _, declared := endpointRates(l); declared {
			found = true
		}
		l.MaxRate *= c.Factor
		l.Concurrency *= c.Factor
		for k := range l.Endpoints {
			l.Endpoints[k].MaxRate *= c.Factor
			l.Endpoints[k].Concurrency *= c.Factor
		}
	}
	return found
}

// serviceNames lists the services of a topology, in its order.
func serviceNames(t *isobar.Topology) []string {
	out := make([]string, len(t.Services))
	for i := range t.Services {
		out[i] = t.Services[i].Name
	}
	return out
}

// RollbackVersion is the version of the rollback; the error wraps isobar.ErrInvalid.
func (w *WhatIf) RollbackVersion() (uint64, error) {
	if len(w.Lose)+len(w.Drain)+len(w.Restore)+len(w.Demand)+len(w.Capacity) > 0 {
		return 0, fmt.Errorf("rollback: %w: it can't be combined with other changes", isobar.ErrInvalid)
	}
	version, err := ParseVersion(w.Rollback.Version)
	if err != nil {
		return 0, fmt.Errorf("rollback: %w: %w", isobar.ErrInvalid, err)
	}
	return version, nil
}

// Addresses lists the endpoints of a service that a drain takes.
func (d *Drain) Addresses(s *isobar.Service) []string {
	var out []string
	for i := range s.Localities {
		l := &s.Localities[i]
		for j := range l.Endpoints {
			if d.Address == l.Endpoints[j].Address || d.Address == "" && within(l.Locality, d.Locality) {
				out = append(out, l.Endpoints[j].Address)
			}
		}
	}
	return out
}

func (d *Drain) take(t *isobar.Topology, take func(*isobar.Service, *isobar.Endpoint)) error {
	if (d.Address == "") == d.Locality.IsZero() {
		return fmt.Errorf("drain: service %q: %w: name either an address or a region, zone or locality", d.Service, isobar.ErrInvalid)
	}
	if d.Service == "" {
		return d.takeOfAll(t, take)
	}
	s, ok := t.Service(d.Service)
	if !ok {
		return fmt.Errorf("drain: service %q: %w", d.Service, isobar.ErrNotFound)
	}
	found := false
	if d.Address != "" {
		var e *isobar.Endpoint
		if _, e, found = s.Endpoint(d.Address); found {
			take(s, e)
		}
	} else {
		endpointsIn(s, d.Locality, func(e *isobar.Endpoint) {
			found = true
			take(s, e)
		})
	}
	if !found {
		return fmt.Errorf("drain: service %q has nothing at %s%s: %w", d.Service, d.Address, d.Locality, isobar.ErrNotFound)
	}
	return nil
}

// takeOfAll takes the endpoints of all services.
func (d *Drain) takeOfAll(t *isobar.Topology, take func(*isobar.Service, *isobar.Endpoint)) error {
	if d.Address != "" {
		return fmt.Errorf("drain %s: %w: name the service of an address", d.Address, isobar.ErrInvalid)
	}
	found := false
	for i := range t.Services {
		s := &t.Services[i]
		endpointsIn(s, d.Locality, func(e *isobar.Endpoint) {
			found = true
			take(s, e)
		})
	}
	if !found {
		return fmt.Errorf("drain %s: %w: no service has endpoints there", d.Locality, isobar.ErrNotFound)
	}
	return nil
}

func endpointsIn(s *isobar.Service, scope isobar.Locality, take func(*isobar.Endpoint)) {
	for i := range s.Localities {
		if !within(s.Localities[i].Locality, scope) {
			continue
		}
		for j := range s.Localities[i].Endpoints {
			take(&s.Localities[i].Endpoints[j])
		}
	}
}

// within reports whether a locality is in a region, zone or locality; the zero
// scope is everywhere.
func within(l, scope isobar.Locality) bool {
	return (scope.Region == "" || l.Region == scope.Region) && (scope.Zone == "" || l.Zone == scope.Zone) &&
		(scope.SubZone == "" || l.SubZone == scope.SubZone)
}

func (w *WhatIf) checkDemand(t *Turn) error {
	for _, g := range w.Demand {
		if math.IsNaN(g.Factor) || g.Factor < 0 || g.Factor > MaxGrowth {
			return fmt.Errorf("demand: %w: factor %v, want 0 to %v", isobar.ErrInvalid, g.Factor, MaxGrowth)
		}
		found := g.Service == ""
		for i := range t.Topology.Services {
			found = found || t.Topology.Services[i].Name == g.Service
		}
		if !found {
			return fmt.Errorf("demand: service %q: %w", g.Service, isobar.ErrNotFound)
		}
		if !g.Source.IsZero() && !g.sends(t.Previous) {
			return fmt.Errorf("demand from %s: %w: no client there sends requests", g.Source, isobar.ErrNotFound)
		}
	}
	return nil
}

// sends reports whether a plan knows demand of what grows.
func (g *Growth) sends(p *Plan) bool {
	return slices.ContainsFunc(p.Services, func(s *Service) bool {
		return (g.Service == "" || g.Service == s.Spec.Name) && s.Load != nil &&
			slices.ContainsFunc(s.Load.Sources, func(l load.SourceLoad) bool { return within(l.Source, g.Source) })
	})
}

func (w *WhatIf) grows(service string) bool {
	return slices.ContainsFunc(w.Demand, func(g Growth) bool { return g.Service == "" || g.Service == service })
}

// factor is what the demand of a source is multiplied with; that of nobody in
// particular grows with what grows everywhere.
func (w *WhatIf) factor(service string, source *isobar.Locality) float64 {
	f := 1.0
	for _, g := range w.Demand {
		if (g.Service == "" || g.Service == service) && (g.Source.IsZero() || source != nil && within(*source, g.Source)) {
			f *= g.Factor
		}
	}
	return min(f, MaxGrowth)
}

// grown is what would be measured with the demand that is supposed.
func (w *WhatIf) grown(p *Plan, now time.Time) (*load.Snapshot, []load.Deviations) {
	snapshot := &load.Snapshot{At: now}
	deviations := make([]load.Deviations, len(p.Services))
	for i, s := range p.Services {
		name := s.Spec.Name
		f := s.Deviations
		f.Service = name
		f.Unmanaged, f.Unreported = slices.Clone(f.Unmanaged), slices.Clone(f.Unreported)
		for j := range f.Unmanaged {
			f.Unmanaged[j].Rate *= w.factor(name, &f.Unmanaged[j].Source)
		}
		for j := range f.Unreported {
			f.Unreported[j].Rate *= w.factor(name, nil)
		}
		deviations[i] = f
		if s.Load == nil {
			continue
		}
		l := *s.Load
		l.Sources = slices.Clone(l.Sources)
		for j := range l.Sources {
			l.Sources[j].Demand *= w.factor(name, &l.Sources[j].Source)
		}
		snapshot.Services = append(snapshot.Services, l)
	}
	return snapshot, deviations
}
