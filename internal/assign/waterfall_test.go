package assign_test

import (
	"cmp"
	"slices"

	"github.com/isobar-xds/isobar/internal/assign"
)

// waterfall is a stand-in for the solver: the nearest pairs first, ceilings and
// bars kept, all ceilings raised alike until it fits.
func waterfall(sites []assign.Site, sources []assign.Source, maxShed float64) (prices []float64, shed float64) {
	demand, room := 0.0, 0.0
	for _, s := range sources {
		demand += s.Demand
	}
	limits := make([]float64, len(sites))
	for i := range sites {
		sites[i].Scale = 1
		limits[i] = sites[i].Limit()
		room += limits[i]
	}
	if demand <= 0 || room <= 0 {
		return nil, 0
	}
	if demand > room {
		shed = min(maxShed, 1-room/demand)
	}
	factor := max(1, demand*(1-shed)/room*(1+1e-9))
	for !pour(sites, sources, limits, factor, shed) {
		factor *= 1.05
	}
	prices = make([]float64, len(sites))
	for l := range prices {
		load := 0.0
		for _, s := range sources {
			if s.Target != nil {
				load += s.Demand * (1 - shed) * s.Target[l]
			}
		}
		prices[l] = 5 * load / max(1, factor*limits[l])
		if s := &sites[l]; s.Capacity > 0 && factor > 1 && limits[l] > 0 {
			// The limit has background taken off, so the factor is worked out on it.
			s.Scale = (limits[l]*factor*(1+1e-9) + s.Background) / (s.Ceiling * s.Capacity)
		}
	}
	return prices, shed
}

func pour(sites []assign.Site, sources []assign.Source, limits []float64, factor, shed float64) bool {
	type pair struct {
		s, l int
		ms   float64
	}
	var pairs []pair
	left := make([]float64, len(sources))
	free := make([]float64, len(sites))
	for l := range free {
		free[l] = limits[l] * factor
	}
	for i := range sources {
		s := &sources[i]
		if s.Target = nil; s.Demand > 0 {
			left[i] = s.Demand * (1 - shed)
			s.Target = make([]float64, len(sites))
		}
		barred := false // bars that leave nothing do not count
		for l := range sites {
			barred = barred || (limits[l] > 0 && !s.Barred[l] && !closed(s, l))
		}
		some := false
		for l := range sites {
			if (!barred || !s.Barred[l]) && !closed(s, l) {
				pairs = append(pairs, pair{i, l, s.Distance[l]})
				some = some || limits[l] > 0
			}
		}
		if !some {
			s.Target, left[i] = nil, 0 // it can't go anywhere
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(a.ms, b.ms) })
	for _, p := range pairs {
		if x := min(left[p.s], free[p.l]); x > 0 {
			left[p.s] -= x
			free[p.l] -= x
			sources[p.s].Target[p.l] += x / (sources[p.s].Demand * (1 - shed))
		}
	}
	for i := range sources {
		if left[i] > 1e-9*sources[i].Demand {
			return false
		}
		normalise(sources[i].Target)
	}
	return true
}

func closed(s *assign.Source, l int) bool {
	return (s.Forbidden != nil && s.Forbidden[l]) || (s.Reserve != nil && s.Reserve[l])
}

func normalise(v []float64) {
	t := 0.0
	for _, x := range v {
		t += x
	}
	for i := range v {
		v[i] /= t
	}
}
