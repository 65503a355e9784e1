package plan

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// WithoutDrops returns the plan to leave clients with when nobody will watch over
// them: the same weights, but nothing is dropped. A drop holds only as long as
// somebody takes it back. It gives nil when the plan drops nothing.
func (p *Plan) WithoutDrops(now time.Time, version uint64) *Plan {
	var out *Plan
	for i, s := range p.Services {
		if s.Result == nil || s.Result.Drop <= 0 {
			continue
		}
		if out == nil {
			copied := *p
			copied.Version, copied.Made, copied.Trigger, copied.Violations = version, now, assign.Rebase, nil
			copied.Services = append([]*Service(nil), p.Services...)
			out = &copied
		}
		service := *s
		service.Result = withoutDrop(s.Result)
		out.Services[i] = &service
	}
	return out
}

func withoutDrop(r *assign.Result) *assign.Result {
	out := *r
	out.Drop = 0
	if r.Classes != nil {
		out.Classes = &isobar.ClassDrops{Criticality: r.Classes.Criticality}
	}
	out.Load = make([]float64, len(r.Load))
	for i := range r.Sources {
		for l, share := range r.Sources[i].Shares {
			out.Load[l] += share * r.Sources[i].Demand
		}
	}
	out.Sources = append([]assign.SourceResult(nil), r.Sources...)
	for i := range out.Sources {
		if a := out.Sources[i].Assignment; a != nil && (a.Drop > 0 || a.Classes != nil) {
			copied := *a
			copied.Drop, copied.Classes = 0, out.Classes
			out.Sources[i].Assignment = &copied
		}
	}
	return &out
}
