package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// Reserve is the effect of the worst loss of a zone on a service: the N-1 check. It covers only
// localities with declared capacity.
type Reserve struct {
	Service string          `json:"service"`
	Lost    isobar.Locality `json:"lost"` // the zone

	// Fullest is the locality that comes closest to its ceiling, or goes farthest above it, and
	// Utilization is its utilization divided by its ceiling.
	Fullest     isobar.Locality `json:"fullest"`
	Utilization float64         `json:"utilization"`
	Ceiling     float64         `json:"ceiling"` // of Fullest: the part of its capacity that may be used, 0 to 1
	// Headroom is the free fraction of the load that the ceilings of the remaining capacity allow;
	// below 0, the demand does not fit.
	Headroom float64 `json:"headroom"`
	Drop     float64 `json:"drop"` // fraction of the requests that clients drop; 1 if no healthy endpoint remains

	// AtLimit reports whether the service only just survives the loss: it exceeds a ceiling by more
	// than a what-if tolerates, but by less than rounding or, unless it failed in the previous
	// round, by less than the limits of Survey.After; or it drops less than these limits.
	AtLimit bool `json:"at_limit,omitempty"`
}

// Stands reports whether the service keeps its ceilings without shedding, or is at its limit.
func (r *Reserve) Stands() bool { return r.AtLimit || r.keeps() }

func (r *Reserve) keeps() bool { return r.Utilization <= breachSlack && r.Drop <= 0 }

// By how much a service that stood a loss in the round before may be above its ceiling, as a
// factor, or drop: demand that just fits is beneath the ceiling in one round and above it in
// the next.
const (
	limitSlack = 1.03
	limitDrop  = 0.005
)

// Worse compares two losses: above 0 where the first one fails and the other does not, else where
// it drops more, else where it fills more. What texts show as equal is equal.
func (r *Reserve) Worse(than *Reserve) int {
	fails := func(r *Reserve) int {
		if r.Stands() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(fails(r), fails(than)), cmp.Compare(shown(r.Drop), shown(than.Drop)), cmp.Compare(shown(r.Utilization), shown(than.Utilization)))
}

// Fill says how full Fullest would be, in the words of the plan check.
func (r *Reserve) Fill() string {
	text := fmt.Sprintf("%s at %.1f%% of its capacity", r.Fullest, 100*r.Utilization*r.Ceiling)
	if r.Utilization > breachSlack {
		text += fmt.Sprintf(", above its ceiling of %.1f%%", 100*r.Ceiling)
	}
	return text
}

// Breach says of a service that stood the loss of any zone why it no longer
// does.
func (r *Reserve) Breach() string {
	text := r.Fill()
	switch {
	case r.Drop >= 1:
		text = "nothing healthy would be left"
	case r.Drop > 0:
		text = fmt.Sprintf("clients drop %.1f%% of the requests", 100*r.Drop)
	}
	return fmt.Sprintf("%s: it would no longer survive the loss of %s: %s", r.Service, r.Lost, text)
}

// ZoneLoss is the effect of the loss of a zone on the services with endpoints in it. It covers only
// services with declared capacity.
type ZoneLoss struct {
	Zone     isobar.Locality `json:"zone"`
	Services int             `json:"services"` // that send requests and have endpoints there and elsewhere
	Failing  int             `json:"failing"`  // those of them that would not survive the loss
	Alone    int             `json:"alone"`    // services that send requests and have endpoints nowhere else
	AtLimit  int             `json:"at_limit"` // those of the others that would only just survive the loss
	// Fullest is, of the services that would survive the loss, the one that comes nearest to a
	// ceiling; nil if there is none.
	Fullest *Reserve `json:"fullest,omitempty"`

	Worst []Reserve `json:"worst"` // of those that fail, then of those at their limit, at most 10: those that drop most first, then the fullest
}

// mostWorst bounds the services of a ZoneLoss.
const mostWorst = 10

// add counts a service that has endpoints in the zone.
func (z *ZoneLoss) add(r *Reserve) {
	z.Services++
	switch {
	case !r.Stands():
		z.Failing++
	case r.AtLimit:
		z.AtLimit++
	default:
		if z.Fullest == nil || cmp.Or(cmp.Compare(r.Utilization, z.Fullest.Utilization), strings.Compare(z.Fullest.Service, r.Service)) > 0 {
			fullest := *r
			z.Fullest = &fullest
		}
		return
	}
	i, _ := slices.BinarySearchFunc(z.Worst, r, func(a Reserve, b *Reserve) int {
		return cmp.Or(-a.Worse(b), strings.Compare(a.Service, b.Service))
	})
	if z.Worst = slices.Insert(z.Worst, i, *r); len(z.Worst) > mostWorst {
		z.Worst = z.Worst[:mostWorst]
	}
}

// Survey tries the loss of each zone that carries traffic, one at a time, for
// all services of a plan. Losses are played with the code that decides, for
// QuickTicks ticks: what is lost moves at once, and mistakes of that are fixed
// by then.
type Survey struct {
	turn   *Turn
	tick   time.Duration
	groups [][]string // that calls connect; the rest of them

	part  *Turn             // of the first group; nil before it begins
	zones []isobar.Locality // of it, to be lost yet
	found []Reserve         // of all groups so far

	losses map[isobar.Locality]*ZoneLoss // of all groups so far
	last   Failed                        // of the round before; nil: there was none
	failed Failed                        // of all groups so far
}

// Failed are the losses that services do not stand.
type Failed map[FailedLoss]struct{}

// FailedLoss is the loss of a zone that a service does not stand.
type FailedLoss struct {
	Service string
	Zone    isobar.Locality
}

// QuickTicks is for how many ticks what is lost is played where a quick answer
// is wanted.
const QuickTicks = 3

// NewSurvey begins with a turn whose previous plan must exist.
func NewSurvey(t *Turn, tick time.Duration) *Survey {
	t.sortSubscribed()
	return &Survey{turn: t, tick: tick, groups: callGroups(t.Topology, t.Topology), losses: map[isobar.Locality]*ZoneLoss{}, failed: Failed{}}
}

// After takes what the round before found, which is not nil. A loss that did not fail then fails
// only beyond limitSlack and limitDrop; one that failed, until the service keeps its ceilings.
func (s *Survey) After(last Failed) { s.last = last }

// Failed returns the losses that fail, for After of the next round.
func (s *Survey) Failed() Failed { return s.failed }

// judge decides whether a service stands a loss.
func (s *Survey) judge(r *Reserve) {
	at := FailedLoss{r.Service, r.Lost}
	_, before := s.last[at]
	r.AtLimit = r.keeps() && (r.Utilization-1)*r.Ceiling > riskSlack ||
		s.last != nil && !before && !r.keeps() && r.Utilization <= limitSlack && r.Drop <= limitDrop
	if !r.Stands() {
		s.failed[at] = struct{}{}
	}
}

// Survey begins with what a preview has come to; it tries the losses for the
// services that the preview concerns.
func (p *Preview) Survey() *Survey {
	t := *p.turn
	t.Now, t.Previous, t.Version = p.in.Now, p.Settled, p.in.Version
	s := NewSurvey(&t, p.tick)
	s.Only(func(name string) bool { return p.changed[name] })
	return s
}

// Only leaves out services that neither are wanted nor connected by calls with
// one that is.
func (s *Survey) Only(wanted func(name string) bool) {
	s.groups = slices.DeleteFunc(s.groups, func(group []string) bool { return !slices.ContainsFunc(group, wanted) })
}

// Step plays one loss; false when there is nothing left to lose. After an error
// the services that calls connect with what failed are left out, and the rest
// goes on.
func (s *Survey) Step() (more bool, err error) {
	for len(s.groups) > 0 {
		if s.part == nil {
			s.part = s.turn.only(s.groups[0])
			s.zones = loadedZones(s.part.Previous)
		}
		if len(s.zones) == 0 {
			s.part, s.groups = nil, s.groups[1:]
			continue
		}
		zone := s.zones[0]
		s.zones = s.zones[1:]
		if err := s.lose(zone); err != nil {
			s.Skip()
			return true, err
		}
		return true, nil
	}
	return false, nil
}

// Skip leaves out what is left of the services that were last played.
func (s *Survey) Skip() { s.zones = nil }

// Reserves returns the services whose worst loss is known, sorted by name.
func (s *Survey) Reserves() []Reserve {
	out := slices.Clone(s.found)
	slices.SortFunc(out, func(a, b Reserve) int { return strings.Compare(a.Service, b.Service) })
	return out
}

// Losses returns the zones whose loss was played, sorted.
func (s *Survey) Losses() []ZoneLoss {
	out := make([]ZoneLoss, 0, len(s.losses))
	for _, z := range s.losses {
		out = append(out, *z)
	}
	slices.SortFunc(out, func(a, b ZoneLoss) int { return a.Zone.Compare(b.Zone) })
	return out
}

// lossOf returns what is known of the loss of a zone so far.
func (s *Survey) lossOf(zone isobar.Locality) *ZoneLoss {
	z := s.losses[zone]
	if z == nil {
		z = &ZoneLoss{Zone: zone, Worst: []Reserve{}}
		s.losses[zone] = z
	}
	return z
}

// loadedZones lists the zones to which a plan sends anything, sorted.
func loadedZones(p *Plan) []isobar.Locality {
	var out []isobar.Locality
	for _, s := range p.Services {
		if s.Result == nil {
			continue
		}
		for i := range s.Sites {
			if s.Result.Load[i] > 0 {
				out = append(out, s.Sites[i].Group.Locality.ZoneOnly())
			}
		}
	}
	return sortedLocalities(out)
}

func (s *Survey) lose(zone isobar.Locality) error {
	turn := *s.part
	var down []health.Override
	for i := range turn.Topology.Services {
		service := &turn.Topology.Services[i]
		endpointsIn(service, zone, func(e *isobar.Endpoint) {
			down = append(down, health.Override{Key: health.Key{Service: service.Name, Address: e.Address}, Status: isobar.Unhealthy})
		})
	}
	turn.Health = turn.Health.WithAll(down)
	p, err := NewPreview(&turn, s.tick)
	for more := true; more && err == nil && p.Ticks < QuickTicks; {
		more, err = p.Step()
	}
	if err != nil {
		return err
	}
	found := s.lossOf(zone)
	for _, after := range p.Settled.Services {
		if after.Result == nil || after.demand() <= 0 {
			continue
		}
		if onlyIn(after.Spec, zone) {
			found.Alone++
			continue
		}
		if r, known := reserveOf(after, zone); known {
			s.judge(&r)
			s.keep(&r)
			if endpointIn(after.Spec, zone) {
				found.add(&r)
			}
		}
	}
	return nil
}

// onlyIn reports whether a service has nothing outside of a zone: then its loss
// can be stood by nobody, and no weights are to blame.
func onlyIn(spec *isobar.Service, zone isobar.Locality) bool {
	return !slices.ContainsFunc(spec.Localities, func(l isobar.ServiceLocality) bool { return len(l.Endpoints) > 0 && !within(l.Locality, zone) })
}

// endpointIn reports whether a service has an endpoint in a zone.
func endpointIn(spec *isobar.Service, zone isobar.Locality) bool {
	return slices.ContainsFunc(spec.Localities, func(l isobar.ServiceLocality) bool { return len(l.Endpoints) > 0 && within(l.Locality, zone) })
}

// reserveOf looks at a service after the loss of a zone.
func reserveOf(s *Service, lost isobar.Locality) (r Reserve, known bool) {
	r = Reserve{Service: s.Spec.Name, Lost: lost, Drop: s.Result.Drop}
	var load, limit float64
	for i := range s.Sites {
		site := &s.Sites[i]
		if _, declared := endpointRates(&s.Spec.Localities[i]); !declared {
			return r, false
		}
		if within(site.Group.Locality, lost) || site.Capacity <= 0 {
			continue
		}
		y := s.Result.Load[i] + site.Unmanaged
		load += y
		limit += site.Ceiling * site.Capacity
		if u := y / (site.Ceiling * site.Capacity); r.Fullest.IsZero() || u > r.Utilization {
			r.Fullest, r.Utilization, r.Ceiling = site.Group.Locality, u, site.Ceiling
		}
	}
	switch {
	case limit <= 0:
		r.Drop, r.Headroom = 1, -1
	case s.Result.Drop < 1:
		r.Headroom = 1 - load/(1-s.Result.Drop)/limit
	}
	return r, true
}

// keep keeps the worst loss of each service: the one that drops most, else the
// one that fills most.
func (s *Survey) keep(r *Reserve) {
	i := slices.IndexFunc(s.found, func(o Reserve) bool { return o.Service == r.Service })
	switch {
	case i < 0:
		s.found = append(s.found, *r)
	case r.Worse(&s.found[i]) > 0:
		headroom := min(s.found[i].Headroom, r.Headroom)
		s.found[i] = *r
		s.found[i].Headroom = headroom
	default:
		s.found[i].Headroom = min(s.found[i].Headroom, r.Headroom)
	}
}
