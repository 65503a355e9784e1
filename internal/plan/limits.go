package plan

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// leastKept is the part of what a locality may carry anyway that limits on
// measured quantities leave it, whatever is reported: a metric that is wrong must
// not take a fleet away that is fine.
const leastKept = 0.5

// LimitedSite is what the limits of a service make of one locality. Rates are
// requests/s, what does not obey included.
type LimitedSite struct {
	// Headroom is what may land without limits: ceiling times capacity, as declared or
	// learned; 0 where neither is known.
	Headroom float64 `json:"room"` // as replicas of earlier versions call it
	// By is the limit that counts, as an index into the service's Limits; -1 =
	// what is declared, learned or taken as equal allows less than all of them.
	By int
}

// learnedIn returns what a plan knows about capacities and limits, as the input of
// another one.
func learnedIn(p *Plan) []LearnedService {
	out := make([]LearnedService, len(p.Services))
	for i, s := range p.Services {
		out[i] = LearnedService{Service: s.Spec.Name, Localities: s.Learned, Dimensions: s.Dimensions, Observed: s.Observed}
	}
	return out
}

// dimension finds what is known of a limit; nil when nothing is.
func (p PlannedSite) dimension(limit *isobar.Limit) *load.Dimension {
	l, all := p.locality(), p.of.Dimensions
	i, _ := slices.BinarySearchFunc(all, l, func(x load.Dimension, l isobar.Locality) int { return x.Locality.Compare(l) })
	for ; i < len(all) && all[i].Locality == l; i++ {
		if d := &all[i]; d.Limit.Metric == limit.Metric && d.Limit.DryRun == limit.DryRun {
			return d
		}
	}
	return nil
}

// size counts the endpoints of a locality that take traffic, each by what it can
// serve against the mean of them all; 0 where none may.
func size(sl *isobar.ServiceLocality, group *isobar.EndpointGroup) float64 {
	rates, declared := endpointRates(sl)
	var all, usable float64
	for i := range sl.Endpoints {
		part := rates[i]
		if !declared {
			part = float64(max(1, sl.Endpoints[i].Weight))
		}
		all += part
		if group.Endpoints[i].Health.Usable() {
			usable += part
		}
	}
	if all <= 0 {
		return 0
	}
	return usable / all * float64(len(sl.Endpoints))
}

// allows is what a limit lets clients that report land there, requests/s, 0
// where the estimate is inconclusive, and whether it would be less but for what every site
// keeps.
func (p PlannedSite) allows(limit *isobar.Limit, group *isobar.EndpointGroup, headroom float64) (rate float64, kept bool) {
	sl := p.spec()
	endpoints := size(sl, group) * orDefault(sl.CapacityScaler, 1)
	if limit.Metric == isobar.MetricRate {
		return max(negligible, limit.Max*endpoints-p.unreported()), false
	}
	known := p.dimension(limit)
	if known == nil || known.InUse <= 0 {
		return 0, false
	}
	rate = known.InUse * endpoints
	if least := p.kept(endpoints, headroom); rate <= least*(1+1e-9) {
		return least, least > 0
	}
	return rate, false
}

// negligible is what is left, requests/s, where what does not obey takes more
// than a limit allows.
const negligible = 1e-3

// kept is what clients that report may land there whatever is reported: a
// part of what they may land there anyway, or, where nothing is known of the site
// itself, of what they land on as many endpoints on average. What is known of its
// neighbours does not count: a limit that works would be lifted when they learn.
func (p PlannedSite) kept(endpoints, headroom float64) float64 {
	s := p.of
	if headroom > 0 && !p.borrows() || s.Load == nil {
		return leastKept * max(0, headroom-p.unreported())
	}
	var landed, all float64
	for j := range s.Load.Sites {
		landed += s.Load.Sites[j].Issued
	}
	for j := range s.Spec.Localities {
		all += float64(len(s.Spec.Localities[j].Endpoints))
	}
	return leastKept * landed * endpoints / max(1, all)
}

// borrows reports whether it counts with a capacity that is known of its
// neighbours only.
func (p PlannedSite) borrows() bool {
	if _, declared := endpointRates(p.spec()); declared {
		return false
	}
	if k := p.learned(); k != nil && k.InUse > 0 {
		return false
	}
	o := p.observed()
	return o == nil || o.InUse <= 0 || !p.of.Spec.CapacityTrust.Observed()
}

// unreported is the load that no client reports, requests/s: limits
// are learned from what is.
func (p PlannedSite) unreported() float64 {
	out := p.spec().UnmanagedLoad
	for _, b := range p.of.Deviations.Unreported {
		if b.Locality == p.locality() {
			out += b.Rate
		}
	}
	return out
}

// addLimits fills in what learning the limits needs.
func (p PlannedSite) addLimits(out *load.Site) {
	s, i := p.of, p.index
	if len(s.Spec.Limits) == 0 || s.Limited == nil || s.Sites[i].Capacity <= 0 {
		return
	}
	sl := p.spec()
	scaler := orDefault(sl.CapacityScaler, 1)
	site, hidden := p.site(), p.unreported()
	headroom := s.Limited[i].Headroom
	out.Size = size(sl, site.Group)
	out.Allowed = max(0, site.Ceiling*site.Capacity-hidden) / scaler
	out.Least = p.kept(out.Size*scaler, headroom) / scaler
	if headroom > 0 {
		out.Headroom = max(0, headroom-hidden) / scaler
	}
}

// LimitExplained is one limit of a service in one locality. Rates are requests/s of all its healthy
// endpoints, without unreported load.
type LimitExplained struct {
	Metric string          `json:"metric"`
	Max    float64         `json:"max"` // of an endpoint
	DryRun bool            `json:"dry_run,omitempty"`
	State  load.LimitState `json:"state"`
	Value  float64         `json:"value"` // of an endpoint, in the newest reports

	Capacity float64 `json:"capacity,omitempty"` // rate at which the quantity reaches its limit; 0 = inconclusive
	Low      float64 `json:"low,omitempty"`      // of the interval; 0 = there is none
	High     float64 `json:"high,omitempty"`
	// Allowed is the rate that the limit allows: it follows Capacity at a bounded pace, and stays
	// for a while if the estimate is inconclusive; 0 = the limit is not in force.
	Allowed float64 `json:"allowed,omitempty"`
	// Counts reports whether the limit binds: neither another limit nor the capacity allows less.
	// For a dry run, whether it would bind.
	Counts bool    `json:"counts"`
	Kept   bool    `json:"kept,omitempty"`   // it would allow less, but a part of the capacity always remains
	AgeMS  float64 `json:"age_ms,omitempty"` // of the newest report of the quantity, when the plan was made
}

// String says it in words.
func (l *LimitExplained) String() string {
	out := fmt.Sprintf("%s %s of %s", l.Metric, number(l.Value), number(l.Max))
	if l.State == load.LimitAbsent {
		out = fmt.Sprintf("%s at most %s", l.Metric, number(l.Max))
	}
	if l.DryRun {
		out = "dry run: " + out
	}
	switch {
	case l.State == load.LimitExact:
		out += fmt.Sprintf(", %.0f/s", l.Capacity)
	case l.Low > 0:
		out += fmt.Sprintf(", reached at %.0f/s (%.0f to %.0f)", l.Capacity, l.Low, l.High)
	case l.Capacity > 0:
		out += fmt.Sprintf(", reached at about %.0f/s: %s", l.Capacity, l.State)
	default:
		out += ", inconclusive: " + string(l.State)
	}
	if l.Allowed > 0 && l.State != load.LimitExact {
		out += fmt.Sprintf(", %.0f/s allowed", l.Allowed)
	}
	switch {
	case l.Counts && l.DryRun:
		out += ", would bind"
	case l.Counts:
		out += ", binds"
	}
	if l.Kept {
		out += fmt.Sprintf(" (never less than %.0f%% of what it may carry anyway)", 100*leastKept)
	}
	return out
}

// number shows a quantity of any size in few digits.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// Limits tells what is known of each limit of the service there, in the order of the
// configuration, for a plan that was made at a time.
func (p PlannedSite) Limits(made time.Time) []LimitExplained {
	s := p.of
	if s.Limited == nil {
		return nil
	}
	out := make([]LimitExplained, len(s.Spec.Limits))
	for j := range s.Spec.Limits {
		out[j] = p.limit(j, made)
	}
	return out
}

func (p PlannedSite) limit(j int, made time.Time) LimitExplained {
	sl, site, limit, limited := p.spec(), p.site(), &p.of.Spec.Limits[j], &p.of.Limited[p.index]
	x := LimitExplained{Metric: limit.Metric, Max: limit.Max, DryRun: limit.DryRun, State: load.LimitAbsent}
	endpoints := size(sl, site.Group) * orDefault(sl.CapacityScaler, 1)
	if site.Capacity <= 0 {
		endpoints = 0
	}
	known, hidden := p.dimension(limit), p.unreported()
	switch {
	case limit.Metric == isobar.MetricRate:
		x.State, x.Capacity = load.LimitExact, max(0, limit.Max*endpoints-hidden)
		if landed := p.landed(); landed != nil && endpoints > 0 {
			x.Value = landed.Issued * orDefault(sl.CapacityScaler, 1) / endpoints
		}
	case known == nil:
		return x
	default:
		x.State, x.Value = known.State, known.Value
		x.Capacity, x.Low, x.High = known.PerEndpoint*endpoints, known.Low*endpoints, known.High*endpoints
		if !known.At.IsZero() {
			x.AgeMS = made.Sub(known.At).Seconds() * 1000
		}
	}
	if endpoints > 0 {
		x.Allowed, x.Kept = p.allows(limit, site.Group, limited.Headroom)
	}
	x.Counts = limited.By == j
	if limit.DryRun {
		x.Counts = x.Allowed > 0 && x.Allowed < site.Ceiling*site.Capacity-hidden
	}
	return x
}

// landed is what arrived there; nil when nothing was reported.
func (p PlannedSite) landed() *load.SiteLoad {
	measured, at := p.of.Load, p.locality()
	if measured == nil {
		return nil
	}
	i := slices.IndexFunc(measured.Sites, func(x load.SiteLoad) bool { return x.Locality == at })
	if i < 0 {
		return nil
	}
	return &measured.Sites[i]
}

// What allows a locality the least, where no limit does.
const (
	CountsDeclared   = "max_rate"
	CountsLearned    = "learned capacity"
	CountsEqualShare = "equal share"
)

// Counting names what allows the locality the least: the metric of a limit, or one
// of the Counts constants.
func (p PlannedSite) Counting() string {
	s := p.of
	if s.Limited != nil && s.Limited[p.index].By >= 0 {
		return s.Spec.Limits[s.Limited[p.index].By].Metric
	}
	switch _, declared := endpointRates(p.spec()); {
	case declared:
		return CountsDeclared
	case s.learns():
		return CountsLearned
	}
	return CountsEqualShare
}

// LimitWarnings name limits of a service that do not do what they are there for, for a
// plan that was made at a time.
func LimitWarnings(s *Service, made time.Time) []Trouble {
	var out []Trouble
	for i := range s.Sites {
		at := s.Site(i)
		limits := at.Limits(made)
		for j := range limits {
			if text := at.limitWarning(&limits[j]); text != "" {
				out = append(out, Trouble{TroubleLimit, s.Sites[i].Group.Locality, text})
			}
		}
	}
	return out
}

func (p PlannedSite) limitWarning(l *LimitExplained) string {
	at := p.locality()
	switch {
	case l.State == load.LimitAbsent:
		if landed := p.landed(); landed != nil && landed.Issued >= minDemand {
			return fmt.Sprintf("%s has a limit of %s, but no load report contains it: the limit is not in force", at, l.Metric)
		}
	case l.State == load.LimitStale:
		return fmt.Sprintf("%s: %s is not reported any more; its limit stays for a while", at, l.Metric)
	case l.State == load.LimitPoor && l.Value > l.Max:
		return fmt.Sprintf("%s: %s is %s, above its limit of %s, and does not follow the rate: removing load does not help",
			at, l.Metric, number(l.Value), number(l.Max))
	case l.Kept && l.Counts && !l.DryRun:
		return fmt.Sprintf("%s: the limit of %s allows less than %.0f%% of the declared or expected capacity, and Isobar removes no more load: "+
			"look at max_rate, or at the metric", at, l.Metric, 100*leastKept)
	}
	return ""
}
