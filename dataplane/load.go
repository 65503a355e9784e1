package dataplane

import (
	"math"
	"math/bits"
)

// Hosts counts the hosts of one priority or of one locality.
type Hosts struct {
	Total    int // all hosts
	Healthy  int // HEALTHY or UNKNOWN, not excluded
	Degraded int // DEGRADED, not excluded
	Excluded int // not counted in any denominator: DRAINING, or waiting for the first active health check

	// Sums of host weights of the same sets without the excluded, for
	// weighted priority health; CountedWeight 0 means that hosts count alike.
	CountedWeight, HealthyWeight, DegradedWeight uint64
}

// counted is n of the formulas.
func (h Hosts) counted() int { return h.Total - h.Excluded }

func (h Hosts) plus(o Hosts) Hosts {
	return Hosts{
		Total: h.Total + o.Total, Healthy: h.Healthy + o.Healthy, Degraded: h.Degraded + o.Degraded, Excluded: h.Excluded + o.Excluded,
		CountedWeight: h.CountedWeight + o.CountedWeight, HealthyWeight: h.HealthyWeight + o.HealthyWeight,
		DegradedWeight: h.DegradedWeight + o.DegradedWeight,
	}
}

// PriorityLoad is what one priority takes, in whole percent of the requests.
type PriorityLoad struct {
	Healthy  int  // to its healthy hosts, or to all of them in panic
	Degraded int  // to its degraded hosts, or to all of them in panic
	Panic    bool // its health is ignored: all its hosts are used
}

// EnvoyLoads works out how Envoy spreads requests over priorities. factor is
// the overprovisioning factor, taken as it is ([DefaultOverprovisioningFactor] is
// Envoy's own), and threshold the panic threshold, of which the whole part counts,
// 0 = panic is off; both are in percent. The loads of a cluster with at least one priority sum to 100.
func EnvoyLoads(hosts []Hosts, factor uint32, threshold float64) []PriorityLoad {
	loads := make([]PriorityLoad, len(hosts))
	if len(hosts) == 0 {
		return loads
	}
	health, degraded := make([]int, len(hosts)), make([]int, len(hosts))
	sum := 0
	for p, h := range hosts {
		health[p], degraded[p] = availability(h, factor)
		sum += health[p] + degraded[p]
	}
	total := min(100, sum)
	if total > 0 {
		spread(loads, health, degraded, total)
	} else {
		// Nothing is available. With panic off, or kept off by hosts that a
		// factor below 100 rounds away, it all goes to the first priority.
		loads[0].Healthy = 100
	}
	all := true
	for p, h := range hosts {
		loads[p].Panic = total < 100 && inPanic(h, threshold)
		all = all && loads[p].Panic
	}
	if all {
		spreadInPanic(loads, hosts)
	}
	return loads
}

// availability returns H and D of one priority.
func availability(h Hosts, factor uint32) (healthy, degraded int) {
	n, g, d := uint64(max(0, h.counted())), uint64(h.Healthy), uint64(h.Degraded) //nolint:gosec // counts
	if h.CountedWeight > 0 {
		n, g, d = h.CountedWeight, h.HealthyWeight, h.DegradedWeight
	}
	if n == 0 {
		return 0, 0
	}
	f := uint64(factor)
	return percent(f, g, n), percent(f, d, n)
}

// percent is min(100, factor*part/of) in integers, exact however large the sums
// of weights are.
func percent(factor, part, of uint64) int {
	hi, lo := bits.Mul64(factor, part)
	if hi >= of {
		return 100
	}
	q, _ := bits.Div64(hi, lo, of)
	return int(min(100, q))
}

func inPanic(h Hosts, threshold float64) bool {
	share := 0.0
	if n := h.counted(); n > 0 {
		share = 100 * float64(h.Healthy+h.Degraded) / float64(n)
	}
	return share < wholeThreshold(threshold)
}

// wholeThreshold is what Envoy holds in an integer: the percentage as a fraction,
// times 100, is cut, not rounded. So 33.4 is 33, and 29 is 28, because 0.29 is a
// little less in binary.
func wholeThreshold(percent float64) float64 { return math.Floor(100 * (min(100, percent) / 100)) }

// spread gives healthy hosts their load in order of priority, then degraded
// ones; what integer division leaves goes to the first priority that can.
func spread(loads []PriorityLoad, health, degraded []int, total int) {
	left := 100
	firstHealthy, firstDegraded := -1, -1
	for p, h := range health {
		loads[p].Healthy = min(left, h*100/total)
		left -= loads[p].Healthy
		if firstHealthy < 0 && h > 0 {
			firstHealthy = p
		}
	}
	for p, d := range degraded {
		loads[p].Degraded = min(left, d*100/total)
		left -= loads[p].Degraded
		if firstDegraded < 0 && d > 0 {
			firstDegraded = p
		}
	}
	switch {
	case firstHealthy >= 0:
		loads[firstHealthy].Healthy += left
	case firstDegraded >= 0:
		loads[firstDegraded].Degraded += left
	}
}

// spreadInPanic ignores health altogether: by numbers of hosts.
func spreadInPanic(loads []PriorityLoad, hosts []Hosts) {
	total, first := 0, -1
	for p, h := range hosts {
		total += h.Total
		if first < 0 && h.Total > 0 {
			first = p
		}
		loads[p].Healthy, loads[p].Degraded = 0, 0
	}
	if total == 0 {
		loads[0].Healthy = 100
		return
	}
	left := 100
	for p, h := range hosts {
		loads[p].Healthy = 100 * h.Total / total
		left -= loads[p].Healthy
	}
	loads[first].Healthy += left
}

// GRPCLoads works out which priority gRPC uses: the first with a usable
// endpoint takes everything. Without any, no priority takes anything and the
// calls fail.
func GRPCLoads(hosts []Hosts) []PriorityLoad {
	loads := make([]PriorityLoad, len(hosts))
	for p, h := range hosts {
		if h.Healthy > 0 {
			loads[p].Healthy = 100
			break
		}
	}
	return loads
}

// EffectiveWeight is the weight with which Envoy picks a locality for its
// eligible hosts (the healthy or the degraded ones): the configured weight,
// shrunk when too few of the locality's hosts are eligible.
func EffectiveWeight(weight uint32, eligible, counted int, factor uint32) float64 {
	if counted <= 0 || eligible <= 0 {
		return 0
	}
	return float64(weight) * min(1, float64(factor)/100*float64(eligible)/float64(counted))
}
