package resource

import (
	"cmp"
	"math"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// drop2017 is the number of drop_overload in the policy of 2017: a double, in
// percent. Later API versions reserve it.
const drop2017 = 1

// fields names the fields that a message had at some time; nil = whatever it
// holds.
type fields map[protowire.Number]fields

// What the messages that Isobar sends had in 2017.
var (
	sourceFields2017 = fields{1: nil, 2: nil, 3: nil} // path, api_config_source, ads

	clusterFields2017 = fields{
		1: nil, 2: nil, // name, type
		3: {1: sourceFields2017, 2: nil}, // eds_cluster_config
		4: nil, 6: nil, 10: nil, 14: nil, // connect_timeout, lb_policy, circuit_breakers, http2_protocol_options
	}
	routeFields2017 = fields{
		1: nil, // name
		2: { // virtual_hosts
			1: nil, 2: nil, // name, domains
			3: {1: nil, 2: {1: nil, 8: nil}}, // routes: match, route with cluster and timeout
		},
	}
	assignmentFields2017 = fields{
		1: nil, // cluster_name
		2: { // endpoints
			1: nil, 3: nil, 5: nil, // locality, load_balancing_weight, priority
			2: {1: {1: nil}, 2: nil, 3: {1: nil}, 4: nil}, // lb_endpoints: address, health, metadata, weight
		},
		4: {drop2017: nil}, // policy
	}
)

// marshalOnly encodes what a message holds of some fields.
func marshalOnly(m proto.Message, only fields) ([]byte, error) {
	encoded, err := deterministic.Marshal(m)
	if err != nil {
		return nil, err
	}
	return keep(encoded, only)
}

// keep copies what a message holds of some fields.
func keep(message []byte, only fields) ([]byte, error) {
	if only == nil {
		return message, nil
	}
	out := make([]byte, 0, len(message))
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(number, kind, message[n:])
		if m < 0 {
			return nil, protowire.ParseError(m)
		}
		whole, value := message[:n+m], message[n:n+m]
		message = message[n+m:]
		inner, known := only[number]
		switch {
		case !known:
		case inner == nil || kind != protowire.BytesType:
			out = append(out, whole...)
		default:
			nested, _ := protowire.ConsumeBytes(value)
			nested, err := keep(nested, inner)
			if err != nil {
				return nil, err
			}
			out = appendMessage(out, number, nested)
		}
	}
	return out, nil
}

// assignment2017 says what clients of 2017 have to be told differently: they
// don't look at the health of an endpoint, take weights of 1 to 128 and one
// fraction to drop.
func assignment2017(m *endpointv3.ClusterLoadAssignment) *endpointv3.ClusterLoadAssignment {
	out := proto.CloneOf(m)
	marked := unmarkEndpoints(out)
	slices.SortStableFunc(out.GetEndpoints(), func(a, b *endpointv3.LocalityLbEndpoints) int {
		return cmp.Compare(a.GetPriority(), b.GetPriority())
	})
	out.Endpoints = usable2017(out.GetEndpoints())
	rescaleLocalities(out.GetEndpoints())
	if marked {
		markEndpoints(out) // another endpoint may be the first now
	}
	out.Policy = policy2017(m.GetPolicy())
	return out
}

// policy2017 carries the fraction that all categories drop together, which
// clients apply one after the other.
func policy2017(p *endpointv3.ClusterLoadAssignment_Policy) *endpointv3.ClusterLoadAssignment_Policy {
	pass := 1.0
	for _, d := range p.GetDropOverloads() {
		if whole := denominators[d.GetDropPercentage().GetDenominator()]; whole > 0 {
			pass *= 1 - float64(d.GetDropPercentage().GetNumerator())/float64(whole)
		}
	}
	if pass == 1 {
		return nil
	}
	out := &endpointv3.ClusterLoadAssignment_Policy{}
	raw := protowire.AppendTag(nil, drop2017, protowire.Fixed64Type)
	// Rounded to what the reverse can say, so that equal drops are equal bytes.
	percent := math.Round((1-pass)*1e6) / 1e4
	out.ProtoReflect().SetUnknown(protowire.AppendFixed64(raw, math.Float64bits(percent)))
	return out
}

// usable2017 leaves out the endpoints that should get no traffic, then what is
// empty for that, and closes the gaps between priorities. Degraded endpoints
// stand in where nothing better remains, as Envoy would have it; where nothing
// remains at all, everything stays: that is what panic does.
func usable2017(localities []*endpointv3.LocalityLbEndpoints) []*endpointv3.LocalityLbEndpoints {
	for _, wanted := range [][]corev3.HealthStatus{
		{corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY},
		{corev3.HealthStatus_DEGRADED},
	} {
		if out := withHealth(localities, wanted); len(out) > 0 {
			return out
		}
	}
	for _, l := range localities {
		for _, e := range l.GetLbEndpoints() {
			e.HealthStatus = corev3.HealthStatus_UNKNOWN
		}
	}
	return localities
}

func withHealth(localities []*endpointv3.LocalityLbEndpoints, wanted []corev3.HealthStatus) []*endpointv3.LocalityLbEndpoints {
	var out []*endpointv3.LocalityLbEndpoints
	priority := map[uint32]uint32{} // as it was, to as it is
	for _, l := range localities {  // in the order of their priorities
		var left []*endpointv3.LbEndpoint
		for _, e := range l.GetLbEndpoints() {
			for _, h := range wanted {
				if e.GetHealthStatus() == h {
					left = append(left, e)
				}
			}
		}
		if len(left) == 0 {
			continue
		}
		for _, e := range left {
			if e.GetHealthStatus() == corev3.HealthStatus_DEGRADED {
				e.HealthStatus = corev3.HealthStatus_HEALTHY
			}
		}
		l.LbEndpoints = left
		if _, ok := priority[l.GetPriority()]; !ok {
			priority[l.GetPriority()] = uint32(len(priority)) //nolint:gosec // at most 129
		}
		l.Priority = priority[l.GetPriority()]
		out = append(out, l)
	}
	return out
}

// rescaleLocalities brings the weights within each locality, and of the
// localities within each priority, to what clients of 2017 take.
func rescaleLocalities(localities []*endpointv3.LocalityLbEndpoints) {
	byPriority := map[uint32][]**wrapperspb.UInt32Value{}
	for _, l := range localities {
		byPriority[l.GetPriority()] = append(byPriority[l.GetPriority()], &l.LoadBalancingWeight)
		within := make([]**wrapperspb.UInt32Value, len(l.GetLbEndpoints()))
		for i, e := range l.GetLbEndpoints() {
			within[i] = &e.LoadBalancingWeight
		}
		rescaleAll(within)
	}
	for _, weights := range byPriority {
		rescaleAll(weights)
	}
}

func rescaleAll(weights []**wrapperspb.UInt32Value) {
	old := make([]uint32, len(weights))
	for i, w := range weights {
		old[i] = max(1, (*w).GetValue())
	}
	for i, w := range rescale(old) {
		*weights[i] = wrapperspb.UInt32(w)
	}
}

// maxWeight2017 is the largest weight that clients of 2017 take.
const maxWeight2017 = 128

// rescale brings weights >= 1 into the range 1 to 128 with the least distortion:
// of all scales, the one under which the share that is off the most is off the
// least. With n weights no share is off by more than (n+1)/128 of the whole; in
// practice it is a tenth of that, since the errors of rounding cancel out.
// Weights that are in the range already stay.
func rescale(weights []uint32) []uint32 {
	var largest uint32
	var sum float64
	for _, w := range weights {
		largest = max(largest, w)
		sum += float64(w)
	}
	if largest <= maxWeight2017 {
		return weights
	}
	out := make([]uint32, len(weights))
	best, least := uint32(maxWeight2017), math.Inf(1)
	for top := uint32(maxWeight2017); top >= 1; top-- {
		if off := distortion(weights, scaled(weights, largest, top, out), sum); off < least {
			best, least = top, off
		}
	}
	return scaled(weights, largest, best, out)
}

// scaled returns the weights when the largest becomes top.
func scaled(weights []uint32, largest, top uint32, out []uint32) []uint32 {
	for i, w := range weights {
		out[i] = uint32(max(1, math.Round(float64(w)*float64(top)/float64(largest))))
	}
	return out
}

// distortion is how far the share is off that is off the most, as a fraction of
// the whole.
func distortion(before, after []uint32, sum float64) float64 {
	var total, worst float64
	for _, w := range after {
		total += float64(w)
	}
	for i, w := range after {
		worst = max(worst, math.Abs(float64(w)/total-float64(before[i])/sum))
	}
	return worst
}
