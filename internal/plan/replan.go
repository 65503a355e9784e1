package plan

import (
	"slices"

	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

// Replan decides the turn with what was measured when another plan was decided
// for it: demand, landings and capacities as they were, whatever the turn's
// previous plan and configuration are. What clients would have done under this
// plan nobody knows, so nothing is inferred from how they follow it: mode auto
// goes as far as it then went. But that this plan's own shares swing can be told.
func (t *Turn) Replan(measured *Plan) (*Plan, error) {
	if measured.Trigger != assign.Tick {
		return Next(t.input(measured.Trigger))
	}
	snapshot := &load.Snapshot{At: t.Now}
	in := t.tick(snapshot)
	in.News, in.Previous = true, t.Previous.trustedAs(measured)
	for _, s := range measured.Services {
		if s.Load != nil {
			snapshot.Services = append(snapshot.Services, *s.Load)
		}
		f := s.Findings
		f.Service = s.Spec.Name
		in.Findings = append(in.Findings, f)
	}
	in.Learned = measured.learned()
	return Next(in)
}

// trustedAs is the plan with services in mode auto as far as another plan has
// them.
func (p *Plan) trustedAs(other *Plan) *Plan {
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
