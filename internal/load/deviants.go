package load

import (
	"cmp"
	"math"
	"slices"
)

// ClientDeviation is a client whose requests do not land as its source was told.
type ClientDeviation struct {
	Node    string  // node.id
	Cluster string  // node.cluster
	Rate    float64 // requests/s
	Points  float64 // largest difference of a share, percent
}

// maxDeviants bounds the clients that a deviation names.
const maxDeviants = 5

// Name finds the clients that make sources deviate: those whose own newest windows are off
// what was planned for the source, beyond chance. The largest are named. It is for what
// Observe has just returned, and names nobody where no client stands out.
func (e *Adherence) Name(f *Findings, t *Table) {
	service, known := t.services[f.Service], e.services[f.Service]
	if service == nil || known == nil {
		return
	}
	for i := range f.Deviating {
		d := &f.Deviating[i]
		planned := known.source(d.Source).realised
		for _, src := range service.sources {
			if src.locality == d.Source {
				d.Clients, d.Others = src.deviants(planned, t)
			}
		}
	}
}

// deviants lists the clients of a source that are off the plan, the largest first, and
// counts those beyond maxDeviants.
func (s *source) deviants(planned []realised, t *Table) (named []ClientDeviation, others int) {
	type key struct{ node, cluster string }
	found := map[key]ClientDeviation{}
	for _, f := range s.flows {
		if _, fresh := f.trust(t.snapshotAt, t.interval); !fresh {
			continue
		}
		points, off := f.window.off(planned)
		if !off {
			continue
		}
		k := key{f.stream.node.ID, f.stream.node.Cluster}
		x := found[k] // a client may have several streams
		found[k] = ClientDeviation{Node: k.node, Cluster: k.cluster, Rate: x.Rate + f.window.issued, Points: max(x.Points, points)}
	}
	named = make([]ClientDeviation, 0, len(found))
	for _, x := range found { //isobar:sorted the list is sorted below
		named = append(named, x)
	}
	slices.SortFunc(named, func(a, b ClientDeviation) int {
		return cmp.Or(cmp.Compare(b.Rate*b.Points, a.Rate*a.Points), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Cluster, b.Cluster))
	})
	others = max(0, len(named)-maxDeviants)
	return named[:len(named)-others], others
}

// off compares what a window tells with what was planned, percent. What is off by chance,
// or because shares just moved, does not count.
func (w *window) off(planned []realised) (points float64, off bool) {
	total := w.issued * w.length.Seconds()
	if total < enoughProbes {
		return 0, false
	}
	rest := w.issued
	judge := func(rate, plan float64) {
		diff := math.Abs(rate/w.issued-plan) - steadyPoints
		off = off || diff > offPoints && diff > sigmas*math.Sqrt(plan*(1-plan)/total)
		points = max(points, 100*math.Abs(rate/w.issued-plan))
	}
	for i := range planned {
		rate := 0.0
		for k := range w.sites {
			if w.sites[k].where() == planned[i].locality {
				rate += w.sites[k].issued
			}
		}
		rest -= rate
		judge(rate, planned[i].planned)
	}
	judge(max(0, rest), 0) // where nothing was planned, and nobody else sends
	return points, off
}
