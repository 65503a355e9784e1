package fleet

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isobar-xds/isobar"
)

// OwnLocality is the split of a client without a locality-weighted policy that
// stays at home: everything goes to l.
func OwnLocality(l isobar.Locality) Split {
	return func(*endpointv3.ClusterLoadAssignment) map[isobar.Locality]float64 {
		return map[isobar.Locality]float64{l: 1}
	}
}

// ByEndpoints is the split of a client that ignores locality weights: every
// endpoint of priority 0 gets the same.
func ByEndpoints(cla *endpointv3.ClusterLoadAssignment) map[isobar.Locality]float64 {
	shares := make(map[isobar.Locality]float64)
	total := 0.0
	for _, le := range cla.GetEndpoints() {
		if n := usableHosts(le); le.GetPriority() == 0 && n > 0 {
			shares[localityOf(le)] += float64(n)
			total += float64(n)
		}
	}
	for l := range shares {
		shares[l] /= total
	}
	return shares
}

// split is how the demand for a service spreads over localities now. The
// caller holds the lock.
func (a *Agent) split(service string) map[isobar.Locality]float64 {
	ap := a.assigned[service]
	if ap == nil {
		return nil
	}
	if a.opts.Split != nil {
		return a.opts.Split(ap.cla)
	}
	connected := func(l isobar.Locality) bool {
		return a.opts.Landing == nil || a.opts.Landing(service, l) != Unconnected
	}
	if a.opts.Kind == KindEnvoy {
		return envoySplit(ap.cla, connected)
	}
	return grpcSplit(ap.cla, connected)
}

// grpcSplit is what grpc-go does: the highest priority with a locality that is
// connected takes everything, by the weights of its connected localities.
func grpcSplit(cla *endpointv3.ClusterLoadAssignment, connected func(isobar.Locality) bool) map[isobar.Locality]float64 {
	for _, group := range byPriority(cla) {
		shares := make(map[isobar.Locality]float64, len(group))
		total := 0.0
		for _, le := range group {
			if l := localityOf(le); usableHosts(le) > 0 && connected(l) {
				w := float64(le.GetLoadBalancingWeight().GetValue())
				shares[l] += w
				total += w
			}
		}
		if total > 0 {
			for l := range shares {
				shares[l] /= total
			}
			return shares
		}
	}
	return nil
}

// envoySplit is what Envoy does outside panic: priorities take load by their
// health times the overprovisioning factor (in whole percents), and so do the
// weights of localities within one. Localities that are not connected count
// as if outlier detection had ejected their hosts.
func envoySplit(cla *endpointv3.ClusterLoadAssignment, connected func(isobar.Locality) bool) map[isobar.Locality]float64 {
	factor := uint64(140)
	if f := cla.GetPolicy().GetOverprovisioningFactor(); f != nil {
		factor = uint64(f.GetValue())
	}
	priorities := byPriority(cla)
	health := make([]uint64, len(priorities))
	weights := make([]map[isobar.Locality]float64, len(priorities))
	var sum uint64
	for p, group := range priorities {
		weights[p] = make(map[isobar.Locality]float64, len(group))
		var usable, hosts uint64
		for _, le := range group {
			n, all := usableHosts(le), uint64(len(le.GetLbEndpoints()))
			if !connected(localityOf(le)) {
				n = 0
			}
			usable, hosts = usable+n, hosts+all
			if n > 0 {
				w := float64(le.GetLoadBalancingWeight().GetValue())
				weights[p][localityOf(le)] = w * min(1, float64(factor)/100*float64(n)/float64(all))
			}
		}
		if hosts > 0 {
			health[p] = min(100, factor*usable/hosts)
		}
		sum += health[p]
	}
	return spread(health, min(100, sum), weights)
}

// spread gives each priority its load in order, and each locality its part of
// that by weight.
func spread(health []uint64, total uint64, weights []map[isobar.Locality]float64) map[isobar.Locality]float64 {
	if total == 0 {
		return nil
	}
	shares := make(map[isobar.Locality]float64)
	left, first := uint64(100), -1
	loads := make([]uint64, len(health))
	for p, h := range health {
		if h > 0 && first < 0 {
			first = p
		}
		loads[p] = min(left, h*100/total)
		left -= loads[p]
	}
	loads[first] += left
	for p, load := range loads {
		order := slices.SortedFunc(maps.Keys(weights[p]), isobar.Locality.Compare)
		sum := 0.0
		for _, l := range order {
			sum += weights[p][l]
		}
		for _, l := range order {
			shares[l] += float64(load) / 100 * weights[p][l] / sum
		}
	}
	return shares
}

// byPriority groups the localities by priority, the most preferred first.
func byPriority(cla *endpointv3.ClusterLoadAssignment) [][]*endpointv3.LocalityLbEndpoints {
	groups := slices.Clone(cla.GetEndpoints())
	slices.SortStableFunc(groups, func(a, b *endpointv3.LocalityLbEndpoints) int {
		return cmp.Compare(a.GetPriority(), b.GetPriority())
	})
	var out [][]*endpointv3.LocalityLbEndpoints
	for i, le := range groups {
		if i == 0 || le.GetPriority() != groups[i-1].GetPriority() {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], le)
	}
	return out
}

// usableHosts counts the endpoints that take traffic.
func usableHosts(le *endpointv3.LocalityLbEndpoints) uint64 {
	var n uint64
	for _, ep := range le.GetLbEndpoints() {
		if s := ep.GetHealthStatus(); s == corev3.HealthStatus_HEALTHY || s == corev3.HealthStatus_UNKNOWN {
			n++
		}
	}
	return n
}

func joinPort(host string, port uint32) string {
	return net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10))
}
