package load

import (
	"slices"
	"time"
)

// Guard against a client that reports far more than is believable: in services
// of many nodes a node counts at most repute times its own mean, fair of the
// service's capacity, or alikeness times what its like report, whichever is
// most.
const (
	guardNodes   = 20
	guardWindows = 3 // with traffic: without them there is nothing to go by
	repute       = 10.0
	fair         = 0.05
	alikeness    = 2.0
	meanWindows  = 60 // windows with traffic over which the mean is taken
)

// judge decides how much of the newest window counts. Windows without traffic
// say nothing about what the node sends when it has something to send.
func (f *flow) judge() {
	rate, svc := f.window.rate(), f.source.service
	f.weight = 1
	f.windows++
	if rate < negligible {
		return
	}
	if svc.nodes >= guardNodes && f.busy >= guardWindows {
		allowed := max(repute*f.mean, fair*max(svc.capacity, svc.demand))
		if rate > allowed {
			f.weight = allowed / rate
		}
	}
	f.busy++
	f.mean += (rate*f.weight - f.mean) / float64(min(f.busy, meanWindows+1))
}

// vouch lets nodes count for as much as is usual among the nodes of the
// service: when traffic comes back after a quiet night all of them jump at
// once. The median is what a few bad reporters cannot move.
func (t *Table) vouch(svc *service, now time.Time) {
	if svc.nodes < guardNodes || !svc.capped() {
		return
	}
	var rates []float64
	for _, src := range svc.sources {
		for _, f := range src.flows {
			if trust, _ := f.trust(now, t.interval); trust > 0 {
				rates = append(rates, f.window.rate())
			}
		}
	}
	if len(rates) < guardNodes {
		return
	}
	slices.Sort(rates)
	usual := alikeness * rates[(len(rates)-1)/2]
	for _, src := range svc.sources {
		for _, f := range src.flows {
			f.raise(usual)
		}
	}
}

func (s *service) capped() bool {
	return slices.ContainsFunc(s.sources, func(src *source) bool {
		return slices.ContainsFunc(src.flows, func(f *flow) bool { return f.weight < 1 })
	})
}

// raise lets the newest window count up to a rate, as if it had been judged so.
func (f *flow) raise(allowed float64) {
	rate := f.window.rate()
	if f.weight >= 1 || allowed <= rate*f.weight {
		return
	}
	weight := min(1, allowed/rate)
	f.mean += rate * (weight - f.weight) / float64(min(max(1, f.busy), meanWindows+1))
	f.weight = weight
}
