package plan

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
)

// confines tells whether some sources may not use all localities.
func (d *draft) confines() bool {
	return d.Spec.Isolation != isobar.IsolationNone || len(d.Spec.Residency) > 0
}

// confined tells, per site, where a source must never send, and what is for its
// failover only; nil = nothing. With isolation nearest that is everything outside
// the nearest region in which there is capacity that the source may use.
func (d *draft) confined(s *sourceDemand) (forbidden, reserve []bool) {
	if !d.confines() {
		return nil, nil
	}
	forbidden, reserve = make([]bool, len(d.sites)), make([]bool, len(d.sites))
	some := false
	for l := range d.sites {
		forbidden[l] = !d.Spec.Allows(s.source, d.sites[l].Group.Locality)
		some = some || forbidden[l]
	}
	if !some {
		forbidden = nil
	}
	region, ok := d.nearestRegion(s, forbidden)
	if !ok {
		return forbidden, nil
	}
	for l := range d.sites {
		reserve[l] = d.sites[l].Group.Locality.Region != region
	}
	return forbidden, reserve
}

// nearestRegion is where isolation keeps a source while anything is healthy
// there.
func (d *draft) nearestRegion(s *sourceDemand, forbidden []bool) (region string, ok bool) {
	if d.Spec.Isolation != isobar.IsolationNearest || s.source.IsZero() {
		return "", false
	}
	best := math.Inf(1)
	for l := range d.sites {
		if d.sites[l].Capacity <= 0 || (forbidden != nil && forbidden[l]) || (s.barred != nil && s.barred[l]) {
			continue
		}
		at := d.sites[l].Group.Locality
		ms, _ := d.network.Latency(s.source, at)
		if ms < best || (ms == best && at.Region == s.source.Region) {
			region, best = at.Region, ms
		}
	}
	return region, !math.IsInf(best, 1)
}

// prices gives what a request from a source to each site costs beside its time,
// in ms; nil where there are none.
func (d *draft) prices(source isobar.Locality) []float64 { return d.pricesWith(source, d.extra) }

// pricesWith is prices with what requests cost in each site beyond what is usual, ms; nil =
// nothing.
func (d *draft) pricesWith(source isobar.Locality, extra []float64) []float64 {
	if len(d.network.Egress()) == 0 && extra == nil {
		return nil
	}
	out := make([]float64, len(d.sites))
	copy(out, extra)
	for l := range d.sites {
		out[l] += d.network.Price(source, d.sites[l].Group.Locality)
	}
	return out
}

// costs gives latency and price from a source to each site, ms. Where a mode keeps clients
// at or around the nearest locality, what requests experience does not move that one.
func (d *draft) costs(source isobar.Locality) []float64 {
	out := d.distances(source)
	extra := d.extra
	if d.Mode() != isobar.ModeFull {
		extra = nil
	}
	prices := d.pricesWith(source, extra)
	if prices != nil {
		out = slices.Clone(out)
	}
	for l, price := range prices {
		out[l] += price
	}
	return out
}
