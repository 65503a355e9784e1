package sim

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// Metric is a quantity that endpoints report with their responses, under a name
// of their own. It grows in a straight line with their true utilization.
type Metric struct {
	Service  string
	Locality isobar.Locality // a locality, or a region or zone with all in it; zero = all
	Name     string
	AtRest   float64
	Full     float64 // at utilization 1
}

// report is what the endpoints of a site tell with so many requests, at a mean
// utilization; nil for nothing.
func (s *service) report(i int, requests uint64, utilization float64) *load.LocalityDetails {
	var out []load.MetricSum
	n := float64(requests)
	if s.spec.ORCA.On {
		out = append(out, load.MetricSum{Name: load.MetricApplication, Requests: requests, Total: n * utilization})
	}
	for _, m := range s.metrics {
		if within(s.sites[i].locality, m.Locality) {
			out = append(out, load.MetricSum{Name: m.Name, Requests: requests, Total: n * (m.AtRest + (m.Full-m.AtRest)*utilization)})
		}
	}
	if out == nil {
		return nil
	}
	slices.SortFunc(out, func(a, b load.MetricSum) int { return strings.Compare(a.Name, b.Name) })
	return &load.LocalityDetails{Metrics: out}
}
