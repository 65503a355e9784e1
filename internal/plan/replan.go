package plan

import (
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

// Replan decides the turn with what was measured when another plan was decided
// for it: demand, landings and capacities as they were, whatever the turn's
// previous plan and configuration are. What clients would have done under this
// plan nobody knows, so nothing is inferred from how they follow it.
func (t *Turn) Replan(measured *Plan) (*Plan, error) {
	if measured.Trigger != assign.Tick {
		return Next(t.input(measured.Trigger))
	}
	snapshot := &load.Snapshot{At: t.Now}
	in := t.tick(snapshot)
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
