package resource_test

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
)

// drawSent makes any assignment that Isobar may send.
func drawSent(t *rapid.T) *endpointv3.ClusterLoadAssignment {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: rapid.StringMatching(`[a-z][a-z0-9.:|-]{0,20}`).Draw(t, "name")}
	host := 0
	priorities := rapid.IntRange(0, 3).Draw(t, "priorities")
	for p := range priorities {
		for l := range rapid.IntRange(1, 4).Draw(t, "localities") {
			at := &endpointv3.LocalityLbEndpoints{
				Locality:            &corev3.Locality{Region: fmt.Sprint("r", l), Zone: rapid.SampledFrom([]string{"", "z"}).Draw(t, "zone")},
				Priority:            uint32(p),
				LoadBalancingWeight: wrapperspb.UInt32(rapid.Uint32Range(1, 10_000).Draw(t, "weight")),
			}
			for range rapid.IntRange(0, 4).Draw(t, "endpoints") {
				host++
				at.LbEndpoints = append(at.LbEndpoints, drawSentEndpoint(t, host))
			}
			m.Endpoints = append(m.Endpoints, at)
		}
	}
	m.Policy = drawSentPolicy(t)
	return m
}

func drawSentEndpoint(t *rapid.T, host int) *endpointv3.LbEndpoint {
	address := func(port uint32) *corev3.Address {
		return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: fmt.Sprintf("10.0.%d.%d", host/200, host%200), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}}}
	}
	e := &endpointv3.Endpoint{Address: address(80), Hostname: rapid.SampledFrom([]string{"", "h"}).Draw(t, "hostname")}
	if rapid.Bool().Draw(t, "checked") {
		e.HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{PortValue: 81}
	}
	if rapid.Bool().Draw(t, "more addresses") {
		e.AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: address(82)}}
	}
	out := &endpointv3.LbEndpoint{
		HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: e},
		HealthStatus:        corev3.HealthStatus(rapid.Int32Range(0, 5).Draw(t, "health")),
		LoadBalancingWeight: wrapperspb.UInt32(rapid.Uint32Range(1, 1_000).Draw(t, "weight")),
	}
	if rapid.Bool().Draw(t, "metadata") {
		out.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"envoy.lb": {Fields: map[string]*structpb.Value{"version": structpb.NewStringValue("canary")}},
		}}
	}
	return out
}

func drawSentPolicy(t *rapid.T) *endpointv3.ClusterLoadAssignment_Policy {
	if rapid.Bool().Draw(t, "no policy") {
		return nil
	}
	p := &endpointv3.ClusterLoadAssignment_Policy{WeightedPriorityHealth: rapid.Bool().Draw(t, "weighted")}
	if n := rapid.Uint32Range(0, 10_000).Draw(t, "drop"); n > 0 {
		p.DropOverloads = []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
			Category:       isobar.DropCategory,
			DropPercentage: &typev3.FractionalPercent{Numerator: n, Denominator: typev3.FractionalPercent_TEN_THOUSAND},
		}}
	}
	if f := rapid.Uint32Range(0, 300).Draw(t, "overprovisioning"); f > 0 {
		p.OverprovisioningFactor = wrapperspb.UInt32(f)
	}
	if s := rapid.Int64Range(0, 100).Draw(t, "stale"); s > 0 {
		p.EndpointStaleAfter = durationpb.New(time.Duration(s) * time.Second)
	}
	return p
}
