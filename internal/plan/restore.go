package plan

import (
	"encoding/json"
	"math"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/appendjson"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
)

// Saved is what survives a restart: enough to serve the same weights again and
// to know what demand is missing.
type Saved struct {
	Version uint64 `json:"version"`
	// Reserved is the highest version that the process may have published
	// since it saved: the next process starts above it.
	Reserved uint64         `json:"reserved"`
	Made     time.Time      `json:"made"`
	Services []SavedService `json:"services"`
	Paused   Pauses         `json:"paused,omitempty"`
	// LastChange is the version of the last change in the history that leads
	// up to this plan.
	LastChange uint64 `json:"last_change,omitempty"`
	// Boot names the boot of the machine on which it was saved, and Up the time since then, which
	// changes of the clock do not affect; "" = not known.
	Boot string        `json:"boot,omitempty"`
	Up   time.Duration `json:"up,omitempty"`
}

// AppendJSON appends the state as JSON, service by service: [json.Marshal] would build all of it in
// a buffer that doubles, keep that, and return a copy.
func (s *Saved) AppendJSON(data []byte) ([]byte, error) {
	services := appendjson.New(append(data, `{"services":[`...))
	for i := range s.Services {
		appendSavedService(services, &s.Services[i])
	}
	data, err := services.Bytes()
	if err != nil {
		return nil, err
	}
	rest, err := json.Marshal(struct {
		*Saved

		Services []SavedService `json:"services,omitempty"` // hides those of Saved
	}{Saved: s})
	if err != nil {
		return nil, err
	}
	data = append(data, "],"...)
	return append(data, rest[1:]...), nil
}

// SavedService is one service of Saved.
type SavedService struct {
	Name    string            `json:"name"`
	Drop    float64           `json:"drop,omitempty"`
	Classes []float64         `json:"classes,omitempty"` // what is dropped by class of client
	Sites   []isobar.Locality `json:"sites"`
	Prices  []float64         `json:"prices,omitempty"` // per site, ms
	Limits  []SavedSite       `json:"limits"`           // per site
	Sources []SavedSource     `json:"sources"`
	// Learned is what reports of utilization told about capacities.
	Learned []load.Capacity `json:"learned,omitempty"`
	Rollout *SavedRollout   `json:"trust,omitempty"` // of mode auto
	// Heard is when most of its demand was last heard of, where that is not now.
	Heard time.Time `json:"heard,omitzero"`
	// Dimensions is what is known of the service's limits.
	Dimensions []load.Dimension `json:"dimensions,omitempty"`
	// Observed is what requests told about capacities.
	Observed []ObservedCapacity `json:"observed,omitempty"`
	// RequestLimit is how many requests each client may have in progress.
	RequestLimit RequestLimit `json:"request_limit,omitzero"`
}

// SavedSite is what sites without declared capacity had been given.
type SavedSite struct {
	Capacity float64 `json:"capacity"` // requests/s
	Scale    float64 `json:"scale"`    // overflow factor of the ceiling
}

// SavedSource is what one source got, and its demand.
type SavedSource struct {
	Source isobar.Locality `json:"source"`
	Demand float64         `json:"demand"` // requests/s, as measured
	// Unproven is the part of Demand that raises no drop, requests/s.
	Unproven    float64   `json:"unproven,omitempty"`
	Variability float64   `json:"swing,omitempty"` // of the demand, as a fraction of it; earlier versions call it so
	Shares      []float64 `json:"shares"`          // per site
	Below       []int     `json:"below,omitempty"`
	Mix         []float64 `json:"mix,omitempty"` // of its clients' classes
	// Tiers are the weights below priority 0. They depend on what was before:
	// small changes of headroom do not move them.
	Tiers [][]SavedWeight `json:"tiers,omitempty"`
}

// SavedWeight is one locality of a failover tier.
type SavedWeight struct {
	Site   int    `json:"site"` // index into SavedService.Sites
	Weight uint32 `json:"weight"`
}

// Save extracts what survives a restart.
func (p *Plan) Save() Saved {
	out := Saved{Version: p.Version, Made: p.Made, Paused: p.Paused, Services: make([]SavedService, 0, len(p.Services))}
	for _, s := range p.Services {
		out.Services = append(out.Services, saveService(s))
	}
	return out
}

// saveService is what is kept of a service's decision.
func saveService(s *Service) SavedService {
	ss := SavedService{
		Name: s.Spec.Name, Drop: s.Result.Drop, Classes: saveClasses(s.Result),
		Sites: s.localities(), Prices: s.Prices, Learned: s.Learned, Rollout: s.Rollout.save(),
	}
	ss.Dimensions, ss.Observed, ss.RequestLimit = s.Dimensions, s.Observed, s.RequestLimit
	if s.Load != nil && s.Load.Age.Most > 0 {
		ss.Heard = s.Load.Heard
	}
	for i := range s.Sites {
		ss.Limits = append(ss.Limits, SavedSite{Capacity: s.Sites[i].Capacity, Scale: s.Sites[i].Scale})
	}
	for i := range s.Result.Sources {
		r := &s.Result.Sources[i]
		demand, unproven, variability := r.Demand, 0.0, 0.0
		if l := s.Load.Source(r.Source); l != nil {
			demand, unproven, variability = l.Demand, l.Claimed, l.Variability
		}
		ss.Sources = append(ss.Sources, SavedSource{
			Source: r.Source, Demand: demand, Unproven: unproven, Variability: variability,
			Shares: r.Shares, Below: r.Below, Mix: saveMix(r.Mix), Tiers: saveTiers(s.Sites, r.Assignment),
		})
	}
	return ss
}

// Demand lists the demand that was known, for the load table's coverage.
func (s *Saved) Demand() []load.Saved {
	var out []load.Saved
	for i := range s.Services {
		for _, src := range s.Services[i].Sources {
			if src.Demand >= minDemand {
				out = append(out, load.Saved{
					Service: s.Services[i].Name, Source: src.Source,
					Rate: src.Demand, Unproven: src.Unproven, Variability: src.Variability, Heard: s.Services[i].Heard,
				})
			}
		}
	}
	return out
}

// Restore makes the first plan of a process from what an earlier one saved,
// reapplied on the topology and health of now. Services that were not saved
// start with their baseline.
func Restore(saved *Saved, topology *isobar.Topology, table health.Table, now time.Time, version uint64) (*Plan, error) {
	before := &Plan{Version: saved.Version, Made: saved.Made, Topology: topology}
	for i := range topology.Services {
		spec := &topology.Services[i]
		for j := range saved.Services {
			if saved.Services[j].Name == spec.Name {
				before.Services = append(before.Services, saved.Services[j].revive(spec, table))
			}
		}
	}
	return Next(Input{
		Now: now, Trigger: assign.Reapply, Topology: topology, Health: table, Paused: Pauses(nil).With(saved.Paused...),
		Subscribed: savedSources(before), Previous: before, Version: max(version, saved.Version+1), restoring: true,
	})
}

// revive builds the published state of a service from its saved form. Sites
// that are gone since then lose their shares in the reapplication that follows, as
// they would have in a running process.
func (ss *SavedService) revive(spec *isobar.Service, table health.Table) *Service {
	at := buildSites(spec, table, nil)
	s := &Service{Spec: spec, Coverage: 0, Rollout: ss.Rollout.revive()}
	r := &assign.Result{
		Service: spec.Name, Drop: clamp(ss.Drop, spec.MaxShed), Classes: reviveClasses(spec, ss.Classes),
		Mode: s.Mode(), Policy: spec.Policy, MaxShift: spec.MaxShift, Settings: spec.Assignment,
	}
	for i, l := range ss.Sites {
		site := assign.Site{Group: &isobar.EndpointGroup{Locality: l}, Ceiling: isobar.DefaultCeiling, Scale: 1}
		if j := at.index(l); j >= 0 {
			site = at[j].Site
			if !at[j].declared && i < len(ss.Limits) {
				site.Capacity = max(0, ss.Limits[i].Capacity)
			}
			if i < len(ss.Limits) {
				site.Scale = max(1, ss.Limits[i].Scale)
			}
		}
		r.Sites = append(r.Sites, site)
		r.Groups = append(r.Groups, site.Group)
	}
	r.Load = make([]float64, len(r.Sites))
	for _, src := range ss.Sources {
		sr, ok := src.revive(len(r.Sites))
		if !ok {
			continue // a damaged entry is a new source
		}
		sr.Assignment = src.reviveTiers(spec.Name, r.Groups)
		for i, share := range sr.Shares {
			r.Load[i] += share * sr.Demand
		}
		r.Sources = append(r.Sources, sr)
	}
	s.Sites, s.Result = r.Sites, r
	if len(ss.Prices) == len(r.Sites) {
		s.Prices = ss.Prices
	}
	s.Load, s.Learned, s.Dimensions = ss.load(r), load.ValidCapacities(ss.Learned), load.ValidDimensions(ss.Dimensions)
	s.Observed, s.RequestLimit = validObserved(ss.Observed), ss.RequestLimit.revive()
	return s
}

// load stands in for measurements until there are any. A service that had no
// demand has nothing to wait for.
func (ss *SavedService) load(r *assign.Result) *load.ServiceLoad {
	l := &load.ServiceLoad{Name: ss.Name, Coverage: 1, Covered: true}
	for i := range r.Sources {
		src := &r.Sources[i]
		variability, unproven := ss.known(src.Source)
		unproven = max(0, min(unproven, src.Demand))
		l.Sources = append(l.Sources, load.SourceLoad{
			Source: src.Source, Demand: src.Demand, Saved: src.Demand, Variability: variability, Unproven: unproven, Claimed: unproven,
		})
		if src.Demand >= minDemand {
			l.Coverage, l.Covered = 0, false
		}
	}
	return l
}

// known is what was known of a source, its variability and its unproven demand in requests/s: a
// process that ends before its first decision saves it again.
func (ss *SavedService) known(source isobar.Locality) (variability, unproven float64) {
	for i := range ss.Sources {
		if x := &ss.Sources[i]; x.Source == source {
			return x.Variability, x.Unproven
		}
	}
	return 0, 0
}

func (src *SavedSource) revive(sites int) (assign.SourceResult, bool) {
	if len(src.Shares) != sites || src.Demand < 0 || src.Demand != src.Demand {
		return assign.SourceResult{}, false
	}
	sum := 0.0
	for _, v := range src.Shares {
		if v < 0 || v > 1 || v != v {
			return assign.SourceResult{}, false
		}
		sum += v
	}
	if math.Abs(sum-1) > 1e-6 { // as they were published
		return assign.SourceResult{}, false
	}
	below := src.Below
	if len(below) != sites {
		below = make([]int, sites)
	}
	return assign.SourceResult{Source: src.Source, Demand: src.Demand, Shares: src.Shares, Below: below, Mix: reviveMix(src.Mix)}, true
}

// savedSources keeps every source of the saved plan alive in the first plan,
// also those without demand.
func savedSources(p *Plan) []load.Subscription {
	var out []load.Subscription
	for _, s := range p.Services {
		for i := range s.Result.Sources {
			out = append(out, load.Subscription{Service: s.Spec.Name, Source: s.Result.Sources[i].Source})
		}
	}
	return out
}

// clamp returns v, from 0 to most.
func clamp(v, most float64) float64 { return max(0, min(most, v)) }

// saveTiers extracts the weights below priority 0.
func saveTiers(sites []assign.Site, a *isobar.Assignment) [][]SavedWeight {
	if a == nil || len(a.Priorities) < 2 {
		return nil
	}
	out := make([][]SavedWeight, 0, len(a.Priorities)-1)
	for _, tier := range a.Priorities[1:] {
		saved := make([]SavedWeight, 0, len(tier))
		for i := range tier {
			saved = append(saved, SavedWeight{Site: siteOf(sites, tier[i].EndpointGroup), Weight: tier[i].Weight})
		}
		out = append(out, saved)
	}
	return out
}

// siteOf is the index of the site of a group's locality; -1 where there is none. Mostly the site has the
// same group.
func siteOf(sites []assign.Site, group *isobar.EndpointGroup) int {
	for i := range sites {
		if sites[i].Group == group {
			return i
		}
	}
	for i := range sites {
		if sites[i].Group.Locality == group.Locality {
			return i
		}
	}
	return -1
}

// reviveTiers builds the assignment that the next one is held against, as far
// as it matters for that: its tiers. Damaged tiers are left out; they are then
// weighed again.
func (src *SavedSource) reviveTiers(service string, groups []*isobar.EndpointGroup) *isobar.Assignment {
	a := &isobar.Assignment{Service: service, Source: src.Source}
	for l, share := range src.Shares {
		if share > 0 {
			if len(a.Priorities) == 0 {
				a.Priorities = append(a.Priorities, nil)
			}
			a.Priorities[0] = append(a.Priorities[0], isobar.LocalityWeight{EndpointGroup: groups[l], Weight: uint32(share*isobar.WeightScale + 0.5)})
		}
	}
	for _, tier := range src.Tiers {
		var weights []isobar.LocalityWeight
		for _, w := range tier {
			if w.Site < 0 || w.Site >= len(groups) || w.Weight == 0 {
				return a
			}
			weights = append(weights, isobar.LocalityWeight{EndpointGroup: groups[w.Site], Weight: w.Weight})
		}
		a.Priorities = append(a.Priorities, weights)
	}
	return a
}
