package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
)

// Turn is what one turn of the loop starts from. Nothing in it is changed but
// the order of Subscribed.
type Turn struct {
	Now        time.Time
	Interval   time.Duration       // at which clients report now
	Windows    []load.StreamWindow // reported since the last tick; only a tick reads them
	Subscribed []load.Subscription
	Topology   *isobar.Topology
	Health     health.Table
	Paused     Pauses // what operators froze
	// Ages of inputs other than load reports, and the steps of degradation, of
	// which 0 stands for the default and [Forever] for never; only a tick reads
	// them.
	Ages        []InputAge
	Degradation Degradation
	Previous    *Plan
	Version     uint64 // of the new plan
	Force       bool   // for a rollback: even if the present demand does not fit
}

// tick is what a decision is made from, but for what is inferred from how clients
// follow plans.
func (t *Turn) tick(measured *load.Snapshot) Input {
	in := t.input(assign.Tick)
	in.Load, in.Degradation, in.Ages = measured, t.Degradation.Complete(t.Interval), slices.Clone(t.Ages)
	slices.SortStableFunc(in.Ages, compareAges)
	return in
}

func (t *Turn) input(trigger assign.Trigger) Input {
	t.sortSubscribed()
	return Input{
		Now: t.Now, Trigger: trigger, Topology: t.Topology, Health: t.Health,
		Paused: t.Paused, Previous: t.Previous, Version: t.Version, Subscribed: slices.CompactFunc(slices.Clone(t.Subscribed), sameSource),
	}
}

// withCalls adds the services that calls connect with those named, whichever
// way, and returns all of them sorted: what is decided of the others does not
// depend on them.
func withCalls(t *isobar.Topology, named map[string]bool) []string {
	var out []string
	for _, group := range callGroups(t, t) {
		if slices.ContainsFunc(group, func(name string) bool { return named[name] }) {
			out = append(out, group...)
		}
	}
	slices.Sort(out)
	return out
}

// sameSource reports whether two subscriptions are of one source to one service.
func sameSource(a, b load.Subscription) bool { return a.Service == b.Service && a.Source == b.Source }

func (t *Turn) sortSubscribed() {
	slices.SortFunc(t.Subscribed, func(a, b load.Subscription) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), a.Source.Compare(b.Source))
	})
}

// only returns a turn of some of the services, whose names are sorted. What it
// shares with t, whose Subscribed are sorted, is not changed.
func (t *Turn) only(names []string) *Turn {
	out, previous := *t, *t.Previous
	out.Topology, previous.Topology = onlyOf(t.Topology, names), onlyOf(t.Previous.Topology, names)
	previous.Services, out.Subscribed = nil, nil
	for _, name := range names {
		if s, ok := t.Previous.Service(name); ok {
			previous.Services = append(previous.Services, s)
		}
		from, _ := slices.BinarySearchFunc(t.Subscribed, name, func(s load.Subscription, n string) int { return strings.Compare(s.Service, n) })
		for _, w := range t.Subscribed[from:] {
			if w.Service != name {
				break
			}
			out.Subscribed = append(out.Subscribed, w)
		}
	}
	out.Previous = &previous
	return &out
}

// onlyOf returns the topology of some of the services, whose names are sorted.
func onlyOf(t *isobar.Topology, names []string) *isobar.Topology {
	if t == nil {
		return nil
	}
	out := *t
	out.Services = nil
	for _, name := range names {
		if s, ok := t.Service(name); ok {
			out.Services = append(out.Services, *s)
		}
	}
	return &out
}

// Replan decides the turn with what was measured when another plan was decided
// for it: demand, observed shares and capacities as they were, whatever the turn's
// previous plan and configuration are. What clients would have done under this
// plan nobody knows, so nothing is inferred from how they follow it: mode auto
// goes as far as it then went. But it can see oscillations of this plan's own shares.
func (t *Turn) Replan(measured *Plan) (*Plan, error) {
	if measured.Trigger != assign.Tick {
		return Next(t.input(measured.Trigger))
	}
	snapshot := &load.Snapshot{At: t.Now}
	in := t.tick(snapshot)
	in.News, in.Previous = true, withRollout(t.Previous, measured)
	for _, s := range measured.Services {
		if s.Load != nil {
			snapshot.Services = append(snapshot.Services, *s.Load)
		}
		f := s.Deviations
		f.Service = s.Spec.Name
		in.Deviations = append(in.Deviations, f)
	}
	in.Learned = learnedIn(measured)
	return Next(in)
}

// withRollout returns the plan with the rollout states of another plan, for services in
// mode auto.
func withRollout(p *Plan, other *Plan) *Plan {
	if p == nil {
		return nil
	}
	out := *p
	out.Services = slices.Clone(p.Services)
	for i, s := range out.Services {
		o, ok := other.Service(s.Spec.Name)
		if !ok || o.Rollout == nil || o.Rollout == s.Rollout {
			continue
		}
		service := *s
		service.Rollout, service.Scores = o.Rollout, o.Scores
		out.Services[i] = &service
	}
	return &out
}
