package admin

import (
	"math"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// flow is what one source sends to one locality.
type flow struct {
	rate    float64 // requests/s
	network float64 // ms
	waits   float64 // part of the requests that wait
	mean    float64 // ms, of the wait of those that do
}

// flows tells where the requests of a service are served; its result must be there.
func (o *ServiceOverview) flows(network *isobar.Network, svc *plan.Service) {
	queues := queuesOf(svc)
	var flows []flow
	var all, zone, region, price float64
	for i := range svc.Result.Sources {
		r := &svc.Result.Sources[i]
		for l := range svc.Result.Sites {
			rate := r.Demand * at(r.Shares, l)
			if rate <= 0 {
				continue
			}
			to := svc.Result.Sites[l].Group.Locality
			f := queues[l]
			f.rate = rate
			f.network, _ = network.Latency(r.Source, to)
			flows = append(flows, f)
			all += rate
			price += rate * network.Price(r.Source, to)
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
		o.CrossZone, o.CrossRegion, o.EgressMS, o.P99MS = zone/all, region/all, price/all, percentile(flows, all, 0.99)
	}
}

// maxQueued is the utilization above which the solver's queues go on as their
// tangent; a locality has no steady state near 1.
const maxQueued = 0.98

// queuesOf tells how requests wait in each locality: nothing where no queue is
// known.
func queuesOf(svc *plan.Service) []flow {
	out := make([]flow, len(svc.Result.Sites))
	if svc.Problem == nil || len(svc.Problem.Localities) != len(out) {
		return out
	}
	for i := range out {
		l := &svc.Problem.Localities[i]
		if l.Servers <= 0 || l.Capacity <= 0 {
			continue
		}
		used := min(maxQueued, (at(svc.Result.Load, i)+svc.Result.Sites[i].Background)/l.Capacity)
		if used <= 0 {
			continue
		}
		queues := max(1, l.Queues)
		out[i].waits = math.Pow(used, math.Sqrt(2*(l.Servers/queues+1))-1)
		out[i].mean = 1000 * queues / (l.Capacity * (1 - used))
	}
	return out
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
