package plan

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// LimitExplained is one limit of a service in one locality. Rates are requests/s
// of all its healthy endpoints, without what nobody reports.
type LimitExplained struct {
	Metric string          `json:"metric"`
	Max    float64         `json:"max"` // of an endpoint
	DryRun bool            `json:"dry_run,omitempty"`
	State  load.LimitState `json:"state"`
	Value  float64         `json:"value"` // of an endpoint, in the newest reports

	Capacity float64 `json:"capacity,omitempty"` // rate at which the quantity reaches its limit; 0 = can't tell
	Low      float64 `json:"low,omitempty"`      // of the interval; 0 = there is none
	High     float64 `json:"high,omitempty"`
	// Allowed is what the limit lets land: it follows Capacity at a bounded pace,
	// and stays for a while when the estimate is inconclusive; 0 = the limit is not in force.
	Allowed float64 `json:"allowed,omitempty"`
	// Counts says that no other limit, and not the capacity either, allows less. Of a
	// dry run, that it would count.
	Counts bool    `json:"counts"`
	Kept   bool    `json:"kept,omitempty"`   // it would allow less, but a part of the capacity always stays
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
		out += ", can't tell: " + string(l.State)
	}
	if l.Allowed > 0 && l.State != load.LimitExact {
		out += fmt.Sprintf(", %.0f/s allowed", l.Allowed)
	}
	switch {
	case l.Counts && l.DryRun:
		out += ", would count"
	case l.Counts:
		out += ", counts"
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
		return fmt.Sprintf("%s: %s is %s, above its limit of %s, and does not follow the rate: taking load away does not help",
			at, l.Metric, number(l.Value), number(l.Max))
	case l.Kept && l.Counts && !l.DryRun:
		return fmt.Sprintf("%s: the limit of %s allows less than %.0f%% of the declared or expected capacity, and Isobar removes no more load: "+
			"look at max_rate, or at the metric", at, l.Metric, 100*leastKept)
	}
	return ""
}
