package plan

import (
	"math"

	"github.com/isobar-xds/isobar"
)

// drift is by how much utilization (absolute) or capacity (relative) may differ before
// what was played with a plan is outdated.
const drift = 0.1

// Fills is how full the localities of a plan are, of each service: what the answer of a
// played loss depends on. It holds nothing of the plan, and 12 bytes for a locality of a
// service. Immutable.
type Fills struct {
	services   map[string][]fill
	localities []isobar.Locality // fill.locality counts from 0
}

// fill is of a site of a service, in the order of its sites.
type fill struct {
	locality    uint32
	capacity    float32 // requests/s
	utilization float32
}

// FillsOf returns how full the localities of a plan are.
func FillsOf(p *Plan) Fills {
	out := Fills{services: make(map[string][]fill, len(p.Services))}
	numbers, next := map[isobar.Locality]uint32{}, uint32(0)
	for _, s := range p.Services {
		if s.Result == nil {
			continue
		}
		fills := make([]fill, len(s.Result.Sites))
		for i := range fills {
			l := s.Result.Sites[i].Group.Locality
			number, ok := numbers[l]
			if !ok {
				number = next
				next++
				numbers[l] = number
				out.localities = append(out.localities, l)
			}
			capacity, utilization := fillOf(s, i)
			fills[i] = fill{locality: number, capacity: float32(capacity), utilization: float32(utilization)}
		}
		out.services[s.Spec.Name] = fills
	}
	return out
}

// fillOf is how full a site is.
func fillOf(s *Service, i int) (capacity, utilization float64) {
	site := &s.Result.Sites[i]
	if site.Capacity > 0 && i < len(s.Result.Load) { // a plan of another replica may lack it
		utilization = (s.Result.Load[i] + site.Unmanaged) / site.Capacity
	}
	return site.Capacity, utilization
}

// Outdated reports whether a later plan has other services or localities, or localities
// that are noticeably fuller, emptier, larger or smaller. It allocates nothing.
func (f *Fills) Outdated(p *Plan) bool {
	decided := 0
	for _, s := range p.Services {
		if s.Result == nil {
			continue
		}
		decided++
		if f.outdated(s) {
			return true
		}
	}
	return decided != len(f.services)
}

func (f *Fills) outdated(s *Service) bool {
	then, ok := f.services[s.Spec.Name]
	if !ok || len(then) != len(s.Result.Sites) {
		return true
	}
	for i, was := range then {
		capacity, utilization := fillOf(s, i)
		if f.localities[was.locality] != s.Result.Sites[i].Group.Locality ||
			math.Abs(utilization-float64(was.utilization)) > drift ||
			math.Abs(capacity-float64(was.capacity)) > drift*max(capacity, float64(was.capacity)) {
			return true
		}
	}
	return false
}
