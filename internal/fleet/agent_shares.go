package fleet

import (
	"net"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
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

// predict works out what a client of a kind does with an assignment. The hosts
// of localities that are cut off count as unhealthy: gRPC has no connection to
// them, and Envoy's outlier detection has ejected them.
func predict(ap *applied, cut []bool, kind AgentKind) map[isobar.Locality]float64 {
	away := make(map[isobar.Locality]bool, len(cut))
	for i, l := range ap.localities {
		away[l] = cut[i]
	}
	model := dataplane.GRPC
	if kind == KindEnvoy {
		model = dataplane.Envoy
	}
	shares := make(map[isobar.Locality]float64)
	prediction := dataplane.Predict(clusterOf(ap.cla, away), model, dataplane.DefaultOptions())
	for _, p := range prediction.Priorities {
		for _, l := range p.Localities {
			if l.Share > 0 {
				shares[l.Locality] += l.Share
			}
		}
	}
	return shares
}

// clusterOf returns the plain values of an assignment, with the localities that
// are away as unhealthy.
func clusterOf(cla *endpointv3.ClusterLoadAssignment, away map[isobar.Locality]bool) dataplane.Cluster {
	c := dataplane.Cluster{OverprovisioningFactor: cla.GetPolicy().GetOverprovisioningFactor().GetValue()}
	for _, le := range cla.GetEndpoints() {
		for len(c.Priorities) <= int(le.GetPriority()) {
			c.Priorities = append(c.Priorities, dataplane.Priority{})
		}
		l := dataplane.Locality{Locality: localityOf(le), Weight: le.GetLoadBalancingWeight().GetValue()}
		for _, ep := range le.GetLbEndpoints() {
			health := healthOf(ep)
			if away[l.Locality] {
				health = isobar.Unhealthy
			}
			l.Endpoints = append(l.Endpoints, dataplane.Endpoint{Address: addressOf(ep), Weight: hostWeight(ep), Health: health})
		}
		p := &c.Priorities[le.GetPriority()]
		p.Localities = append(p.Localities, l)
	}
	return c
}

// healthOf is an endpoint's health; a state that does not exist is unhealthy.
func healthOf(ep *endpointv3.LbEndpoint) isobar.HealthStatus {
	if s := ep.GetHealthStatus(); s >= 0 && s <= corev3.HealthStatus_DEGRADED {
		return isobar.HealthStatus(s)
	}
	return isobar.Unhealthy
}

// localitiesOf lists the localities of an assignment, sorted.
func localitiesOf(cla *endpointv3.ClusterLoadAssignment) []isobar.Locality {
	var out []isobar.Locality
	for _, le := range cla.GetEndpoints() {
		out = append(out, localityOf(le))
	}
	slices.SortFunc(out, isobar.Locality.Compare)
	return slices.Compact(out)
}

// usableHosts counts the endpoints that take traffic.
func usableHosts(le *endpointv3.LocalityLbEndpoints) int {
	n := 0
	for _, ep := range le.GetLbEndpoints() {
		if healthOf(ep).Usable() {
			n++
		}
	}
	return n
}

func joinPort(host string, port uint32) string {
	return net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10))
}
