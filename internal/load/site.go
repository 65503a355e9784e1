package load

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// siteSums adds up the landed load per locality over all sources. The sources and streams come in
// a fixed order, so equal input gives equal sums.
type siteSums struct {
	sites []siteSum       // sorted by locality
	spec  *isobar.Service // its metrics and endpoints count however many others clients name; nil = not known
}

type siteSum struct {
	SiteLoad

	metrics []metricSum     // sorted by name
	own     map[string]bool // addresses of the endpoints that the service has here; nil until it is needed
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
			x.metric(m, weight, s.spec)
		}
		for _, e := range ws.told().endpoints {
			x.endpoint(EndpointLoad{Address: e.Address, Issued: e.Issued * weight, Errors: e.Errors * weight}, s.spec)
		}
	}
}

// usesMetric reports whether the decisions for a service may use a metric.
func usesMetric(s *isobar.Service, name string) bool {
	return name == MetricApplication || name == MetricCPU || name == MetricMemory ||
		s != nil && slices.ContainsFunc(s.Limits, func(l isobar.Limit) bool { return strings.TrimPrefix(l.Metric, isobar.NamedMetrics) == name })
}

func (s *siteSum) endpoint(e EndpointLoad, spec *isobar.Service) {
	i, found := slices.BinarySearchFunc(s.Endpoints, e.Address, func(x EndpointLoad, a string) int { return strings.Compare(x.Address, a) })
	switch {
	case found:
		s.Endpoints[i].Issued += e.Issued
		s.Endpoints[i].Errors += e.Errors
	case len(s.Endpoints) < maxEndpoints || s.has(spec, e.Address):
		s.Endpoints = slices.Insert(s.Endpoints, i, e)
	}
}

// has reports whether the service has an endpoint in the locality, as far as is known.
func (s *siteSum) has(spec *isobar.Service, address string) bool {
	if s.own == nil {
		s.own = map[string]bool{}
		if spec != nil {
			for _, l := range spec.Localities {
				for i := range l.Endpoints {
					s.own[l.Endpoints[i].Address] = l.Locality == s.Locality || s.own[l.Endpoints[i].Address]
				}
			}
		}
	}
	return s.own[address]
}

func (s *siteSum) metric(m MetricSum, weight float64, spec *isobar.Service) {
	i, found := slices.BinarySearchFunc(s.metrics, m.Name, func(x metricSum, n string) int { return strings.Compare(x.name, n) })
	if !found && len(s.metrics) >= maxNames && !usesMetric(spec, m.Name) {
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
