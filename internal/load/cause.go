package load

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
)

// Likely causes of shares that differ from plan.
const (
	CauseFailover   = "failover"                       // a planned locality does not take its share, or lower tiers are in use
	CausePanic      = "panic"                          // too few healthy endpoints: shares follow all endpoints, healthy or not
	CauseUnweighted = "no locality-weighted policy"    // shares follow the number of endpoints
	CauseZoneAware  = "zone-aware routing"             // the source's own zone gets more than planned
	CauseUnknown    = "some clients use other weights" // none of these
)

// realised is the share of a locality in a window that was off plan.
type realised struct {
	locality       isobar.Locality
	share, planned float64
}

// alike is how near shares must come to a pattern to be taken for it.
const alike = 0.05

// cause guesses why a source's shares are off plan.
func (s *serviceEvidence) cause(src *sourceEvidence) string {
	for _, r := range src.realised {
		if src.lost(r.locality) && r.planned >= barShare {
			return CauseFailover
		}
		if p := src.find(r.locality); p != nil && p.failover && r.share-r.planned > offPoints/2 {
			return CauseFailover
		}
	}
	all, usable := 0, 0
	for i := range s.sites {
		all += s.sites[i].Endpoints
		usable += s.sites[i].Usable
	}
	if all > 0 && usable < all && src.follows(s.sites, func(x *Site) int { return x.Endpoints }) {
		return CausePanic
	}
	if all > 0 && src.follows(s.sites, func(x *Site) int { return x.Usable }) {
		return CauseUnweighted
	}
	for _, r := range src.realised {
		if r.locality.ZoneOnly() == src.source.ZoneOnly() && r.share-r.planned > offPoints/2 {
			return CauseZoneAware
		}
	}
	return CauseUnknown
}

// follows tells whether the realised shares are in proportion to a count of
// endpoints.
func (s *sourceEvidence) follows(sites []Site, count func(*Site) int) bool {
	total := 0
	for i := range sites {
		total += count(&sites[i])
	}
	if total == 0 {
		return false
	}
	for i := range sites {
		want := float64(count(&sites[i])) / float64(total)
		got := 0.0
		if j := slices.IndexFunc(s.realised, func(r realised) bool { return r.locality == sites[i].Locality }); j >= 0 {
			got = s.realised[j].share
		}
		if math.Abs(got-want) > alike {
			return false
		}
	}
	return true
}

// findings puts together what stands.
func (s *serviceEvidence) findings(l *ServiceLoad) Findings {
	f := Findings{Service: l.Name}
	for _, src := range s.sources {
		load := l.Source(src.source)
		for _, p := range src.pairs {
			if p.background > 0 && load != nil {
				f.Background = append(f.Background, Landing{
					Source: src.source, Locality: p.locality, Rate: p.background, Failover: p.failover,
				})
			}
			if !p.barred.IsZero() {
				f.Barred = append(f.Barred, Barred{Source: src.source, Locality: p.locality, Since: p.barred, Landed: p.found})
			}
		}
		f.Opening = append(f.Opening, s.openings(src)...)
		if src.round.Requests > 0 {
			f.Rounds = append(f.Rounds, src.round)
		}
		if src.off >= offWindows {
			f.Deviating = append(f.Deviating, Deviation{Source: src.source, Points: src.points, Cause: s.cause(src)})
		}
	}
	s.failures(&f)
	for _, e := range s.unreported {
		if e.windows > verdictWindows {
			f.Unreported = append(f.Unreported, Landing{Locality: e.locality, Rate: e.told()})
		}
	}
	return f
}
