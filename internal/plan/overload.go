package plan

import "github.com/isobar-xds/isobar"

// Overload is a locality that is planned to get more than it can serve.
type Overload struct {
	Locality isobar.Locality
	Used     float64 // load and background over declared capacity; more than 1
}

// Overloads lists the localities that are planned beyond their declared capacity,
// in the order of the sites: because nothing else has room, because the mode or a
// pause keeps traffic there, or because shares are on their way.
func (s *Service) Overloads() []Overload {
	if s.Result == nil || len(s.Result.Load) != len(s.Sites) || len(s.Spec.Localities) != len(s.Sites) {
		return nil
	}
	var out []Overload
	for i := range s.Sites {
		site := &s.Sites[i]
		if site.Capacity <= 0 || s.declaredCapacity(i) <= 0 {
			continue
		}
		if used := (s.Result.Load[i] + site.Background) / site.Capacity; used > 1 {
			out = append(out, Overload{site.Group.Locality, used})
		}
	}
	return out
}

// HasRoom reports whether a locality of the service could take more under its
// ceiling, on the health of now.
func (s *Service) HasRoom() bool {
	if s.Result == nil || len(s.Result.Load) != len(s.Sites) {
		return false
	}
	for i := range s.Sites {
		if s.Sites[i].Limit() > s.Result.Load[i] {
			return true
		}
	}
	return false
}
