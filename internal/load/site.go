package load

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// siteSums adds up the landed load per locality over all sources. The sources and streams come in
// a fixed order, so equal input gives equal sums.
type siteSums struct {
	sites []siteSum // sorted by locality
}

type siteSum struct {
	SiteLoad

	metrics []metricSum // sorted by name
}

// metricSum weighs each request that carried the metric by how far its stream
// counts.
type metricSum struct {
	name            string
	requests, total float64
}

func (s *siteSums) add(w *window, weight float64) {
	for i := range w.sites {
		ws := &w.sites[i]
		if ws.left {
			continue
		}
		where := ws.where()
		j, found := slices.BinarySearchFunc(s.sites, where, func(x siteSum, l isobar.Locality) int { return x.Locality.Compare(l) })
		if !found {
			s.sites = slices.Insert(s.sites, j, siteSum{SiteLoad: SiteLoad{Locality: where}})
		}
		x := &s.sites[j]
		x.Issued += ws.issued * weight
		x.Errors += ws.errors * weight
		x.Succeeded += ws.succeeded * weight
		x.InProgress += ws.inProgress * weight
		for _, m := range ws.told().metrics {
			x.metric(m, weight)
		}
		for _, e := range ws.told().endpoints {
			x.Endpoints = addEndpoint(x.Endpoints, EndpointLoad{Address: e.Address, Issued: e.Issued * weight, Errors: e.Errors * weight})
		}
	}
}

func (s *siteSum) metric(m MetricSum, weight float64) {
	i, found := slices.BinarySearchFunc(s.metrics, m.Name, func(x metricSum, n string) int { return strings.Compare(x.name, n) })
	if !found && len(s.metrics) >= maxNames {
		return
	}
	if !found {
		s.metrics = slices.Insert(s.metrics, i, metricSum{name: m.Name})
	}
	s.metrics[i].requests += float64(m.Requests) * weight
	s.metrics[i].total += m.Total * weight
}

func (s *siteSums) list() []SiteLoad {
	if len(s.sites) == 0 {
		return nil
	}
	out := make([]SiteLoad, len(s.sites))
	for i := range s.sites {
		x := &s.sites[i]
		for _, m := range x.metrics {
			if m.requests > 0 {
				x.Metrics = append(x.Metrics, Metric{Name: m.name, Mean: m.total / m.requests})
			}
		}
		x.Utilization = utilization(x.Metrics)
		out[i] = x.SiteLoad
	}
	return out
}

// utilization is the application's own figure where there is one, else the
// processor's.
func utilization(metrics []Metric) float64 {
	for _, name := range [...]string{MetricApplication, MetricCPU} {
		for _, m := range metrics {
			if m.Name == name && m.Mean > 0 {
				return m.Mean
			}
		}
	}
	return 0
}
