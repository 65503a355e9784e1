package plan

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// Preview plays a change of topology through, at today's demand and health:
// what would be decided tick by tick until nothing moves any more. Nothing of it
// is published. Only services that the change concerns are played, and those
// that calls connect with them, each until it moves no more.
type Preview struct {
	Before  *Plan
	First   *Plan // after the first tick with the new topology
	Settled *Plan // after the last
	Ticks   int   // that were played
	Still   bool  // nothing moves any more

	turn     *Turn // that it begins with
	in       Input
	topology *isobar.Topology
	tick     time.Duration
	changed  map[string]bool // services that the change concerns
	moving   [][]string      // groups that calls connect, in order; those that are still are left out
	quiet    map[string]int  // by service: ticks since it moved
	last     int             // the last tick in which anything moved

	elsewhere int // services that are left out
}

// Bounds of a Preview.
const (
	maxPreviewTicks = 60
	// quietTicks is for how many ticks nothing may move before nothing will: a
	// locality leaves its priority after three, and a service with steady demand settles after
	// refineFirst.
	quietTicks = refineFirst + 2
)

// NewPreview begins with the turn that would carry the change over; the turn's
// previous plan must exist.
func NewPreview(t *Turn, tick time.Duration) (*Preview, error) {
	p := &Preview{Before: t.Previous, turn: t, in: t.input(assign.Reapply), topology: t.Topology, tick: tick, changed: map[string]bool{}, quiet: map[string]int{}}
	first, err := Next(p.in)
	if err != nil {
		return nil, err
	}
	p.show(first)
	p.in.Trigger = assign.Tick
	for _, name := range namesOf(p.Before, p.Settled) {
		before, _ := p.Before.Service(name)
		after, _ := p.Settled.Service(name)
		p.changed[name] = before != after
	}
	p.wake()
	return p, nil
}

// wake has the groups played that the change concerns.
func (p *Preview) wake() {
	p.moving = nil
	for _, group := range callGroups(p.Before.Topology, p.topology) {
		if slices.ContainsFunc(group, func(name string) bool { return p.changed[name] }) {
			p.moving = append(p.moving, group)
		}
	}
}

// callGroups groups the services that calls connect, before or after a change.
// The groups, and the names in each, are in the order of their names.
func callGroups(before, after *isobar.Topology) [][]string {
	group := map[string]int{} // by service
	var groups [][]string
	add := func(name string) int {
		g, ok := group[name]
		if !ok {
			g = len(groups)
			group[name], groups = g, append(groups, []string{name})
		}
		return g
	}
	for _, t := range []*isobar.Topology{before, after} {
		for i := range t.Services {
			for _, c := range t.Services[i].Calls {
				from, to := add(t.Services[i].Name), add(c.Service)
				if from == to {
					continue
				}
				if len(groups[from]) < len(groups[to]) {
					from, to = to, from
				}
				for _, name := range groups[to] {
					group[name] = from
				}
				groups[from], groups[to] = append(groups[from], groups[to]...), nil
			}
			add(t.Services[i].Name)
		}
	}
	groups = slices.DeleteFunc(groups, func(g []string) bool { return len(g) == 0 })
	for _, g := range groups {
		slices.Sort(g)
	}
	slices.SortFunc(groups, slices.Compare)
	return groups
}

// Step plays a tick; false when there is nothing left to play.
func (p *Preview) Step() (bool, error) {
	if p.Still = len(p.moving) == 0; p.Still || p.Ticks >= maxPreviewTicks {
		if p.First == nil {
			p.First = p.Settled
		}
		return false, nil
	}
	before := p.Settled
	p.in.Topology = p.movingTopology()
	next, err := Next(p.in)
	if err != nil {
		return false, err
	}
	p.show(next)
	if p.Ticks++; p.Ticks == 1 {
		p.First = p.Settled
	}
	for _, s := range next.Services {
		name := s.Spec.Name
		p.quiet[name]++
		if was, ok := before.Service(name); !ok || !sameShares(was, s) {
			p.quiet[name], p.last = 0, p.Ticks
		}
	}
	p.moving = slices.DeleteFunc(p.moving, func(group []string) bool {
		return !slices.ContainsFunc(group, func(name string) bool {
			_, there := p.topology.Service(name)
			return there && p.quiet[name] < quietTicks
		})
	})
	return true, nil
}

// movingTopology returns the topology of the services that may still move.
func (p *Preview) movingTopology() *isobar.Topology {
	may := map[string]bool{}
	for _, group := range p.moving {
		for _, name := range group {
			may[name] = true
		}
	}
	movingTopology := &isobar.Topology{Network: p.topology.Network, Revision: p.topology.Revision}
	for i := range p.topology.Services {
		if may[p.topology.Services[i].Name] {
			movingTopology.Services = append(movingTopology.Services, p.topology.Services[i])
		}
	}
	return movingTopology
}

// show replaces services with those of a plan. It begins
// with a plan of all.
func (p *Preview) show(next *Plan) {
	whole := *next
	if p.Settled != nil {
		whole.Topology, whole.Services = p.topology, slices.Clone(p.Settled.Services)
		for i, s := range whole.Services {
			if played, ok := next.Service(s.Spec.Name); ok {
				whole.Services[i] = played
			}
		}
	}
	p.Settled = &whole
	p.in.Previous, p.in.Version, p.in.Now = p.Settled, next.Version+1, p.in.Now.Add(p.tick)
}
