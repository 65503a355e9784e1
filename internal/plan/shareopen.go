package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
)

// Opened is a plan of another replica, with what is needed to follow it and to go
// on from it.
type Opened struct {
	Plan   *Plan
	Saved  Saved // what a leader that goes on from the plan restores; see [Restore]
	Origin Origin
	Health health.SavedMonitor // what the leader knew of health; the zero value: nothing
	// Ahead is how far the clock of this replica is ahead of that of the replica that made the plan,
	// and for how long the plan was on its way.
	Ahead time.Duration

	services map[string]openedService
}

type openedService struct {
	configuration, decision []byte
	config                  *sharedConfiguration
	service                 *Service
	saved                   *SavedService
	shift                   time.Duration
}

// errShared says that a shared plan is not what Share wrote.
var errShared = errors.New("not a plan of this version of Isobar")

// Open reads a plan that another replica shared. What did not change since the
// previous one, which may be nil, keeps its identity. The clock of the other replica
// may be wrong: the plan counts as made now, and other times keep their distance to
// that.
func Open(s *Shared, previous *Opened, now time.Time) (*Opened, error) {
	var h sharedHeader
	if err := json.Unmarshal(s.Header, &h); err != nil { //nolint:musttag // fields without a tag go by their names
		return nil, fmt.Errorf("%w: the header: %w", errShared, err)
	}
	if !slices.IsSortedFunc(s.Services, compareShared) {
		return nil, fmt.Errorf("%w: its services are not sorted", errShared)
	}
	network, err := h.network(previous)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errShared, err)
	}
	shift := now.Sub(h.Made)
	out := &Opened{Origin: h.Origin, Ahead: shift, services: make(map[string]openedService, len(s.Services))}
	p := &Plan{
		Version: h.Version, Made: now, Trigger: h.Trigger, Paused: h.Paused, Provisional: h.Provisional, Final: h.Final,
		Objective: h.Objective, LowerBound: h.LowerBound, Gap: h.Gap, ExcessMS: h.ExcessMS, PlanGap: h.PlanGap, Violations: h.Violations,
		Topology: &isobar.Topology{
			Network: network, Awaited: h.Awaited, Owners: h.owners(), Revision: h.Revision, Services: make([]isobar.Service, 0, len(s.Services)),
		},
	}
	out.Saved = Saved{Version: h.Version, Made: now, Paused: h.Paused}
	for i := range s.Services {
		var before openedService
		if previous != nil {
			before = previous.services[s.Services[i].Name]
		}
		next, err := before.open(&s.Services[i], shift)
		if err != nil {
			return nil, fmt.Errorf("%w: service %q: %w", errShared, s.Services[i].Name, err)
		}
		out.services[s.Services[i].Name] = next
		p.Topology.Services = append(p.Topology.Services, *next.config.Spec)
		p.Services = append(p.Services, next.service)
		out.Saved.Services = append(out.Saved.Services, *next.saved)
	}
	if p.Final && p.Drops() {
		p = p.WithoutDrops(now, h.Version)
	}
	out.Plan = p
	return out, nil
}

// network makes the network, or takes the previous one where it is the same.
func (h *sharedHeader) network(previous *Opened) (*isobar.Network, error) {
	if previous != nil {
		n := previous.Plan.Topology.Network
		if slices.Equal(n.Rules(), h.Latency) && slices.Equal(n.Egress(), h.Egress) {
			return n, nil
		}
	}
	n, err := isobar.NewNetwork(h.Latency)
	if err != nil || len(h.Egress) == 0 {
		return n, err
	}
	return n.WithEgress(h.Egress)
}

// open reads a service that follows the one of b.
func (b openedService) open(s *SharedService, shift time.Duration) (openedService, error) {
	sameConfig := b.config != nil && bytes.Equal(b.configuration, s.Configuration)
	if sameConfig && bytes.Equal(b.decision, s.Decision) {
		return b, nil
	}
	next := openedService{configuration: s.Configuration, decision: s.Decision, config: b.config, shift: shift}
	if !sameConfig {
		next.config = &sharedConfiguration{}
		if err := json.Unmarshal(s.Configuration, next.config); err != nil {
			return b, err
		}
		if next.config.Spec == nil || next.config.Spec.Name != s.Name || slices.Contains(next.config.Groups, nil) {
			return b, errors.New("its configuration lacks the service or a group")
		}
	}
	var d sharedDecision
	if err := json.Unmarshal(s.Decision, &d); err != nil { //nolint:musttag // fields without a tag go by their names
		return b, err
	}
	service, err := d.service(next.config, b.service)
	if err != nil {
		return b, err
	}
	if !d.Saved.Heard.IsZero() {
		d.Saved.Heard = d.Saved.Heard.Add(shift)
	}
	next.service, next.saved = service, &d.Saved
	return next, nil
}

// service builds the planned service. Assignments that stay keep their identity.
func (d *sharedDecision) service(c *sharedConfiguration, before *Service) (*Service, error) {
	s := &Service{
		Spec: c.Spec, Coverage: d.Coverage, Hold: d.Hold, Paused: d.Paused, Inputs: d.Inputs, Deviations: d.Deviations, Limited: d.Limited,
		Learned: load.ValidCapacities(d.Saved.Learned), Observed: validObserved(d.Saved.Observed), Dimensions: load.ValidDimensions(d.Saved.Dimensions),
		Prices: d.Saved.Prices, CallCosts: d.Costs, Callers: d.Callers, Joint: d.Joint, Alone: d.Alone,
		PlanGap: d.Gap, PolicyGap: d.Policy[0], PolicyMS: d.Policy[1], Rollout: d.Saved.Rollout.revive(),
		RequestLimit: d.Saved.RequestLimit,
	}
	var err error
	if s.Sites, err = sitesOf(d.Sites, c.Groups); err != nil {
		return nil, err
	}
	if len(s.Sites) != len(c.Spec.Localities) {
		return nil, fmt.Errorf("%d sites for %d localities", len(s.Sites), len(c.Spec.Localities))
	}
	if d.Solved != nil {
		s.Problem, s.Solution, s.Solved = d.Solved.Problem, d.Solved.Solution, d.Solved.Sources
	}
	var was *assign.Result
	if before != nil {
		was = before.Result
	}
	if s.Result, err = d.Result.open(c, was); err != nil {
		return nil, err
	}
	s.Load = d.Saved.load(s.Result)
	s.Load.Coverage, s.Load.Covered = d.Coverage, true
	return s, nil
}

func sitesOf(sites []sharedSite, groups []*isobar.EndpointGroup) ([]assign.Site, error) {
	out := make([]assign.Site, len(sites))
	for i := range sites {
		s := &sites[i]
		group, err := groupAt(groups, s.Group)
		if err != nil {
			return nil, err
		}
		out[i] = assign.Site{
			Group: group, Nominal: s.Nominal, Capacity: s.Capacity, Ceiling: s.Ceiling, Scale: s.Scale, Unmanaged: s.Unmanaged,
			Preferred: s.Preferred, Unreachable: s.Unreachable, Drained: s.Drained,
		}
	}
	return out, nil
}

func groupAt(groups []*isobar.EndpointGroup, i int) (*isobar.EndpointGroup, error) {
	if i < 0 || i >= len(groups) {
		return nil, fmt.Errorf("group %d of %d", i, len(groups))
	}
	return groups[i], nil
}

func (r *sharedResult) open(c *sharedConfiguration, before *assign.Result) (*assign.Result, error) {
	out := &assign.Result{
		Service: c.Spec.Name, Drop: r.Drop, Classes: r.Classes, Load: r.Load, Mode: r.Mode, Policy: r.Policy, MaxShift: r.MaxShift,
		Settings: r.Settings, Over: r.Over,
	}
	var err error
	if out.Sites, err = sitesOf(r.Sites, c.Groups); err != nil {
		return nil, err
	}
	for _, i := range r.Groups {
		group, err := groupAt(c.Groups, i)
		if err != nil {
			return nil, err
		}
		out.Groups = append(out.Groups, group)
	}
	if len(out.Groups) != len(out.Sites) {
		return nil, fmt.Errorf("%d groups for %d sites", len(out.Groups), len(out.Sites))
	}
	for i := range r.Sources {
		source, err := r.Sources[i].open(c, len(out.Sites), before)
		if err != nil {
			return nil, fmt.Errorf("source %s: %w", r.Sources[i].Source, err)
		}
		out.Sources = append(out.Sources, source)
	}
	return out, nil
}

func (s *sharedSource) open(c *sharedConfiguration, sites int, before *assign.Result) (assign.SourceResult, error) {
	out := assign.SourceResult{
		Source: s.Source, Demand: s.Demand, Mix: s.Mix, Target: s.Target, Want: s.Want, Shares: s.Shares, Below: s.Below, Reasons: s.Reasons,
	}
	if len(s.Shares) != sites {
		return out, fmt.Errorf("%d shares for %d sites", len(s.Shares), sites)
	}
	if s.Assignment == nil {
		return out, errors.New("it has no assignment")
	}
	a := *s.Assignment
	for _, weights := range s.Priorities {
		p := make([]isobar.LocalityWeight, len(weights))
		for j, w := range weights {
			group, err := groupAt(c.Groups, int(w[0]))
			if err != nil {
				return out, err
			}
			p[j] = isobar.LocalityWeight{EndpointGroup: group, Weight: w[1]}
		}
		a.Priorities = append(a.Priorities, p)
	}
	out.Assignment = &a
	if old := before.Source(s.Source); old != nil && assign.SameAssignment(&a, old.Assignment) {
		out.Assignment = old.Assignment
	}
	return out, nil
}
