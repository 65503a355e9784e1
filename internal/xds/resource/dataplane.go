package resource

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// ClusterFrom returns what data planes read from an assignment of whatever
// origin. Errors wrap ErrMessage, name the field, and are about what both Envoy
// and gRPC refuse; what only one of them refuses is in the cluster.
//
// As in Envoy, the parts of a locality within a priority are one, with the last
// weight that is set; a weight without a locality is none, which is not the same
// as an empty locality; and later endpoints with an address that came before, in
// whatever priority, are marked as repeated. gRPC refuses all of it, see
// [RefusedByGRPC], save parts without a weight: it skips them.
func ClusterFrom(m *endpointv3.ClusterLoadAssignment) (dataplane.Cluster, error) {
	policy := m.GetPolicy()
	c := dataplane.Cluster{
		OverprovisioningFactor: policy.GetOverprovisioningFactor().GetValue(),
		WeightedPriorityHealth: policy.GetWeightedPriorityHealth(),
	}
	if policy.GetOverprovisioningFactor() != nil && c.OverprovisioningFactor == 0 {
		return c, rpc.BadMessagef("policy.overprovisioning_factor", "0, want at least 1")
	}
	for i, d := range policy.GetDropOverloads() {
		p := d.GetDropPercentage()
		whole, ok := denominators[p.GetDenominator()]
		if !ok {
			return c, rpc.BadMessagef(fmt.Sprintf("policy.drop_overloads[%d].drop_percentage.denominator", i),
				"%d, want HUNDRED, TEN_THOUSAND or MILLION", p.GetDenominator())
		}
		c.Drops = append(c.Drops, min(1, float64(p.GetNumerator())/float64(whole)))
	}
	r := assignmentReader{named: m.GetNamedEndpoints(), addresses: map[string]bool{}, places: map[placedLocality]int{}}
	weights := map[uint32]uint64{}
	for i, l := range m.GetEndpoints() {
		field := fmt.Sprintf("endpoints[%d]", i)
		at, err := r.locality(field, l)
		if err != nil {
			return c, err
		}
		p := l.GetPriority()
		if weights[p] += uint64(l.GetLoadBalancingWeight().GetValue()); weights[p] > math.MaxUint32 {
			return c, rpc.BadMessagef(field+".load_balancing_weight", "the weights of priority %d sum to 2^32 or more", p)
		}
		for uint32(len(c.Priorities)) <= p { //nolint:gosec // at most 129
			c.Priorities = append(c.Priorities, dataplane.Priority{})
		}
		r.add(&c.Priorities[p], placeOf(l), at)
	}
	return c, nil
}

// assignmentReader gathers what belongs together over a message.
type assignmentReader struct {
	named     map[string]*endpointv3.Endpoint
	addresses map[string]bool        // of all endpoints so far
	places    map[placedLocality]int // of localities among those of their priority
}

// add puts a locality into its priority, or joins it with what is there of it.
func (r *assignmentReader) add(p *dataplane.Priority, at placedLocality, l dataplane.Locality) {
	i, ok := r.places[at]
	if !ok {
		r.places[at] = len(p.Localities)
		p.Localities = append(p.Localities, l)
		return
	}
	whole := &p.Localities[i]
	switch {
	case l.Weight == 0 && whole.Weight > 0:
		markUnweighted(l.Endpoints)
	case l.Weight > 0 && whole.Weight == 0:
		markUnweighted(whole.Endpoints)
	}
	if l.Weight > 0 {
		whole.Weight = l.Weight
	}
	whole.Endpoints = append(whole.Endpoints, l.Endpoints...)
}

func markUnweighted(endpoints []dataplane.Endpoint) {
	for i := range endpoints {
		endpoints[i].Unweighted = true
	}
}

func (r *assignmentReader) locality(field string, l *endpointv3.LocalityLbEndpoints) (dataplane.Locality, error) {
	name := l.GetLocality()
	out := dataplane.Locality{Locality: isobar.Locality{Region: name.GetRegion(), Zone: name.GetZone(), SubZone: name.GetSubZone()}}
	if name != nil {
		out.Weight = l.GetLoadBalancingWeight().GetValue()
	}
	if p := l.GetPriority(); p > maxPriority {
		return out, rpc.BadMessagef(field+".priority", "%d, want at most %d", p, maxPriority)
	}
	if w := l.GetLoadBalancingWeight(); w != nil && w.GetValue() == 0 {
		return out, rpc.BadMessagef(field+".load_balancing_weight", "0, want at least 1, or leave it out")
	}
	if l.GetLedsClusterLocalityConfig() != nil {
		return out, rpc.BadMessagef(field+".leds_cluster_locality_config", "these endpoints are in another field: put them in lb_endpoints")
	}
	var sum uint64
	for i, e := range l.GetLbEndpoints() {
		at := fmt.Sprintf("%s.lb_endpoints[%d]", field, i)
		one, err := r.endpoint(at, e)
		if err != nil {
			return out, err
		}
		if sum += uint64(max(1, one.Weight)); sum > math.MaxUint32 {
			return out, rpc.BadMessagef(at+".load_balancing_weight", "the weights of the locality sum to 2^32 or more")
		}
		out.Endpoints = append(out.Endpoints, one)
	}
	return out, nil
}

func (r *assignmentReader) endpoint(field string, e *endpointv3.LbEndpoint) (dataplane.Endpoint, error) {
	status := e.GetHealthStatus()
	if _, known := corev3.HealthStatus_name[int32(status)]; !known {
		return dataplane.Endpoint{}, rpc.BadMessagef(field+".health_status", "%d is no health status", status)
	}
	w := e.GetLoadBalancingWeight()
	if w != nil && w.GetValue() == 0 {
		return dataplane.Endpoint{}, rpc.BadMessagef(field+".load_balancing_weight", "0, want at least 1, or leave it out")
	}
	at := e.GetEndpoint()
	if name := e.GetEndpointName(); name != "" {
		var ok bool
		if at, ok = r.named[name]; !ok {
			return dataplane.Endpoint{}, rpc.BadMessagef(field+".endpoint_name", "%.200q is not among named_endpoints", name)
		}
	}
	key := addressKey(at.GetAddress())
	repeated := r.addresses[key]
	r.addresses[key] = key != "" // without an address, none is like another
	return dataplane.Endpoint{
		Address:  addressText(at.GetAddress()),
		Weight:   w.GetValue(),
		Health:   isobar.HealthStatus(status), //nolint:gosec // known, and the values are the same
		Repeated: repeated,
	}, nil
}

// addressKey is equal for what is the same address to data planes: IPv6 can be
// written in several ways, and an internal listener has several endpoints.
func addressKey(a *corev3.Address) string {
	switch at := a.GetAddress().(type) {
	case *corev3.Address_SocketAddress:
		ip, err := netip.ParseAddr(at.SocketAddress.GetAddress())
		if err == nil && at.SocketAddress.GetNamedPort() == "" {
			return net.JoinHostPort(ip.String(), strconv.FormatUint(uint64(at.SocketAddress.GetPortValue()), 10))
		}
	case *corev3.Address_EnvoyInternalAddress:
		return "envoy://" + at.EnvoyInternalAddress.GetServerListenerName() + "/" + at.EnvoyInternalAddress.GetEndpointId()
	}
	return addressText(a)
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
