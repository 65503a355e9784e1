package load

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// Append adds a report to the window. A window holds at most bound reports (>= 1): beyond that
// the newest two become one, counters and intervals added up, so that a slow reader costs
// resolution and no memory. It reports whether that happened.
func (w *StreamWindow) Append(r Report, bound int) (merged bool) {
	if len(w.Reports) < max(1, bound) {
		w.Reports = append(w.Reports, r)
		return false
	}
	last := &w.Reports[len(w.Reports)-1]
	*last = mergeReports(last, &r)
	return true
}

// mergeReports makes one report of two that follow each other. It takes time in
// proportion to their size, whatever they hold: clients write them.
func mergeReports(a, b *Report) Report {
	out := Report{Arrived: b.Arrived, Services: slices.Clone(a.Services), Refused: mergeNames(a.Refused, b.Refused), ByArrival: a.ByArrival || b.ByArrival}
	places := make(map[string][]int, len(out.Services)) // of a service's entries that are not merged yet
	for i := range out.Services {
		name := out.Services[i].Service
		places[name] = append(places[name], i)
	}
	for i := range b.Services {
		s := &b.Services[i]
		if free := places[s.Service]; len(free) > 0 {
			places[s.Service] = free[1:]
			out.Services[free[0]] = mergeServices(&out.Services[free[0]], s)
		} else if len(out.Services) < maxEntries {
			out.Services = append(out.Services, *s)
		}
	}
	slices.SortStableFunc(out.Services, func(x, y ServiceReport) int { return strings.Compare(x.Service, y.Service) })
	return out
}

// mergeNames makes one sorted list of two.
func mergeNames(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxEntries)]
}

func mergeServices(a, b *ServiceReport) ServiceReport {
	out := ServiceReport{Service: a.Service, Interval: a.Interval + b.Interval, Dropped: a.Dropped + b.Dropped}
	out.DroppedBy = slices.Clone(a.DroppedBy)
	for _, d := range b.DroppedBy {
		if i := slices.IndexFunc(out.DroppedBy, func(x DropCount) bool { return x.Category == d.Category }); i >= 0 {
			out.DroppedBy[i].Count += d.Count
		} else if len(out.DroppedBy) < maxNames {
			out.DroppedBy = append(out.DroppedBy, d)
		}
	}
	slices.SortStableFunc(out.DroppedBy, func(x, y DropCount) int { return strings.Compare(x.Category, y.Category) })
	out.Localities = slices.Clone(a.Localities)
	places := make(map[tierOf]int, len(out.Localities))
	for i := range out.Localities {
		l := &out.Localities[i]
		l.InProgress = 0 // a gauge: where b has none, no request is in progress
		at := tierOf{l.Where(), l.Priority}
		if _, twice := places[at]; !twice {
			places[at] = i
		}
	}
	for i := range b.Localities {
		l := &b.Localities[i]
		at := tierOf{l.Where(), l.Priority}
		if j, found := places[at]; found {
			out.Localities[j] = mergeLocalities(&out.Localities[j], l)
		} else if len(out.Localities) < maxWindowSites {
			places[at] = len(out.Localities)
			out.Localities = append(out.Localities, *l)
		}
	}
	return out
}

// tierOf is the key that distinguishes the parts of a service's report.
type tierOf struct {
	locality isobar.Locality
	priority uint16
}

func mergeLocalities(a, b *LocalityReport) LocalityReport {
	out := *b
	out.Issued += a.Issued
	out.HasIssued = a.HasIssued || b.HasIssued
	out.Succeeded += a.Succeeded
	out.Errors += a.Errors
	if a.Details != nil || b.Details != nil {
		out.Details = mergeDetails(a, b)
	}
	return out
}

func mergeDetails(a, b *LocalityReport) *LocalityDetails {
	out := &LocalityDetails{Metrics: slices.Clone(a.metrics()), Endpoints: slices.Clone(a.endpoints())}
	for _, m := range b.metrics() {
		out.Metrics = addMetric(out.Metrics, m)
	}
	places := make(map[string]int, len(out.Endpoints))
	for i := range slices.Backward(out.Endpoints) {
		places[out.Endpoints[i].Address] = i
	}
	for _, e := range b.endpoints() {
		i, found := places[e.Address]
		if !found {
			if len(out.Endpoints) < maxEndpoints {
				places[e.Address] = len(out.Endpoints)
				out.Endpoints = append(out.Endpoints, e)
			}
			continue
		}
		x := &out.Endpoints[i]
		x.Issued, x.Succeeded, x.Errors, x.InProgress = x.Issued+e.Issued, x.Succeeded+e.Succeeded, x.Errors+e.Errors, e.InProgress
	}
	return out
}
