package admin

import (
	"math"
	"slices"

	"github.com/isobar-xds/isobar/internal/plan"
)

// flow is what one source sends to one locality.
type flow struct {
	queue

	rate    float64 // requests/s
	network float64 // ms
}

// queue tells how requests wait in a locality.
type queue struct {
	known bool
	waits float64 // part of the requests that wait
	mean  float64 // ms, of the wait of those that do
}

// served tells where the requests of a service are served; its result must be there.
func (m *overviews) served(o *ServiceOverview, svc *plan.Service) {
	m.flows = m.flows[:0]
	m.queues = slices.Grow(m.queues[:0], len(svc.Result.Sites))[:len(svc.Result.Sites)]
	clear(m.queues)
	var all, zone, region, price float64
	for i := range svc.Result.Sources {
		r := &svc.Result.Sources[i]
		for l := range svc.Result.Sites {
			rate := r.Demand * at(r.Shares, l)
			if rate <= 0 {
				continue
			}
			if !m.queues[l].known {
				m.queues[l] = queueOf(svc, l)
			}
			to := svc.Result.Sites[l].Group.Locality
			ms, _ := m.network.Latency(r.Source, to)
			m.flows = append(m.flows, flow{queue: m.queues[l], rate: rate, network: ms})
			all += rate
			price += rate * m.network.Price(r.Source, to)
			switch {
			case r.Source.Region != to.Region:
				region += rate
				zone += rate
			case r.Source.Zone != to.Zone:
				zone += rate
			}
		}
	}
	if all > 0 {
		o.CrossZone, o.CrossRegion, o.EgressMS, o.P99MS = zone/all, region/all, price/all, percentile(m.flows, all, 0.99)
	}
}

// maxQueued is the utilization above which the solver's queues go on as their
// tangent; a locality has no steady state near 1.
const maxQueued = 0.98

// queueOf tells how requests wait in a locality: not at all where no queue is known.
func queueOf(svc *plan.Service, locality int) queue {
	none := queue{known: true}
	if svc.Problem == nil || len(svc.Problem.Localities) != len(svc.Result.Sites) {
		return none
	}
	l := &svc.Problem.Localities[locality]
	if l.Servers <= 0 || l.Capacity <= 0 {
		return none
	}
	used := min(maxQueued, (at(svc.Result.Load, locality)+svc.Result.Sites[locality].Background)/l.Capacity)
	if used <= 0 {
		return none
	}
	queues := max(1, l.Queues)
	return queue{known: true, waits: math.Pow(used, math.Sqrt(2*(l.Servers/queues+1))-1), mean: 1000 * queues / (l.Capacity * (1 - used))}
}

// percentile is the latency that only the part 1-p of the requests exceeds.
func percentile(flows []flow, all, p float64) float64 {
	slower := func(x float64) float64 {
		sum := 0.0
		for i := range flows {
			switch f := &flows[i]; {
			case f.network > x:
				sum += f.rate
			case f.waits > 0:
				sum += f.rate * f.waits * math.Exp(-(x-f.network)/f.mean)
			}
		}
		return sum / all
	}
	low, high := 0.0, 1.0
	for range 40 { // to 10^12 ms
		if slower(high) <= 1-p {
			break
		}
		low, high = high, 2*high
	}
	if low == 0 && slower(0) <= 1-p {
		return 0
	}
	for range 14 { // to a part in 10,000
		if mid := (low + high) / 2; slower(mid) <= 1-p {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}
