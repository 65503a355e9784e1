package plan

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
)

// routes says how sources reach the sites of a service: at which latency and
// price, and which sites are open to which source.
type routes struct {
	spec    *isobar.Service
	network *isobar.Network
	sites   sites
	extra   []float64 // per site, ms: what requests cost there beyond what is usual; nil = nothing
	last    *Service  // whose latencies are the same; nil = none
}

// latency returns the latency from a source to each site, ms. The caller must not
// change it.
func (r *routes) latency(source isobar.Locality) []float64 {
	if r.last != nil && r.last.Problem != nil {
		if s, ok := slices.BinarySearchFunc(r.last.Solved, source, isobar.Locality.Compare); ok {
			return r.last.Problem.Latency[s]
		}
	}
	out := make([]float64, len(r.sites))
	for l := range r.sites {
		out[l], _ = r.network.Latency(source, r.sites[l].Group.Locality)
	}
	return out
}

// prices returns what a request from a source to each site costs beside its time,
// in ms; nil where there are none.
func (r *routes) prices(source isobar.Locality) []float64 { return r.pricesWith(source, r.extra) }

// pricesWith is prices with what requests cost in each site beyond what is usual, ms; nil =
// nothing.
func (r *routes) pricesWith(source isobar.Locality, extra []float64) []float64 {
	if len(r.network.Egress()) == 0 && extra == nil {
		return nil
	}
	out := make([]float64, len(r.sites))
	copy(out, extra)
	for l := range r.sites {
		out[l] += r.network.Price(source, r.sites[l].Group.Locality)
	}
	return out
}

// costs returns latency and price from a source to each site, ms. Where a mode keeps clients
// at or around the nearest locality, what requests experience does not move that one.
func (r *routes) costs(source isobar.Locality, mode isobar.Mode) []float64 {
	out := r.latency(source)
	extra := r.extra
	if mode != isobar.ModeFull {
		extra = nil
	}
	prices := r.pricesWith(source, extra)
	if prices != nil {
		out = slices.Clone(out)
	}
	for l, price := range prices {
		out[l] += price
	}
	return out
}

// confines reports whether some sources may not use all localities.
func confines(spec *isobar.Service) bool {
	return spec.Isolation != isobar.IsolationNone || len(spec.Residency) > 0
}

// confined tells, per site, where a source must never send, and what is for its
// failover only; nil = nothing. With isolation nearest that is everything outside
// the nearest region in which there is capacity that the source may use.
func (r *routes) confined(s *sourceDemand) (forbidden, reserve []bool) {
	if !confines(r.spec) {
		return nil, nil
	}
	forbidden, reserve = make([]bool, len(r.sites)), make([]bool, len(r.sites))
	some := false
	for l := range r.sites {
		forbidden[l] = !r.spec.Allows(s.source, r.sites[l].Group.Locality)
		some = some || forbidden[l]
	}
	if !some {
		forbidden = nil
	}
	region, ok := r.nearestRegion(s, forbidden)
	if !ok {
		return forbidden, nil
	}
	for l := range r.sites {
		reserve[l] = r.sites[l].Group.Locality.Region != region
	}
	return forbidden, reserve
}

// nearestRegion is where isolation keeps a source while anything is healthy
// there.
func (r *routes) nearestRegion(s *sourceDemand, forbidden []bool) (region string, ok bool) {
	if r.spec.Isolation != isobar.IsolationNearest || s.source.IsZero() {
		return "", false
	}
	best := math.Inf(1)
	for l := range r.sites {
		if r.sites[l].Capacity <= 0 || (forbidden != nil && forbidden[l]) || (s.barred != nil && s.barred[l]) {
			continue
		}
		at := r.sites[l].Group.Locality
		ms, _ := r.network.Latency(s.source, at)
		if ms < best || (ms == best && at.Region == s.source.Region) {
			region, best = at.Region, ms
		}
	}
	return region, !math.IsInf(best, 1)
}

// allowed returns which sites a source may use. Bars do not count where they would
// leave it nothing; what is forbidden stays so.
func (r *routes) allowed(s *sourceDemand) []bool {
	forbidden, reserve := r.confined(s)
	row := make([]bool, len(r.sites))
	fill := func(barred []bool) (some bool) {
		for l := range row {
			row[l] = (barred == nil || !barred[l]) && (forbidden == nil || !forbidden[l]) && (reserve == nil || !reserve[l])
			some = some || (row[l] && r.sites[l].Capacity > 0)
		}
		return some
	}
	if !fill(s.barred) {
		fill(nil)
	}
	return row
}
