package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/appendjson"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/solver"
)

// Shared is a plan as one replica hands it to another: enough to give clients
// exactly what the other's clients get, and to go on from. All parts are JSON.
type Shared struct {
	Header   []byte          // what belongs to no service
	Services []SharedService // sorted by name
}

// SharedService is one service of Shared. Configuration is the same bytes for as
// long as the service, its endpoints and their health stay the same.
type SharedService struct {
	Name                    string
	Configuration, Decision []byte
}

// sharedHeader is the header of Shared. Times are those of the replica that made
// the plan; see [Open].
type sharedHeader struct {
	Version uint64         `json:"version"`
	Made    time.Time      `json:"made"`
	Trigger assign.Trigger `json:"trigger"`
	Origin  Origin         `json:"origin"`
	Paused  Pauses         `json:"paused,omitempty"`
	// Provisional: earlier programs do not know it, and serve such a plan to all clients.
	Provisional bool `json:"provisional,omitempty"`
	// Final: earlier programs do not know it, and their clients go on dropping.
	Final bool `json:"parting,omitempty"`

	Revision uint64               `json:"revision"`
	Latency  []isobar.LatencyRule `json:"latency,omitempty"`
	Egress   []isobar.EgressRule  `json:"egress,omitempty"`
	Awaited  []isobar.Service     `json:"awaited,omitempty"`
	// API has the services of the admin API, sorted, and Discovered the owner of each
	// service that a provider lists.
	API        []string              `json:"api,omitempty"`
	Discovered map[string]string     `json:"discovered,omitempty"`
	Objective  float64               `json:"objective"`
	LowerBound float64               `json:"lower_bound"`
	Gap        float64               `json:"gap"`
	ExcessMS   float64               `json:"excess_ms"`
	PlanGap    float64               `json:"plan_gap"`
	Violations []invariant.Violation `json:"violations,omitempty"`
}

// sharedConfiguration is what of a service stays from plan to plan. Groups are
// referred to by their index.
type sharedConfiguration struct {
	Spec   *isobar.Service         `json:"spec"`
	Groups []*isobar.EndpointGroup `json:"groups"`
}

// sharedDecision is what was decided of a service.
type sharedDecision struct {
	Saved      SavedService    `json:"saved"`
	Coverage   float64         `json:"coverage"`
	Hold       string          `json:"hold,omitempty"`
	Paused     *Pause          `json:"paused,omitempty"`
	Inputs     []InputState    `json:"inputs,omitempty"`
	Deviations load.Deviations `json:"findings"` // as replicas of earlier versions call it
	Limited    []LimitedSite   `json:"limited,omitempty"`
	Costs      []float64       `json:"call_costs,omitempty"`
	Callers    []string        `json:"callers,omitempty"`
	Joint      bool            `json:"joint,omitempty"`
	Alone      bool            `json:"alone,omitempty"`
	Gap        float64         `json:"plan_gap,omitempty"`
	Policy     [2]float64      `json:"policy,omitzero"` // gap, milliseconds
	Sites      []sharedSite    `json:"sites"`
	Result     sharedResult    `json:"result"`
	Solved     *sharedSolution `json:"solved,omitempty"`
}

// sharedSolution goes with services of which clients that the plan does not know
// are answered by what was solved; see [Plan.Assignment].
type sharedSolution struct {
	Problem  *solver.Service         `json:"problem"`
	Solution *solver.ServiceSolution `json:"solution"`
	Sources  []isobar.Locality       `json:"sources"`
}

// sharedSite is an [assign.Site] whose group is an index.
type sharedSite struct {
	Group       int     `json:"group"`
	Nominal     float64 `json:"nominal"`
	Capacity    float64 `json:"capacity"`
	Ceiling     float64 `json:"ceiling"`
	Scale       float64 `json:"scale"`
	Unmanaged   float64 `json:"background,omitempty"` // as replicas of earlier versions call it
	Preferred   bool    `json:"preferred,omitempty"`
	Unreachable bool    `json:"unreachable,omitempty"`
	Drained     bool    `json:"drained,omitempty"`
}

// sharedResult is an [assign.Result] whose groups are indices.
type sharedResult struct {
	Sites    []sharedSite              `json:"sites"`
	Sources  []sharedSource            `json:"sources"`
	Drop     float64                   `json:"drop,omitempty"`
	Classes  *isobar.ClassDrops        `json:"classes,omitempty"`
	Load     []float64                 `json:"load"`
	Mode     isobar.Mode               `json:"mode"`
	Policy   isobar.Policy             `json:"policy"`
	MaxShift float64                   `json:"max_shift,omitempty"`
	Settings isobar.AssignmentSettings `json:"settings,omitzero"`
	Groups   []int                     `json:"groups"`
	Over     []int                     `json:"over,omitempty"`
}

// sharedSource is an [assign.SourceResult]; Priorities are those of its assignment.
type sharedSource struct {
	Source     isobar.Locality    `json:"source"`
	Demand     float64            `json:"demand"`
	Mix        assign.Mix         `json:"mix,omitzero"`
	Target     []float64          `json:"target,omitempty"`
	Want       []float64          `json:"want,omitempty"`
	Shares     []float64          `json:"shares"`
	Below      []int              `json:"below,omitempty"`
	Reasons    []assign.Reason    `json:"reasons,omitempty"`
	Assignment *isobar.Assignment `json:"assignment"` // without its priorities
	Priorities [][]sharedWeight   `json:"priorities"`
}

// sharedWeight is a locality of a priority: the index of its group, and its weight.
type sharedWeight [2]uint32

// Sharer encodes plans that follow each other, and does not encode again what
// stays. It is owned by one goroutine.
type Sharer struct {
	services map[string]sharedBefore
}

type sharedBefore struct {
	service       *Service
	groups        []*isobar.EndpointGroup
	configuration []byte
	decision      []byte
}

// Share encodes a plan; o tells why it was made.
func (s *Sharer) Share(p *Plan, o Origin) (*Shared, error) {
	api, discovered := dividedOwners(p.Topology.Owners)
	header, err := json.Marshal(sharedHeader{ //nolint:musttag // fields without a tag go by their names
		Version: p.Version, Made: p.Made, Trigger: p.Trigger, Origin: o, Paused: p.Paused, Provisional: p.Provisional, Final: p.Final,
		Revision: p.Topology.Revision,
		Latency:  p.Topology.Network.Rules(), Egress: p.Topology.Network.Egress(), Awaited: p.Topology.Awaited, API: api, Discovered: discovered,
		Objective: p.Objective, LowerBound: p.LowerBound, Gap: p.Gap, ExcessMS: p.ExcessMS, PlanGap: p.PlanGap, Violations: p.Violations,
	})
	if err != nil {
		return nil, fmt.Errorf("plan %d can't be encoded: %w", p.Version, err)
	}
	out := &Shared{Header: header, Services: make([]SharedService, 0, len(p.Services))}
	next := make(map[string]sharedBefore, len(p.Services))
	for _, service := range p.Services {
		name := service.Spec.Name
		b, err := s.services[name].next(service)
		if err != nil {
			return nil, fmt.Errorf("plan %d, service %q can't be encoded: %w", p.Version, name, err)
		}
		next[name] = b
		out.Services = append(out.Services, SharedService{Name: name, Configuration: b.configuration, Decision: b.decision})
	}
	s.services = next
	return out, nil
}

// dividedOwners divides the services that do not belong to the configuration file.
func dividedOwners(owners map[string]string) (api []string, discovered map[string]string) {
	for name, owner := range owners { //isobar:sorted the list is sorted below, the map has no order
		if owner == isobar.OwnerAPI {
			api = append(api, name)
			continue
		}
		if discovered == nil {
			discovered = map[string]string{}
		}
		discovered[name] = owner
	}
	slices.Sort(api)
	return api, discovered
}

// owners joins what dividedOwners divided; nil where there are none.
func (h *sharedHeader) owners() map[string]string {
	if len(h.API)+len(h.Discovered) == 0 {
		return nil
	}
	out := make(map[string]string, len(h.API)+len(h.Discovered))
	for _, name := range h.API {
		out[name] = isobar.OwnerAPI
	}
	maps.Copy(out, h.Discovered)
	return out
}

// next encodes a service that follows the one of b.
func (b sharedBefore) next(s *Service) (sharedBefore, error) {
	if b.service == s {
		return b, nil
	}
	g := groupsOf(s)
	if b.service == nil || !sameSpec(b.service.Spec, s.Spec) || !slices.Equal(b.groups, g.list) {
		data, err := json.Marshal(sharedConfiguration{Spec: s.Spec, Groups: g.list})
		if err != nil {
			return b, err
		}
		b.configuration = data
	}
	decision := appendjson.New(make([]byte, 0, len(b.decision)+len(b.decision)/8))
	appendDecision(decision, g.decision(s))
	data, err := decision.Bytes()
	if err != nil {
		return b, err
	}
	b.service, b.groups, b.decision = s, g.list, data
	return b, nil
}

// groupIndex numbers the endpoint groups of a service.
type groupIndex struct {
	list []*isobar.EndpointGroup
	at   map[*isobar.EndpointGroup]int
	next int // after the last one that was looked up: most lists have the same order
}

func groupsOf(s *Service) *groupIndex {
	g := &groupIndex{at: map[*isobar.EndpointGroup]int{}}
	for i := range s.Sites {
		g.index(s.Sites[i].Group)
	}
	for i := range s.Result.Sites {
		g.index(s.Result.Sites[i].Group)
	}
	for _, group := range s.Result.Groups {
		g.index(group)
	}
	for i := range s.Result.Sources {
		a := s.Result.Sources[i].Assignment
		if a == nil {
			continue
		}
		for _, p := range a.Priorities {
			for j := range p {
				g.index(p[j].EndpointGroup)
			}
		}
	}
	return g
}

func (g *groupIndex) index(group *isobar.EndpointGroup) int {
	if g.next < len(g.list) && g.list[g.next] == group {
		g.next++
		return g.next - 1
	}
	i, ok := g.at[group]
	if !ok {
		i = len(g.list)
		g.at[group] = i
		g.list = append(g.list, group)
	}
	g.next = i + 1
	return i
}

func (g *groupIndex) decision(s *Service) *sharedDecision {
	r := s.Result
	d := &sharedDecision{
		Saved: saveService(s), Coverage: s.Coverage, Hold: s.Hold, Paused: s.Paused, Inputs: s.Inputs, Deviations: s.Deviations, Limited: s.Limited,
		Costs: s.CallCosts, Callers: s.Callers, Joint: s.Joint, Alone: s.Alone, Gap: s.PlanGap, Policy: [2]float64{s.PolicyGap, s.PolicyMS},
		Sites: g.sites(s.Sites),
		Result: sharedResult{
			Sites: g.sites(r.Sites), Drop: r.Drop, Classes: r.Classes, Load: r.Load, Mode: r.Mode, Policy: r.Policy, MaxShift: r.MaxShift,
			Settings: r.Settings, Over: r.Over,
		},
	}
	if s.Problem != nil && s.Solution != nil && (policyOf(s.Spec) != nil || s.decays()) {
		d.Solved = &sharedSolution{Problem: s.Problem, Solution: s.Solution, Sources: s.Solved}
	}
	for _, group := range r.Groups {
		d.Result.Groups = append(d.Result.Groups, g.index(group))
	}
	for i := range r.Sources {
		d.Result.Sources = append(d.Result.Sources, g.source(&r.Sources[i]))
	}
	return d
}

func (g *groupIndex) sites(sites []assign.Site) []sharedSite {
	out := make([]sharedSite, len(sites))
	g.next = 0
	for i := range sites {
		s := &sites[i]
		out[i] = sharedSite{
			Group: g.index(s.Group), Nominal: s.Nominal, Capacity: s.Capacity, Ceiling: s.Ceiling, Scale: s.Scale, Unmanaged: s.Unmanaged,
			Preferred: s.Preferred, Unreachable: s.Unreachable, Drained: s.Drained,
		}
	}
	return out
}

func (g *groupIndex) source(r *assign.SourceResult) sharedSource {
	out := sharedSource{
		Source: r.Source, Demand: r.Demand, Mix: r.Mix, Target: r.Target, Want: r.Want, Shares: r.Shares, Below: r.Below, Reasons: r.Reasons,
	}
	if r.Assignment == nil {
		return out
	}
	a := *r.Assignment
	for _, p := range a.Priorities {
		weights := make([]sharedWeight, len(p))
		for j := range p {
			weights[j] = sharedWeight{uint32(g.index(p[j].EndpointGroup)), p[j].Weight} //nolint:gosec // a service has few groups
		}
		out.Priorities = append(out.Priorities, weights)
	}
	a.Priorities = nil
	out.Assignment = &a
	return out
}

// compareShared orders services by name.
func compareShared(a, b SharedService) int { return strings.Compare(a.Name, b.Name) }
