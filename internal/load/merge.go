package load

import (
	"slices"
	"strings"
)

// Append adds a report to the window. A window holds at most bound reports
// (>= 1): beyond that the newest two become one, counters and intervals added
// up, so that a slow reader costs resolution and no memory. It tells whether
// that happened.
func (w *StreamWindow) Append(r Report, bound int) (merged bool) {
	if len(w.Reports) < max(1, bound) {
		w.Reports = append(w.Reports, r)
		return false
	}
	last := &w.Reports[len(w.Reports)-1]
	*last = mergeReports(last, &r)
	return true
}

// mergeReports makes one report of two that follow each other.
func mergeReports(a, b *Report) Report {
	out := Report{Arrived: b.Arrived, Services: slices.Clone(a.Services)}
	taken := make([]bool, len(out.Services))
	for i := range b.Services {
		s := &b.Services[i]
		j := 0
		for j < len(taken) && (taken[j] || out.Services[j].Service != s.Service) {
			j++
		}
		if j == len(taken) {
			out.Services = append(out.Services, *s)
			continue
		}
		taken[j] = true
		out.Services[j] = mergeServices(&out.Services[j], s)
	}
	slices.SortStableFunc(out.Services, func(x, y ServiceReport) int { return strings.Compare(x.Service, y.Service) })
	return out
}

func mergeServices(a, b *ServiceReport) ServiceReport {
	out := ServiceReport{Service: a.Service, Interval: a.Interval + b.Interval, Dropped: a.Dropped + b.Dropped}
	out.DroppedBy = slices.Clone(a.DroppedBy)
	for _, d := range b.DroppedBy {
		if i := slices.IndexFunc(out.DroppedBy, func(x DropCount) bool { return x.Category == d.Category }); i >= 0 {
			out.DroppedBy[i].Count += d.Count
		} else {
			out.DroppedBy = append(out.DroppedBy, d)
		}
	}
	slices.SortStableFunc(out.DroppedBy, func(x, y DropCount) int { return strings.Compare(x.Category, y.Category) })
	out.Localities = slices.Clone(a.Localities)
	for i := range out.Localities {
		out.Localities[i].InProgress = 0 // a gauge: what b does not tell is none
	}
	for i := range b.Localities {
		l := &b.Localities[i]
		j := slices.IndexFunc(out.Localities, func(x LocalityReport) bool {
			return x.Locality == l.Locality && x.Priority == l.Priority
		})
		if j < 0 {
			out.Localities = append(out.Localities, *l)
			continue
		}
		out.Localities[j] = mergeLocalities(&out.Localities[j], l)
	}
	return out
}

func mergeLocalities(a, b *LocalityReport) LocalityReport {
	out := *b
	out.Issued += a.Issued
	out.HasIssued = a.HasIssued || b.HasIssued
	out.Succeeded += a.Succeeded
	out.Errors += a.Errors
	out.Metrics = slices.Clone(a.Metrics)
	for _, m := range b.Metrics {
		out.Metrics = addMetric(out.Metrics, m)
	}
	out.Endpoints = slices.Clone(a.Endpoints)
	for _, e := range b.Endpoints {
		i := slices.IndexFunc(out.Endpoints, func(x EndpointReport) bool { return x.Address == e.Address })
		if i < 0 {
			out.Endpoints = append(out.Endpoints, e)
			continue
		}
		x := &out.Endpoints[i]
		x.Issued, x.Succeeded, x.Errors, x.InProgress = x.Issued+e.Issued, x.Succeeded+e.Succeeded, x.Errors+e.Errors, e.InProgress
	}
	return out
}
