package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// ErrUnchanged says that a rollback would change nothing.
var ErrUnchanged = errors.New("nothing would change")

// TooMuchError says what the weights of an earlier version would do to today's demand.
type TooMuchError struct {
	Breaches []string
	// Loss says that today's demand fits, but would not after the loss of one more zone,
	// which can be stood now.
	Loss bool
}

// Error implements error.
func (e *TooMuchError) Error() string {
	text := "the present demand does not fit those weights: "
	if e.Loss {
		text = "the present demand would not fit those weights without one more zone: "
	}
	return text + strings.Join(e.Breaches, "; ")
}

// Rollback returns a service, or all for an empty name, the weights of an earlier
// version, carried over to the turn's topology and health. Drops stay: they
// belong to today's demand. Localities that are gone since then lose their
// shares as in a failure, and sources that came since then keep theirs. What it
// changes is paused by the caller, or the next tick would go on from there.
//
// The error wraps [isobar.ErrNotFound] where the version is not kept, and where the
// service does not exist or had no weights then; [ErrUnchanged] where no share would
// change; and is a [*TooMuchError] where localities would get more than their
// ceilings and more than they get now, unless the turn forces it.
func (d *Decider) Rollback(t *Turn, h *History, version uint64, service string) (*Plan, error) {
	p, err := RolledBack(t, h, version, service)
	if err == nil {
		d.remember(t, p)
	}
	return p, err
}

// RolledBack is the plan that [Decider.Rollback] makes; nothing remembers it.
func RolledBack(t *Turn, h *History, version uint64, service string) (*Plan, error) {
	if t.Previous == nil {
		return nil, fmt.Errorf("version %d: %w: nothing was published yet", version, isobar.ErrNotFound)
	}
	now, ok := t.Previous.Service(service)
	if service != "" && !ok {
		return nil, fmt.Errorf("service %q: %w", service, isobar.ErrNotFound)
	}
	if err := h.reaches(version, t.Previous.Version); err != nil {
		return nil, err
	}
	earlier := h.before(version, service)
	if service != "" && allNewSince(now, earlier) {
		return nil, fmt.Errorf("service %q at version %d: %w: it had no weights yet", service, version, isobar.ErrNotFound)
	}
	in := t.input(assign.Reapply)
	in.Previous, in.restoring = asOf(t.Previous, earlier), true
	p, err := Next(in)
	if err != nil {
		return nil, err
	}
	if t.Previous.Provisional {
		p.MakeProvisional()
	}
	if !sharesDiffer(p, t.Previous, service) {
		return nil, fmt.Errorf("version %d: %w: the shares are those of now", version, ErrUnchanged)
	}
	if breaches := breachesOf(p, t.Previous, service); len(breaches) > 0 && !t.Force {
		return nil, &TooMuchError{Breaches: breaches}
	}
	return p, nil
}

// sharesDiffer reports whether a source of a service, or of any for an empty name, has
// other shares than in the plan before.
func sharesDiffer(p, before *Plan, service string) bool {
	for _, s := range p.named(service) {
		was, ok := before.Service(s.Spec.Name)
		if !ok || s.Result == nil || was.Result == nil {
			continue
		}
		for i := range s.Result.Sources {
			r := &s.Result.Sources[i]
			for _, l := range union([3]*Service{was, s}, (*Service).localities) {
				if math.Abs(s.share(r.Source, l)-was.share(r.Source, l)) >= 0.5/isobar.WeightScale {
					return true
				}
			}
		}
	}
	return false
}

// breachesOf returns which localities of a service, or of all for an empty name, get more
// than their ceilings, and more than in the plan before.
func breachesOf(p, before *Plan, service string) []string {
	var out []string
	for _, s := range p.named(service) {
		was, ok := before.Service(s.Spec.Name)
		if !ok || s.Result == nil {
			continue
		}
		for i := range s.Sites {
			site := &s.Sites[i]
			if s.Site(i).declared() <= 0 || site.Capacity <= 0 || site.Ceiling <= 0 {
				continue
			}
			l := site.Group.Locality
			now, then := s.utilization(l), was.utilization(l)
			if now > breachSlack*site.Ceiling && now > breachSlack*then {
				out = append(out, fmt.Sprintf("%s: %s at %.1f%% of its capacity, above its ceiling of %.1f%%; it is at %.1f%% now",
					s.Spec.Name, l, 100*now, 100*site.Ceiling, 100*then))
			}
		}
	}
	return out
}

// was is the shares of a source at an earlier time.
type was struct {
	sites []isobar.Locality
	units []uint16 // per site; nil: it was not there
}

// of names a source of a service.
type of struct {
	service string
	source  isobar.Locality
}

// before tells what the sources had at a version, of those that have changed
// since: the first change after it tells.
func (h *History) before(version uint64, service string) map[of]was {
	out := map[of]was{}
	for i := range h.pages {
		for j := range h.pages[i].Changes {
			c := &h.pages[i].Changes[j]
			if c.Version <= version {
				continue
			}
			for k := range c.Services {
				s := &c.Services[k]
				if service != "" && s.Service != service {
					continue
				}
				for _, x := range s.Sources {
					key := of{s.Service, x.Source}
					if _, known := out[key]; !known {
						out[key] = was{s.Sites, x.Before}
					}
				}
			}
		}
	}
	return out
}

// allNewSince reports whether none of a service's sources had shares earlier. What
// has not changed since is not in the list of what was.
func allNewSince(s *Service, earlier map[of]was) bool {
	if s.Result == nil {
		return false
	}
	for i := range s.Result.Sources {
		w, changed := earlier[of{s.Spec.Name, s.Result.Sources[i].Source}]
		if !changed || len(w.units) > 0 {
			return false
		}
	}
	return len(s.Result.Sources) > 0
}

// asOf returns the plan with other shares, as a previous one to reapply.
func asOf(p *Plan, earlier map[of]was) *Plan {
	out := *p
	out.Services = slices.Clone(p.Services)
	for i, s := range p.Services {
		if s.Result == nil {
			continue
		}
		r := *s.Result
		r.Sources = slices.Clone(r.Sources)
		r.Load = make([]float64, len(r.Sites))
		for j := range r.Sources {
			src := &r.Sources[j]
			if w, ok := earlier[of{s.Spec.Name, src.Source}]; ok {
				w.put(src, &r)
			}
			for l, share := range src.Shares {
				r.Load[l] += share * src.Demand * (1 - r.DropOf(src))
			}
		}
		service := *s
		service.Result = &r
		out.Services[i] = &service
	}
	return &out
}

// put returns a source of a result the earlier shares, as far as their localities
// are still there.
func (w was) put(src *assign.SourceResult, r *assign.Result) {
	shares := make([]float64, len(r.Sites))
	sum := 0.0
	for l := range r.Sites {
		at, ok := slices.BinarySearchFunc(w.sites, r.Sites[l].Group.Locality, isobar.Locality.Compare)
		if ok && at < len(w.units) {
			shares[l] = min(1, float64(w.units[at])/isobar.WeightScale)
			sum += shares[l]
		}
	}
	if sum <= 0 {
		return // it was not there, or nothing of what it had is
	}
	before := isobar.Assignment{Service: r.Service, Source: src.Source, Drop: r.Drop, Classes: r.Classes}
	if src.Assignment != nil {
		before = *src.Assignment
	}
	p0 := []isobar.LocalityWeight{}
	for l, share := range shares {
		if share > 0 {
			p0 = append(p0, isobar.LocalityWeight{EndpointGroup: r.Groups[l], Weight: uint32(share*isobar.WeightScale + 0.5)})
		}
	}
	before.Priorities = append([][]isobar.LocalityWeight{p0}, before.Priorities[min(1, len(before.Priorities)):]...)
	src.Shares, src.Below, src.Assignment = shares, make([]int, len(shares)), &before
}
