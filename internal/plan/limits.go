package plan

import (
	"slices"

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
	for _, b := range p.of.Findings.Unreported {
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
		out.Room = max(0, headroom-hidden) / scaler
	}
}
