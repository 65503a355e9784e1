package plan

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// The triggers of a change.
const (
	TriggerTick     = "tick"     // a regular decision
	TriggerHealth   = "health"   // endpoints came, went or changed their health, without a decision
	TriggerTopology = "topology" // the configuration or a service of the API changed
	TriggerOperator = "operator" // pause, resume, rollback, or a drain and its end
	TriggerRestart  = "restart"  // the first plan of a process
)

// Origin says why a plan is made, for the history.
type Origin struct {
	Trigger string // empty: told from the plan
	About   string // service that an operator named; empty: all
	Who     string // of an operator
	Reason  string
}

// Change is the change of shares and drops by one plan. Immutable.
type Change struct {
	Version  uint64          `json:"version"`
	Previous uint64          `json:"previous"` // version of the plan that it followed
	Made     time.Time       `json:"made"`
	Trigger  string          `json:"trigger"`
	Who      string          `json:"who,omitempty"`
	Reason   string          `json:"reason,omitempty"` // of an operator
	About    string          `json:"about,omitempty"`  // service that an operator named; empty: all
	Services []ServiceChange `json:"services"`         // sorted
}

// ServiceChange is the change of one service.
type ServiceChange struct {
	Service string            `json:"service"`
	Reason  string            `json:"reason"` // of the source that moved most
	Before  float64           `json:"drop_before,omitempty"`
	After   float64           `json:"drop_after,omitempty"`
	Sites   []isobar.Locality `json:"localities"` // of the shares; sorted
	Sources []SourceChange    `json:"sources"`    // that changed; sorted
}

// SourceChange is the change for one source, in 1/10,000 of its traffic and in the order of the
// localities.
type SourceChange struct {
	Source isobar.Locality `json:"source"`
	Before []uint16        `json:"before,omitempty"` // none: the source did not exist
	After  []uint16        `json:"after,omitempty"`  // none: the source no longer exists
}

// Moved is the largest part of its traffic that a source of the change moved,
// as a fraction.
func (c *ServiceChange) Moved() float64 {
	most := 0.0
	for i := range c.Sources {
		most = max(most, c.Sources[i].moved())
	}
	return most
}

func (c *SourceChange) moved() float64 {
	if len(c.Before) != len(c.After) {
		return 0
	}
	sum := 0
	for i := range c.Before {
		sum += max(0, int(c.After[i])-int(c.Before[i]))
	}
	return float64(sum) / isobar.WeightScale
}

// only returns the part of a change that is about one service.
func (c *Change) only(service string) (Change, bool) {
	out := *c
	i, ok := slices.BinarySearchFunc(c.Services, service, func(s ServiceChange, n string) int { return strings.Compare(s.Service, n) })
	if ok {
		out.Services = c.Services[i : i+1]
	} else {
		out.Services = []ServiceChange{}
		ok = c.Trigger == TriggerOperator && (c.About == "" || c.About == service)
	}
	return out, ok
}

// valid reports whether a change that was read is one.
func (c *Change) valid() bool {
	for i := range c.Services {
		s := &c.Services[i]
		for j := range s.Sources {
			for _, shares := range [][]uint16{s.Sources[j].Before, s.Sources[j].After} {
				if len(shares) != 0 && len(shares) != len(s.Sites) {
					return false
				}
			}
		}
	}
	return c.Version > c.Previous
}

// Changed compares two plans that follow each other; false when no share and no
// drop differs and nobody asked for the plan.
func Changed(before, after *Plan, o Origin) (Change, bool) {
	c := Change{Version: after.Version, Made: after.Made, Trigger: o.Trigger, Who: o.Who, Reason: o.Reason, About: o.About, Services: []ServiceChange{}}
	if before != nil {
		c.Previous = before.Version
	}
	if c.Trigger == "" {
		c.Trigger = triggerOf(before, after)
	}
	for _, name := range namesOf(before, after) {
		b, _ := before.Service(name)
		a, _ := after.Service(name)
		step := stepOf(b, a)
		if a == b || (step == "" && sameShares(b, a)) {
			continue
		}
		var was, is *SavedService
		if b != nil {
			was = Outline(b)
		}
		if a != nil {
			is = Outline(a)
		}
		c.add(name, was, is, b, a, step)
	}
	return c, len(c.Services) > 0 || o.Trigger != ""
}

// Restored compares the first plan of a process with what was saved.
func Restored(saved *Saved, after *Plan) Change {
	c := Change{Version: after.Version, Previous: saved.Version, Made: after.Made, Trigger: TriggerRestart, Services: []ServiceChange{}}
	was := map[string]*SavedService{}
	var names []string
	for i := range saved.Services {
		was[saved.Services[i].Name] = &saved.Services[i]
		names = append(names, saved.Services[i].Name)
	}
	names = append(names, after.ServiceNames()...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		var is *SavedService
		a, ok := after.Service(name)
		if ok {
			is = Outline(a)
		}
		c.add(name, was[name], is, nil, a, "")
	}
	return c
}

// Outline is a service with the fields that changes need.
func Outline(s *Service) *SavedService {
	out := &SavedService{Name: s.Spec.Name, Drop: s.Result.Drop, Sites: s.localities()}
	for i := range s.Result.Sources {
		out.Sources = append(out.Sources, SavedSource{Source: s.Result.Sources[i].Source, Shares: s.Result.Sources[i].Shares})
	}
	return out
}

// stepOf reports the step that mode auto took between two plans; empty for none.
func stepOf(before, after *Service) string {
	if before == nil || after == nil || before.Rollout == after.Rollout || after.Rollout == nil {
		return ""
	}
	if before.Rollout != nil && before.Rollout.Stepped.Equal(after.Rollout.Stepped) {
		return ""
	}
	return after.Rollout.Why
}

// sameShares spares the work of telling what differs where nothing does.
func sameShares(a, b *Service) bool {
	if a == nil || b == nil || a.Result.Drop != b.Result.Drop || !a.Result.Classes.Equal(b.Result.Classes) ||
		!sameSites(a.Sites, b.Sites) || len(a.Result.Sources) != len(b.Result.Sources) {
		return false
	}
	for i := range a.Result.Sources {
		x, y := &a.Result.Sources[i], &b.Result.Sources[i]
		if x.Source != y.Source || !slices.Equal(x.Shares, y.Shares) {
			return false
		}
	}
	return true
}

func triggerOf(before, after *Plan) string {
	switch {
	case after.Trigger == assign.Tick:
		return TriggerTick
	case before == nil || before.Topology.Revision != after.Topology.Revision:
		return TriggerTopology
	default:
		return TriggerHealth
	}
}

func namesOf(before, after *Plan) []string {
	names := after.ServiceNames()
	if before != nil {
		names = append(names, before.ServiceNames()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// add notes what differs of a service; where it did not exist, was or is stays
// nil. earlier is the service that was, if its plan is known. step says that mode auto
// took one, and why.
func (c *Change) add(name string, was, is *SavedService, earlier, now *Service, step string) {
	s := ServiceChange{Service: name, Sources: []SourceChange{}}
	var before, after SavedService
	if was != nil {
		before = *was
	}
	if is != nil {
		after = *is
	}
	s.Before, s.After = before.Drop, after.Drop
	s.Sites = slices.Clone(sortedLocalities(slices.Concat(before.Sites, after.Sites)))
	var sources []isobar.Locality
	for _, side := range []*SavedService{&before, &after} {
		for i := range side.Sources {
			sources = append(sources, side.Sources[i].Source)
		}
	}
	most, at := 0.0, -1
	for _, l := range sortedLocalities(sources) {
		x := SourceChange{Source: l, Before: before.unitsOf(l, s.Sites), After: after.unitsOf(l, s.Sites)}
		if slices.Equal(x.Before, x.After) {
			continue
		}
		s.Sources = append(s.Sources, x)
		if m := x.moved(); at < 0 || m > most {
			most, at = m, len(s.Sources)-1
		}
	}
	if step == "" && len(s.Sources) == 0 && s.Before == s.After && (was == nil) == (is == nil) {
		return
	}
	switch {
	case step != "":
		s.Reason = step
	case is == nil:
		s.Reason = "the service was removed"
	case was == nil:
		s.Reason = "the service is new"
	case len(s.Sources) == 0:
		s.Reason = "what does not fit is dropped at the clients"
	default:
		s.Reason = whyMoved(earlier, now, &s, at)
	}
	s.Sources = slices.Clone(s.Sources) // it is kept for long, without spare capacity
	c.Services = append(c.Services, s)
}

// sortedLocalities sorts in place and leaves out what is there twice.
func sortedLocalities(l []isobar.Locality) []isobar.Locality {
	slices.SortFunc(l, isobar.Locality.Compare)
	return slices.Compact(l)
}

// unitsOf returns the shares of a source on the given localities, in 1/10,000;
// nil where the source is not there.
func (ss *SavedService) unitsOf(source isobar.Locality, sites []isobar.Locality) []uint16 {
	for i := range ss.Sources {
		if ss.Sources[i].Source != source {
			continue
		}
		out := make([]uint16, len(sites))
		for j, share := range ss.Sources[i].Shares {
			if j >= len(ss.Sites) {
				break
			}
			at, ok := slices.BinarySearchFunc(sites, ss.Sites[j], isobar.Locality.Compare)
			if ok && share > 0 {
				out[at] = uint16(math.Round(min(share, 1) * isobar.WeightScale))
			}
		}
		return out
	}
	return nil
}
