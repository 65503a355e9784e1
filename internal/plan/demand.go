package plan

import (
	"iter"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

// sourceDemand is a source with what it wants to send that can be steered.
type sourceDemand struct {
	source isobar.Locality
	demand float64 // requests/s, unmanaged load taken off
	barred []bool  // per site
}

// sources lists the sources of a service, sorted.
type sources []sourceDemand

// minDemand is the rate below which a source counts as silent, requests/s.
const minDemand = 1e-3

// gatherSources lists the sources of a service: those with demand and those that
// only watch.
func gatherSources(of *Service, at sites, subscribed []load.Subscription) sources {
	byLocality := map[isobar.Locality]float64{}
	var order []isobar.Locality
	add := func(l isobar.Locality, demand float64) {
		if _, known := byLocality[l]; !known {
			order = append(order, l)
		}
		byLocality[l] += demand
	}
	if of.Load != nil {
		for i := range of.Load.Sources {
			if s := &of.Load.Sources[i]; s.Demand >= minDemand {
				add(s.Source, s.Demand)
			}
		}
	}
	from, _ := slices.BinarySearchFunc(subscribed, of.Spec.Name, func(s load.Subscription, n string) int { return strings.Compare(s.Service, n) })
	for _, s := range subscribed[from:] {
		if s.Service != of.Spec.Name {
			break
		}
		add(s.Source, 0)
	}
	for _, b := range of.Deviations.Unmanaged {
		if b.Failover || of.Mode() == isobar.ModeObserve {
			continue // still to be steered, as soon as it can be
		}
		if _, known := byLocality[b.Source]; known {
			byLocality[b.Source] = max(0, byLocality[b.Source]-b.Rate)
		}
	}
	slices.SortFunc(order, isobar.Locality.Compare)
	out := make(sources, len(order))
	for i, l := range order {
		demand := byLocality[l]
		if demand < minDemand {
			demand = 0
		}
		out[i] = sourceDemand{source: l, demand: demand, barred: barredFrom(of, at, l)}
	}
	return out
}

// barredFrom returns which sites the source was seen not to reach; nil for none.
func barredFrom(of *Service, at sites, source isobar.Locality) []bool {
	if of.Mode() == isobar.ModeObserve {
		return nil
	}
	return at.marked(func(yield func(isobar.Locality) bool) {
		for _, b := range of.Deviations.Barred {
			if b.Source == source && !yield(b.Locality) {
				return
			}
		}
	})
}

// chosenBy returns to which sites clients of a source send more than planned; nil for none.
func chosenBy(of *Service, at sites, source isobar.Locality) []bool {
	if of.Mode() == isobar.ModeObserve {
		return nil
	}
	return at.marked(func(yield func(isobar.Locality) bool) {
		for _, b := range of.Deviations.Unmanaged {
			if b.Source == source && !b.Failover && !yield(b.Locality) {
				return
			}
		}
	})
}

// marked tells, per site, whether it is among localities; nil if none is.
func (s sites) marked(localities iter.Seq[isobar.Locality]) (out []bool) {
	for l := range localities {
		if i := s.index(l); i >= 0 {
			if out == nil {
				out = make([]bool, len(s))
			}
			out[i] = true
		}
	}
	return out
}

// find returns where a source stands or would stand.
func (s sources) find(source isobar.Locality) (int, bool) {
	return slices.BinarySearchFunc(s, source, func(s sourceDemand, l isobar.Locality) int { return s.source.Compare(l) })
}

// total is the demand of all sources, requests/s.
func (s sources) total() float64 {
	sum := 0.0
	for i := range s {
		sum += s[i].demand
	}
	return sum
}

// plannedLoad returns the load that the assigned shares send to each of n sites, requests/s.
func (s sources) plannedLoad(r *assign.Result, n int) []float64 {
	out := make([]float64, n)
	for i := range s {
		of := r.Source(s[i].source)
		if of == nil {
			continue
		}
		for l, share := range of.Shares {
			out[l] += s[i].demand * share * (1 - r.DropOf(of))
		}
	}
	return out
}
