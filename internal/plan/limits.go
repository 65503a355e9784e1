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
	// Room is what may land without limits: ceiling times capacity, as declared or
	// learned; 0 where neither is known.
	Room float64
	// By is the limit that counts, as an index into the service's Limits; -1 =
	// what is declared, learned or taken as equal allows less than all of them.
	By int
}

// learned returns what a plan knows about capacities and limits, as the input of
// another one.
func (p *Plan) learned() []LearnedService {
	out := make([]LearnedService, len(p.Services))
	for i, s := range p.Services {
		out[i] = LearnedService{Service: s.Spec.Name, Localities: s.Learned, Dimensions: s.Dimensions, Observed: s.Observed}
	}
	return out
}

// dimension finds what is known of a limit in a locality; nil when nothing is.
func (s *Service) dimension(l isobar.Locality, limit *isobar.Limit) *load.Dimension {
	i, _ := slices.BinarySearchFunc(s.Dimensions, l, func(x load.Dimension, l isobar.Locality) int { return x.Locality.Compare(l) })
	for ; i < len(s.Dimensions) && s.Dimensions[i].Locality == l; i++ {
		if d := &s.Dimensions[i]; d.Limit.Metric == limit.Metric && d.Limit.DryRun == limit.DryRun {
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

// allows is what a limit lets clients that report land in a site, requests/s, 0
// where there is no telling, and whether it would be less but for what every site
// keeps.
func (s *Service) allows(i int, limit *isobar.Limit, group *isobar.EndpointGroup, room float64) (rate float64, kept bool) {
	sl := &s.Spec.Localities[i]
	endpoints := size(sl, group) * orDefault(sl.CapacityScaler, 1)
	if limit.Metric == isobar.MetricRate {
		return max(negligible, limit.Max*endpoints-s.unreported(i)), false
	}
	known := s.dimension(sl.Locality, limit)
	if known == nil || known.InUse <= 0 {
		return 0, false
	}
	rate = known.InUse * endpoints
	if least := s.kept(i, endpoints, room); rate <= least*(1+1e-9) {
		return least, least > 0
	}
	return rate, false
}

// negligible is what is left, requests/s, where what does not obey takes more
// than a limit allows.
const negligible = 1e-3

// kept is what clients that report may land in a site whatever is reported: a
// part of what they may land there anyway, or, where nothing is known of the site
// itself, of what they land on as many endpoints on average. What is known of its
// neighbours does not count: a limit that works would be lifted when they learn.
func (s *Service) kept(i int, endpoints, room float64) float64 {
	if room > 0 && !s.borrows(i) || s.Load == nil {
		return leastKept * max(0, room-s.unreported(i))
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

// borrows reports whether a site counts with a capacity that is known of its
// neighbours only.
func (s *Service) borrows(i int) bool {
	sl := &s.Spec.Localities[i]
	if _, declared := endpointRates(sl); declared {
		return false
	}
	if k := s.learned(sl.Locality); k != nil && k.InUse > 0 {
		return false
	}
	o := s.observed(sl.Locality)
	return o == nil || o.InUse <= 0 || !s.Spec.CapacityTrust.Observed()
}

// unreported is the load of a site that no client reports, requests/s: limits
// are learned from what is.
func (s *Service) unreported(i int) float64 {
	out := s.Spec.Localities[i].UnmanagedLoad
	for _, b := range s.Findings.Unreported {
		if b.Locality == s.Spec.Localities[i].Locality {
			out += b.Rate
		}
	}
	return out
}

// tellLimits fills in what learning the limits of a site needs.
func (s *Service) tellLimits(i int, out *load.Site) {
	if len(s.Spec.Limits) == 0 || s.Limited == nil || s.Sites[i].Capacity <= 0 {
		return
	}
	sl := &s.Spec.Localities[i]
	scaler := orDefault(sl.CapacityScaler, 1)
	site, hidden := &s.Sites[i], s.unreported(i)
	room := s.Limited[i].Room
	out.Size = size(sl, site.Group)
	out.Allowed = max(0, site.Ceiling*site.Capacity-hidden) / scaler
	out.Least = s.kept(i, out.Size*scaler, room) / scaler
	if room > 0 {
		out.Room = max(0, room-hidden) / scaler
	}
}
