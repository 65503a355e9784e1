package wire_test

import (
	"fmt"
	"math"
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
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/wire"
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

// fataler is what tests and properties have in common.
type fataler interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// there and back, with what goes over the wire.
func thereAndBack(t fataler, form wire.Form, m *endpointv3.ClusterLoadAssignment) (*endpointv3.ClusterLoadAssignment, []byte) {
	r, err := wire.EncodeAs(wire.As{Form: form}, m.GetClusterName(), wire.Endpoints, m, 0)
	if err != nil {
		t.Fatal(err)
	}
	body := &anypb.Any{}
	if err := proto.Unmarshal(r.Body, body); err != nil {
		t.Fatal(err)
	}
	if body.GetTypeUrl() != wire.Endpoints.URLIn(form) {
		t.Fatal("type", body.GetTypeUrl())
	}
	back, err := wire.AssignmentFrom(form, body.GetValue())
	if err != nil {
		t.Fatal(err)
	}
	return back, body.GetValue()
}

// What v3 says comes back from v2 but for the two fields that v2 lacks.
func TestV3ToV2AndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawSent(t)
		got, encoded := thereAndBack(t, wire.V2, m)
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

// What comes back from 2017: the usable endpoints with address, metadata and
// weight; weights that say the same within 1 to 128; one drop.
func TestV3To2017AndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawSent(t)
		got, encoded := thereAndBack(t, wire.V2017, m)
		if err := wire.CheckAssignment(got, m.GetClusterName()); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(fmt.Sprint(fieldsOf(t, encoded)), "policy") && len(m.GetPolicy().GetDropOverloads()) == 0 {
			t.Fatal("a policy without a drop")
		}
		if want := dropOf(m); math.Abs(dropOf(got)-want) > 1e-6 {
			t.Fatalf("drops %v, want %v", dropOf(got), want)
		}
		check2017(t, m, got)
	})
}

func fieldsOf(t *rapid.T, m []byte) map[protowire.Number]int {
	out := map[protowire.Number]int{}
	for len(m) > 0 {
		n, _, size := protowire.ConsumeField(m)
		if size < 0 {
			t.Fatal("no message")
		}
		out[n]++
		m = m[size:]
	}
	for n := range out {
		if n != 1 && n != 2 && n != 4 {
			t.Fatalf("field %d was not there in 2017", n)
		}
	}
	return out
}

func dropOf(m *endpointv3.ClusterLoadAssignment) float64 {
	pass := 1.0
	for _, d := range m.GetPolicy().GetDropOverloads() {
		whole := map[typev3.FractionalPercent_DenominatorType]float64{0: 100, 1: 10_000, 2: 1_000_000}[d.GetDropPercentage().GetDenominator()]
		pass *= 1 - float64(d.GetDropPercentage().GetNumerator())/whole
	}
	return 1 - pass
}

// usable tells whether an endpoint stays for a client of 2017, given the best
// that there is anywhere.
func usable(e *endpointv3.LbEndpoint, best int) bool {
	switch best {
	case 2:
		return e.GetHealthStatus() <= corev3.HealthStatus_HEALTHY
	case 1:
		return e.GetHealthStatus() == corev3.HealthStatus_DEGRADED
	default:
		return true
	}
}

func bestOf(m *endpointv3.ClusterLoadAssignment) int {
	best := 0
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			switch {
			case e.GetHealthStatus() <= corev3.HealthStatus_HEALTHY:
				best = 2
			case e.GetHealthStatus() == corev3.HealthStatus_DEGRADED:
				best = max(best, 1)
			}
		}
	}
	return best
}

func check2017(t fataler, m, got *endpointv3.ClusterLoadAssignment) {
	best := bestOf(m)
	next := 0
	for _, l := range m.GetEndpoints() {
		var want []*endpointv3.LbEndpoint
		for _, e := range l.GetLbEndpoints() {
			if usable(e, best) {
				want = append(want, e)
			}
		}
		if len(want) == 0 && best > 0 {
			continue
		}
		g := got.GetEndpoints()[next]
		next++
		if !proto.Equal(g.GetLocality(), l.GetLocality()) || len(g.GetLbEndpoints()) != len(want) {
			t.Fatalf("got %v, want what is usable of %v", g, l)
		}
		var before, after []uint32
		for i, e := range g.GetLbEndpoints() {
			if !proto.Equal(e.GetEndpoint().GetAddress(), want[i].GetEndpoint().GetAddress()) || !proto.Equal(e.GetMetadata(), want[i].GetMetadata()) ||
				e.GetEndpoint().GetHostname() != "" || e.GetHealthStatus() > corev3.HealthStatus_HEALTHY {
				t.Fatalf("got %v, want %v", e, want[i])
			}
			before = append(before, want[i].GetLoadBalancingWeight().GetValue())
			after = append(after, e.GetLoadBalancingWeight().GetValue())
		}
		checkWeights(t, before, after)
	}
	if next != len(got.GetEndpoints()) {
		t.Fatalf("%d localities, want %d", len(got.GetEndpoints()), next)
	}
}

// checkWeights holds weights of 2017 to the bound on their distortion.
func checkWeights(t fataler, before, after []uint32) {
	var sumBefore, sumAfter float64
	for i := range before {
		sumBefore += float64(before[i])
		sumAfter += float64(after[i])
	}
	for i := range before {
		if after[i] < 1 || after[i] > 128 {
			t.Fatalf("weight %d", after[i])
		}
		off := math.Abs(float64(after[i])/sumAfter - float64(before[i])/sumBefore)
		if bound := float64(len(before)+1) / 128; off > bound {
			t.Fatalf("%v became %v: a share is off by %v, more than %v", before, after, off, bound)
		}
	}
}

// Weights are rescaled as well as a search over all pairs can.
func TestRescaleIsTheBestScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Uint32Range(1, 10_000), 2, 2).Draw(t, "weights")
		m := &endpointv3.ClusterLoadAssignment{ClusterName: "a"}
		for i, w := range weights {
			m.Endpoints = append(m.Endpoints, &endpointv3.LocalityLbEndpoints{
				Locality:            &corev3.Locality{Region: fmt.Sprint(i)},
				LoadBalancingWeight: wrapperspb.UInt32(w),
				LbEndpoints: []*endpointv3.LbEndpoint{{
					HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{}}, LoadBalancingWeight: wrapperspb.UInt32(1),
				}},
			})
		}
		got, _ := thereAndBack(t, wire.V2017, m)
		share := func(a, b uint32) float64 { return float64(a) / float64(a+b) }
		want := share(weights[0], weights[1])
		off := math.Abs(share(got.GetEndpoints()[0].GetLoadBalancingWeight().GetValue(), got.GetEndpoints()[1].GetLoadBalancingWeight().GetValue()) - want)
		least := 1.0
		for a := uint32(1); a <= 128; a++ {
			for b := uint32(1); b <= 128; b++ {
				least = min(least, math.Abs(share(a, b)-want))
			}
		}
		if off > least+1e-12 {
			t.Fatalf("%v: off by %v, %v was possible", weights, off, least)
		}
	})
}

// Clusters, listeners and routes of old forms pass the rules of their time.
func TestOldStaticResources(t *testing.T) {
	s := &isobar.Service{Name: "checkout", ORCA: true}
	old := func(kind wire.Kind, into proto.Message) []byte {
		t.Helper()
		m, err := wire.StaticOf(kind, s, s.Name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := wire.EncodeAs(wire.As{Form: wire.V2}, s.Name, kind, m, 0)
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
		// API listeners have no address; that v2 wants one is for those of Envoy.
		if v, ok := into.(interface{ ValidateAll() error }); ok && kind != wire.Listener {
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
	old(wire.Cluster, c)
	if c.GetCommonLbConfig().GetLocalityWeightedLbConfig() == nil || c.GetLoadBalancingPolicy() != nil || c.GetLrsServer().GetSelf() == nil ||
		c.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil || c.GetEdsClusterConfig().GetEdsConfig().GetResourceApiVersion() != 0 {
		t.Errorf("got %v", c)
	}
	l := &apiv2.Listener{}
	old(wire.Listener, l)
	h := &hcmv2.HttpConnectionManager{}
	if err := l.GetApiListener().GetApiListener().UnmarshalTo(h); err != nil {
		t.Fatal(err)
	}
	if url := h.GetHttpFilters()[0].GetTypedConfig().GetTypeUrl(); !strings.HasSuffix(url, "router.v2.Router") || h.GetRds().GetRouteConfigName() != "checkout" {
		t.Errorf("got %v", h)
	}
	rc := &apiv2.RouteConfiguration{}
	old(wire.Route, rc)

	// 2017: no listeners; clusters without what came later.
	m, err := wire.StaticOf(wire.Listener, s, s.Name)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := wire.EncodeAs(wire.As{Form: wire.V2017}, s.Name, wire.Listener, m, 0); err != nil || r != nil {
		t.Errorf("got %v, %v; want none", r, err)
	}
	m, err = wire.StaticOf(wire.Cluster, s, s.Name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.EncodeAs(wire.As{Form: wire.V2017}, s.Name, wire.Cluster, m, 0)
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

func TestXDSTPNames(t *testing.T) {
	const cluster, endpoints = "xdstp://a/envoy.config.cluster.v3.Cluster/", "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/"
	for _, c := range []struct {
		kind       wire.Kind
		name, want string
	}{
		{wire.Cluster, "checkout", "checkout"},
		{wire.Cluster, cluster + "checkout", "checkout"},
		{wire.Cluster, cluster + "checkout?env=prod#x", "checkout"},
		{wire.Cluster, cluster + "outbound%7C80%7C%7Ca.b", "outbound|80||a.b"},
		{wire.Cluster, "xdstp:///envoy.config.cluster.v3.Cluster/x/y", "x/y"},
		{wire.Cluster, endpoints + "checkout", ""},
		{wire.Endpoints, endpoints + "checkout", "checkout"},
		{wire.Cluster, cluster, ""},
		{wire.Cluster, cluster + "%zz", ""},
		{wire.Cluster, "xdstp://", ""},
		{wire.Cluster, "xdstp://a", ""},
		{wire.Cluster, "xdstp://a/b", ""},
	} {
		if got := wire.ServiceOf(c.kind, c.name); got != c.want {
			t.Errorf("%s %q stands for %q, want %q", c.kind, c.name, got, c.want)
		}
	}
	if got := wire.Renamed(cluster+"x?a=1", wire.Endpoints); got != endpoints+"x?a=1" {
		t.Errorf("got %q", got)
	}
	for name, want := range map[string]string{cluster + "x": "x", endpoints + "y?z": "y", "plain": "plain", "xdstp://": ""} {
		if got := wire.ReportedService(name); got != want {
			t.Errorf("%q reports on %q, want %q", name, got, want)
		}
	}
}

// What refers to other resources does so in the same way as it is named.
func TestXDSTPResources(t *testing.T) {
	const name = "xdstp://a/envoy.config.cluster.v3.Cluster/checkout"
	m, err := wire.StaticOf(wire.Cluster, &isobar.Service{Name: "checkout"}, name)
	if err != nil {
		t.Fatal(err)
	}
	c := m.(*clusterv3.Cluster)
	if c.GetName() != name || c.GetEdsClusterConfig().GetServiceName() != wire.Renamed(name, wire.Endpoints) {
		t.Errorf("got %v", c)
	}
}

// The framing of a resource with a TTL is that of the generated types.
func TestTTL(t *testing.T) {
	e, err := wire.EncodeAs(wire.As{TTL: true}, "a", wire.Endpoints, wire.EmptyAssignment("a"), 7*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	sotw, delta := &discoveryv3.DiscoveryResponse{}, &discoveryv3.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(append(append([]byte(nil), e.SotW...), e.Beat.SotW...), sotw); err != nil {
		t.Fatal(err)
	}
	both := append(append(append([]byte(nil), e.Delta...), e.Body...), e.Beat.Delta...)
	if err := proto.Unmarshal(both, delta); err != nil {
		t.Fatal(err)
	}
	for i, want := range delta.GetResources() {
		got := &discoveryv3.Resource{}
		if err := sotw.GetResources()[i].UnmarshalTo(got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) || got.GetName() != "a" || got.GetTtl().AsDuration() != 7*time.Second || got.GetVersion() != e.Version ||
			(got.GetResource() == nil) != (i == 1) {
			t.Errorf("%d: got %v and %v", i, got, want)
		}
	}
}
