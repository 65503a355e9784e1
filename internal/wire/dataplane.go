package wire

import (
	"fmt"
	"math"
	"net"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

// ClusterFrom gives what data planes read from an assignment of whatever
// origin. Errors wrap ErrMessage, name the field, and are about what both Envoy
// and gRPC refuse; what only one of them refuses is in the cluster.
func ClusterFrom(m *endpointv3.ClusterLoadAssignment) (dataplane.Cluster, error) {
	policy := m.GetPolicy()
	c := dataplane.Cluster{
		OverprovisioningFactor: policy.GetOverprovisioningFactor().GetValue(),
		WeightedPriorityHealth: policy.GetWeightedPriorityHealth(),
	}
	if policy.GetOverprovisioningFactor() != nil && c.OverprovisioningFactor == 0 {
		return c, badMessage("policy.overprovisioning_factor", "0, want at least 1")
	}
	for i, d := range policy.GetDropOverloads() {
		p := d.GetDropPercentage()
		whole, ok := denominators[p.GetDenominator()]
		if !ok {
			return c, badMessage(fmt.Sprintf("policy.drop_overloads[%d].drop_percentage.denominator", i),
				"%d, want HUNDRED, TEN_THOUSAND or MILLION", p.GetDenominator())
		}
		c.Drops = append(c.Drops, min(1, float64(p.GetNumerator())/float64(whole)))
	}
	weights := map[uint32]uint64{}
	for i, l := range m.GetEndpoints() {
		field := fmt.Sprintf("endpoints[%d]", i)
		at, err := localityFrom(field, l, m.GetNamedEndpoints())
		if err != nil {
			return c, err
		}
		p := l.GetPriority()
		if weights[p] += uint64(at.Weight); weights[p] > math.MaxUint32 {
			return c, badMessage(field+".load_balancing_weight", "the weights of priority %d sum to 2^32 or more", p)
		}
		for uint32(len(c.Priorities)) <= p { //nolint:gosec // at most 129
			c.Priorities = append(c.Priorities, dataplane.Priority{})
		}
		c.Priorities[p].Localities = append(c.Priorities[p].Localities, at)
	}
	return c, nil
}

func localityFrom(field string, l *endpointv3.LocalityLbEndpoints, named map[string]*endpointv3.Endpoint) (dataplane.Locality, error) {
	name := l.GetLocality()
	out := dataplane.Locality{
		Locality: isobar.Locality{Region: name.GetRegion(), Zone: name.GetZone(), SubZone: name.GetSubZone()},
		Weight:   l.GetLoadBalancingWeight().GetValue(),
	}
	if p := l.GetPriority(); p > maxPriority {
		return out, badMessage(field+".priority", "%d, want at most %d", p, maxPriority)
	}
	if l.GetLoadBalancingWeight() != nil && out.Weight == 0 {
		return out, badMessage(field+".load_balancing_weight", "0, want at least 1, or leave it out")
	}
	if l.GetLedsClusterLocalityConfig() != nil {
		return out, badMessage(field+".leds_cluster_locality_config", "these endpoints stand elsewhere: put them in lb_endpoints")
	}
	var sum uint64
	for i, e := range l.GetLbEndpoints() {
		at := fmt.Sprintf("%s.lb_endpoints[%d]", field, i)
		one, err := endpointFrom(at, e, named)
		if err != nil {
			return out, err
		}
		if sum += uint64(max(1, one.Weight)); sum > math.MaxUint32 {
			return out, badMessage(at+".load_balancing_weight", "the weights of the locality sum to 2^32 or more")
		}
		out.Endpoints = append(out.Endpoints, one)
	}
	return out, nil
}

func endpointFrom(field string, e *endpointv3.LbEndpoint, named map[string]*endpointv3.Endpoint) (dataplane.Endpoint, error) {
	status := e.GetHealthStatus()
	if _, known := corev3.HealthStatus_name[int32(status)]; !known {
		return dataplane.Endpoint{}, badMessage(field+".health_status", "%d is no health status", status)
	}
	w := e.GetLoadBalancingWeight()
	if w != nil && w.GetValue() == 0 {
		return dataplane.Endpoint{}, badMessage(field+".load_balancing_weight", "0, want at least 1, or leave it out")
	}
	at := e.GetEndpoint()
	if name := e.GetEndpointName(); name != "" {
		var ok bool
		if at, ok = named[name]; !ok {
			return dataplane.Endpoint{}, badMessage(field+".endpoint_name", "%.200q is not among named_endpoints", name)
		}
	}
	return dataplane.Endpoint{
		Address: addressText(at.GetAddress()),
		Weight:  w.GetValue(),
		Health:  isobar.HealthStatus(status), //nolint:gosec // known, and the values are the same
	}, nil
}

// addressText names an address; empty when there is none.
func addressText(a *corev3.Address) string {
	switch at := a.GetAddress().(type) {
	case *corev3.Address_SocketAddress:
		port := at.SocketAddress.GetNamedPort()
		if port == "" {
			port = strconv.FormatUint(uint64(at.SocketAddress.GetPortValue()), 10)
		}
		return net.JoinHostPort(at.SocketAddress.GetAddress(), port)
	case *corev3.Address_Pipe:
		return at.Pipe.GetPath()
	case *corev3.Address_EnvoyInternalAddress:
		return at.EnvoyInternalAddress.GetServerListenerName()
	}
	return ""
}
