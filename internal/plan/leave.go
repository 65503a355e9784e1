package plan

import (
	"time"

	"github.com/isobar-xds/isobar/internal/assign"
)

// WithoutDrops gives the plan to leave clients with when nobody will watch over
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
	out.Load = make([]float64, len(r.Load))
	for i, y := range r.Load {
		if r.Drop < 1 {
			out.Load[i] = y / (1 - r.Drop)
		}
	}
	out.Sources = append([]assign.SourceResult(nil), r.Sources...)
	for i := range out.Sources {
		if a := out.Sources[i].Assignment; a != nil && a.Drop > 0 {
			copied := *a
			copied.Drop = 0
			out.Sources[i].Assignment = &copied
		}
	}
	return &out
}
