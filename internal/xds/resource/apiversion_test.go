package resource_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apiv2 "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	hcmv2 "github.com/envoyproxy/go-control-plane/envoy/config/filter/network/http_connection_manager/v2"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// fataler is what tests and properties have in common.
type fataler interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// there and back, with what goes over the wire.
func thereAndBack(t fataler, api rpc.APIVersion, m *endpointv3.ClusterLoadAssignment) (*endpointv3.ClusterLoadAssignment, []byte) {
	r, err := resource.EncodeAs(rpc.As{API: api}, m.GetClusterName(), resource.Endpoints, m, 0)
	if err != nil {
		t.Fatal(err)
	}
	body := &anypb.Any{}
	if err := proto.Unmarshal(r.Body, body); err != nil {
		t.Fatal(err)
	}
	if body.GetTypeUrl() != resource.Endpoints.URLIn(api) {
		t.Fatal("type", body.GetTypeUrl())
	}
	back, err := resource.AssignmentFrom(api, body.GetValue())
	if err != nil {
		t.Fatal(err)
	}
	return back, body.GetValue()
}

// What v3 says comes back from v2 but for the two fields that v2 lacks.
func TestV3ToV2AndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawSent(t)
		got, encoded := thereAndBack(t, rpc.V2, m)
		old := &apiv2.ClusterLoadAssignment{}
		if err := proto.Unmarshal(encoded, old); err != nil {
			t.Fatal(err)
		}
		if err := old.ValidateAll(); err != nil {
			t.Fatal(err)
		}
		if want := asV2(m); !proto.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// asV2 is what v2 can say of an assignment.
func asV2(m *endpointv3.ClusterLoadAssignment) *endpointv3.ClusterLoadAssignment {
	want := proto.CloneOf(m)
	if p := want.GetPolicy(); p != nil {
		p.WeightedPriorityHealth = false
	}
	for _, l := range want.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			e.GetEndpoint().AdditionalAddresses = nil
		}
	}
	return want
}

// Clusters, listeners and routes of old API versions pass the rules of their time.
func TestOldStaticResources(t *testing.T) {
	s := &isobar.Service{Name: "checkout", ORCA: isobar.ORCA{On: true}}
	old := func(kind resource.Kind, into proto.Message) []byte {
		t.Helper()
		m, err := resource.StaticOf(kind, s, s.Name, false)
		if err != nil {
			t.Fatal(err)
		}
		r, err := resource.EncodeAs(rpc.As{API: rpc.V2}, s.Name, kind, m, 0)
		if err != nil {
			t.Fatal(err)
		}
		body := &anypb.Any{}
		if err := proto.Unmarshal(r.Body, body); err != nil {
			t.Fatal(err)
		}
		if err := body.UnmarshalTo(into); err != nil {
			t.Fatal(err)
		}
		if v, ok := into.(interface{ ValidateAll() error }); ok {
			if err := v.ValidateAll(); err != nil {
				t.Error(err)
			}
		}
		if n := len(into.ProtoReflect().GetUnknown()); n > 0 {
			t.Errorf("%s: %d bytes that v2 does not know", kind, n)
		}
		return body.GetValue()
	}
	c := &apiv2.Cluster{}
	old(resource.Cluster, c)
	if c.GetCommonLbConfig().GetLocalityWeightedLbConfig() == nil || c.GetLoadBalancingPolicy() != nil || c.GetLrsServer().GetSelf() == nil ||
		c.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil || c.GetEdsClusterConfig().GetEdsConfig().GetResourceApiVersion() != 0 {
		t.Errorf("got %v", c)
	}
	l := &apiv2.Listener{}
	old(resource.Listener, l)
	h := &hcmv2.HttpConnectionManager{}
	if err := l.GetApiListener().GetApiListener().UnmarshalTo(h); err != nil {
		t.Fatal(err)
	}
	if url := h.GetHttpFilters()[0].GetTypedConfig().GetTypeUrl(); !strings.HasSuffix(url, "router.v2.Router") || h.GetRds().GetRouteConfigName() != "checkout" {
		t.Errorf("got %v", h)
	}
	rc := &apiv2.RouteConfiguration{}
	old(resource.Route, rc)

	// 2017: no listeners; clusters without what came later.
	m, err := resource.StaticOf(resource.Listener, s, s.Name, false)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := resource.EncodeAs(rpc.As{API: rpc.V2017}, s.Name, resource.Listener, m, 0); err != nil || r != nil {
		t.Errorf("got %v, %v; want none", r, err)
	}
	m, err = resource.StaticOf(resource.Cluster, s, s.Name, false)
	if err != nil {
		t.Fatal(err)
	}
	r, err := resource.EncodeAs(rpc.As{API: rpc.V2017}, s.Name, resource.Cluster, m, 0)
	if err != nil {
		t.Fatal(err)
	}
	body := &anypb.Any{}
	early := &clusterv3.Cluster{}
	if err := proto.Unmarshal(r.Body, body); err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(body.GetValue(), early); err != nil {
		t.Fatal(err)
	}
	if early.GetCommonLbConfig() != nil || early.GetLrsServer() != nil || early.GetConnectTimeout().AsDuration() <= 0 ||
		early.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil {
		t.Errorf("got %v", early)
	}
}

// The framing of a resource with a TTL is that of the generated types.
func TestTTL(t *testing.T) {
	e, err := resource.EncodeAs(rpc.As{TTL: true}, "a", resource.Endpoints, resource.EmptyAssignment("a"), 7*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	sotw, delta := &discoveryv3.DiscoveryResponse{}, &discoveryv3.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(e.SotW, sotw); err != nil {
		t.Fatal(err)
	}
	both := append(append(append([]byte(nil), e.Delta...), e.Body...), e.Beat...)
	if err := proto.Unmarshal(both, delta); err != nil {
		t.Fatal(err)
	}
	wrapped := &discoveryv3.Resource{}
	if err := sotw.GetResources()[0].UnmarshalTo(wrapped); err != nil || !proto.Equal(wrapped, delta.GetResources()[0]) {
		t.Errorf("wrapped %v, %v", wrapped, err)
	}
	for i, got := range delta.GetResources() {
		if got.GetName() != "a" || got.GetTtl().AsDuration() != 7*time.Second || got.GetVersion() != e.Version || (got.GetResource() == nil) != (i == 1) {
			t.Errorf("%d: got %v", i, got)
		}
	}
}

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
