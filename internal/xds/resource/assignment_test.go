package resource_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	cswrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func group(locality string, addresses ...string) *isobar.EndpointGroup {
	g := &isobar.EndpointGroup{Locality: isobar.MustLocality(locality)}
	for _, a := range addresses {
		g.Endpoints = append(g.Endpoints, isobar.WeightedEndpoint{Address: a, Weight: 1})
	}
	return g
}

func TestAssignment(t *testing.T) {
	near, far := group("us-east/b", "10.0.0.1:80", "[2001:db8::1]:81"), group("eu-west/a/x", "10.0.0.2:80")
	near.Endpoints[0].Weight = 3
	near.Endpoints[1].Health = isobar.Draining
	got, err := resource.Assignment(&isobar.Assignment{
		Service: "checkout", Drop: 0.25, OverprovisioningFactor: 200,
		Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: near, Weight: 9000}}, {{EndpointGroup: far, Weight: 7}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &endpointv3.ClusterLoadAssignment{}
	if err := protojson.Unmarshal([]byte(`{
		"clusterName": "checkout",
		"endpoints": [
			{"locality": {"region": "us-east", "zone": "b"}, "loadBalancingWeight": 9000, "lbEndpoints": [
				{"endpoint": {"address": {"socketAddress": {"address": "10.0.0.1", "portValue": 80}}}, "loadBalancingWeight": 3,
				 "metadata": {"filterMetadata": {"isobar": {"drop_overload": 0.25}}}},
				{"endpoint": {"address": {"socketAddress": {"address": "2001:db8::1", "portValue": 81}}}, "loadBalancingWeight": 1,
				 "healthStatus": "DRAINING", "metadata": {"filterMetadata": {"isobar": {"draining": true}}}}]},
			{"locality": {"region": "eu-west", "zone": "a", "subZone": "x"}, "loadBalancingWeight": 7, "priority": 1, "lbEndpoints": [
				{"endpoint": {"address": {"socketAddress": {"address": "10.0.0.2", "portValue": 80}}}, "loadBalancingWeight": 1}]}],
		"policy": {"dropOverloads": [{"category": "isobar_overload", "dropPercentage": {"numerator": 25, "denominator": "HUNDRED"}}],
			"overprovisioningFactor": 200}
	}`), want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", protojson.Format(got), protojson.Format(want))
	}
}

func TestAssignmentPolicy(t *testing.T) {
	for _, tc := range []struct {
		drop     float64
		opf      uint32
		category bool
		num      uint32
		den      typev3.FractionalPercent_DenominatorType
	}{
		{drop: 0, opf: 140},
		{drop: 0.00001, opf: 140},
		{drop: 0.5, opf: 140, category: true, num: 50, den: typev3.FractionalPercent_HUNDRED},
		{drop: 1, opf: 140, category: true, num: 100, den: typev3.FractionalPercent_HUNDRED},
		{drop: 0.07, opf: 140, category: true, num: 7, den: typev3.FractionalPercent_HUNDRED},
		{drop: 0.1234, opf: 140, category: true, num: 1234, den: typev3.FractionalPercent_TEN_THOUSAND},
		{drop: 0.4294, opf: 140, category: true, num: 4294, den: typev3.FractionalPercent_TEN_THOUSAND},
		{drop: 0.4295, opf: 140, category: true, num: 42, den: typev3.FractionalPercent_HUNDRED},
		{drop: 0.9999, opf: 140, category: true, num: 99, den: typev3.FractionalPercent_HUNDRED},
		{drop: 0.00016, opf: 140, category: true, num: 2, den: typev3.FractionalPercent_TEN_THOUSAND},
		{drop: 0, opf: 100},
	} {
		m, err := resource.Assignment(&isobar.Assignment{Service: "s", Drop: tc.drop, OverprovisioningFactor: tc.opf})
		if err != nil {
			t.Errorf("drop %v: %v", tc.drop, err)
			continue
		}
		if tc.opf == 140 && !tc.category && m.GetPolicy() != nil {
			t.Errorf("drop %v: a policy that says the defaults", tc.drop)
		}
		if got := m.GetPolicy().GetOverprovisioningFactor(); (got != nil) != (tc.opf != 140) || (got != nil && got.GetValue() != tc.opf) {
			t.Errorf("factor %d: %v", tc.opf, got)
		}
		drops := m.GetPolicy().GetDropOverloads()
		if len(drops) == 0 {
			if tc.category {
				t.Errorf("drop %v: none", tc.drop)
			}
			continue
		}
		p := drops[0].GetDropPercentage()
		if drops[0].GetCategory() != isobar.DropCategory || p.GetNumerator() != tc.num || p.GetDenominator() != tc.den {
			t.Errorf("drop %v: %v", tc.drop, drops[0])
		}
	}
}

func TestAssignmentRefuses(t *testing.T) {
	one := [][]isobar.LocalityWeight{{{EndpointGroup: group("r/z", "10.0.0.1:80"), Weight: 1}}}
	for says, a := range map[string]*isobar.Assignment{
		"cluster_name: empty":       {Priorities: one},
		"drop of NaN":               {Service: "s", Drop: math.NaN()},
		"drop of -0.1":              {Service: "s", Drop: -0.1},
		"drop of 1.5":               {Service: "s", Drop: 1.5},
		"priority 0: missing":       {Service: "s", Priorities: [][]isobar.LocalityWeight{{}, one[0]}},
		"without its endpoints":     {Service: "s", Priorities: [][]isobar.LocalityWeight{{{Weight: 1}}}},
		`"db.example:80", want`:     {Service: "s", Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: group("r/z", "db.example:80"), Weight: 1}}}},
		`"10.0.0.1:0", want`:        {Service: "s", Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: group("r/z", "10.0.0.1:0"), Weight: 1}}}},
		"0 or not set":              {Service: "s", Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: group("r/z", "10.0.0.1:80")}}}},
		"10.0.0.1:80 is already at": {Service: "s", Priorities: [][]isobar.LocalityWeight{one[0], {{EndpointGroup: group("r/y", "10.0.0.1:80"), Weight: 1}}}},
		"r/z/ is in priority 0":     {Service: "s", Priorities: [][]isobar.LocalityWeight{{one[0][0], one[0][0]}}},
		"priorities must not have":  {Service: "s", Priorities: [][]isobar.LocalityWeight{one[0], {}}},
	} {
		_, err := resource.Assignment(a)
		if !errors.Is(err, rpc.ErrRefused) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

// The union of what Envoy and gRPC reject, one by one.
func TestCheckAssignment(t *testing.T) {
	type assignment = endpointv3.ClusterLoadAssignment
	policy := func(m *assignment) *endpointv3.ClusterLoadAssignment_Policy {
		m.Policy = &endpointv3.ClusterLoadAssignment_Policy{}
		return m.Policy
	}
	drop := func(category string, n uint32, d typev3.FractionalPercent_DenominatorType) *endpointv3.ClusterLoadAssignment_Policy_DropOverload {
		return &endpointv3.ClusterLoadAssignment_Policy_DropOverload{
			Category: category, DropPercentage: &typev3.FractionalPercent{Numerator: n, Denominator: d},
		}
	}
	second := func(m *assignment) *endpointv3.LocalityLbEndpoints { return m.GetEndpoints()[1] }
	host := func(m *assignment) *endpointv3.LbEndpoint { return second(m).GetLbEndpoints()[0] }
	address := func(m *assignment) *corev3.SocketAddress {
		return host(m).GetEndpoint().GetAddress().GetSocketAddress()
	}
	for _, tc := range []struct {
		name  string
		spoil func(m *assignment)
		field string // "" = accepted
	}{
		{"good", func(*assignment) {}, ""},
		{"no name", func(m *assignment) { m.ClusterName = "" }, "cluster_name"},
		{"another name", func(m *assignment) { m.ClusterName = "t" }, "cluster_name"},
		{"priority too high", func(m *assignment) { second(m).Priority = 129 }, "endpoints[1].priority"},
		{"priority gap", func(m *assignment) { second(m).Priority = 2 }, "endpoints"},
		{"locality weight 0", func(m *assignment) { second(m).LoadBalancingWeight = wrapperspb.UInt32(0) }, "endpoints[1].load_balancing_weight"},
		{"locality weight not set", func(m *assignment) { second(m).LoadBalancingWeight = nil }, "endpoints[1].load_balancing_weight"},
		{"host weight 0", func(m *assignment) { host(m).LoadBalancingWeight = wrapperspb.UInt32(0) }, "endpoints[1].lb_endpoints[0].load_balancing_weight"},
		{"host weight not set", func(m *assignment) { host(m).LoadBalancingWeight = nil }, ""},
		{"locality twice", func(m *assignment) { second(m).Locality = m.GetEndpoints()[0].GetLocality() }, "endpoints[1].locality"},
		{"locality twice in two priorities", func(m *assignment) {
			second(m).Locality, second(m).Priority = m.GetEndpoints()[0].GetLocality(), 1
		}, ""},
		{"locality not set", func(m *assignment) { second(m).Locality = nil }, "endpoints[1].locality"},
		{"duplicate address", func(m *assignment) { address(m).Address = "10.0.0.1" }, "endpoints[1].lb_endpoints[0].endpoint.address"},
		{"duplicate additional address", func(m *assignment) {
			host(m).GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{
				Address: m.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress(),
			}}
		}, "endpoints[1].lb_endpoints[0].endpoint.additional_addresses[0]"},
		{"locality weights too heavy", func(m *assignment) { second(m).LoadBalancingWeight = wrapperspb.UInt32(math.MaxUint32) }, "endpoints[1].load_balancing_weight"},
		{"locality weights too heavy, but apart", func(m *assignment) {
			second(m).LoadBalancingWeight, second(m).Priority = wrapperspb.UInt32(math.MaxUint32), 1
		}, ""},
		{"host weights too heavy", func(m *assignment) {
			host(m).LoadBalancingWeight = wrapperspb.UInt32(math.MaxUint32)
			e := proto.CloneOf(host(m))
			e.GetEndpoint().GetAddress().GetSocketAddress().Address = "10.0.0.9"
			second(m).LbEndpoints = append(second(m).LbEndpoints, e)
		}, "endpoints[1].lb_endpoints[1].load_balancing_weight"},
		{"two drops", func(m *assignment) {
			policy(m).DropOverloads = []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{drop("a", 1, 0), drop("b", 1, 0)}
		}, "policy.drop_overloads"},
		{"drop of more than all", func(m *assignment) {
			policy(m).DropOverloads = []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{drop("a", 10_001, typev3.FractionalPercent_TEN_THOUSAND)}
		}, "policy.drop_overloads[0].drop_percentage"},
		{"bad denominator", func(m *assignment) {
			policy(m).DropOverloads = []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{drop("a", 1, 9)}
		}, "policy.drop_overloads[0].drop_percentage"},
		{"empty category", func(m *assignment) {
			policy(m).DropOverloads = []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{drop("", 1, 0)}
		}, "policy.drop_overloads[0].category"},
		{"drop", func(m *assignment) {
			policy(m).DropOverloads = []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{drop("a", 100, 0)}
		}, ""},
		{"overprovisioning 0", func(m *assignment) { policy(m).OverprovisioningFactor = wrapperspb.UInt32(0) }, "policy.overprovisioning_factor"},
		{"stale at once", func(m *assignment) { policy(m).EndpointStaleAfter = durationpb.New(0) }, "policy.endpoint_stale_after"},
		{"stale in the past", func(m *assignment) { policy(m).EndpointStaleAfter = durationpb.New(-1) }, "policy.endpoint_stale_after"},
		{"not an IP", func(m *assignment) { address(m).Address = "db.example" }, "endpoints[1].lb_endpoints[0].endpoint.address"},
		{"an IP with a zone", func(m *assignment) { address(m).Address = "fe80::1%eth0" }, "endpoints[1].lb_endpoints[0].endpoint.address"},
		{"no port", func(m *assignment) { address(m).PortSpecifier = nil }, "endpoints[1].lb_endpoints[0].endpoint.address"},
		{"port too high", func(m *assignment) { address(m).PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: 70_000} }, "endpoints[1].lb_endpoints[0].endpoint.address"},
		{"no address", func(m *assignment) { host(m).HostIdentifier = nil }, "endpoints[1].lb_endpoints[0].endpoint.address"},
		{"unknown health", func(m *assignment) { host(m).HealthStatus = 99 }, "endpoints[1].lb_endpoints[0].health_status"},
		{"nothing at all", func(m *assignment) { m.Endpoints = nil }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := resource.Assignment(&isobar.Assignment{Service: "s", Priorities: [][]isobar.LocalityWeight{{
				{EndpointGroup: group("r/y", "10.0.0.1:80"), Weight: 1}, {EndpointGroup: group("r/z", "10.0.0.2:80"), Weight: 1},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			tc.spoil(m)
			err = resource.CheckAssignment(m, "s")
			if tc.field == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var field *rpc.FieldError
			if !errors.As(err, &field) || field.Field != tc.field || !errors.Is(err, rpc.ErrRefused) {
				t.Errorf("got %v, want field %s", err, tc.field)
			}
		})
	}
}

// What the generated validation demands, which stands for Envoy's own.
func TestMadeResourcesAreValid(t *testing.T) {
	for _, orca := range []bool{false, true} {
		s := &isobar.Service{Name: "checkout", ORCA: isobar.ORCA{On: orca}}
		c, err := resource.ClusterOf(s)
		if err != nil {
			t.Fatal(err)
		}
		l, err := resource.ListenerOf(s)
		if err != nil {
			t.Fatal(err)
		}
		r, err := resource.RouteOf(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []interface{ ValidateAll() error }{c, l, r} {
			if err := m.ValidateAll(); err != nil {
				t.Errorf("orca %v: %T: %v", orca, m, err)
			}
		}
		// Envoy rejects the two together.
		if orca == (c.GetCommonLbConfig().GetLocalityWeightedLbConfig() != nil) || orca != (c.GetLoadBalancingPolicy() != nil) {
			t.Errorf("orca %v: %s", orca, protojson.Format(c))
		}
		if c.GetLbPolicy() != clusterv3.Cluster_ROUND_ROBIN || c.GetLrsServer().GetSelf() == nil ||
			c.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil || c.GetEdsClusterConfig().GetEdsConfig().GetInitialFetchTimeout() == nil ||
			orca != (len(c.GetLrsReportEndpointMetrics()) > 0) {
			t.Errorf("orca %v: %s", orca, protojson.Format(c))
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 3000)} {
		if _, err := resource.ClusterOf(&isobar.Service{Name: name}); !errors.Is(err, rpc.ErrRefused) {
			t.Errorf("a name of %d bytes: %v", len(name), err)
		}
	}
}

// Clients pass on the ORCA metrics that something depends on, and no others.
func TestClustersAskForMetrics(t *testing.T) {
	for _, tc := range []struct {
		name    string
		service isobar.Service
		want    []string
	}{
		{"nothing", isobar.Service{}, nil},
		{"counted by clients", isobar.Service{Limits: []isobar.Limit{{Metric: isobar.MetricRate}, {Metric: isobar.MetricInFlight}}}, nil},
		{"orca", isobar.Service{ORCA: isobar.ORCA{On: true}}, []string{"application_utilization", "cpu_utilization", "mem_utilization"}},
		{
			"limits", isobar.Service{Limits: []isobar.Limit{{Metric: "named_metrics.kv"}, {Metric: isobar.MetricUtilization}, {Metric: "named_metrics.kv", DryRun: true}}},
			[]string{"application_utilization", "cpu_utilization", "named_metrics.kv"},
		},
		{
			"both", isobar.Service{ORCA: isobar.ORCA{On: true}, Limits: []isobar.Limit{{Metric: isobar.MetricMemory}, {Metric: "named_metrics.kv"}}},
			[]string{"application_utilization", "cpu_utilization", "mem_utilization", "named_metrics.kv"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.service.Name = "checkout"
			c, err := resource.ClusterOf(&tc.service)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.GetLrsReportEndpointMetrics(); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if err := c.ValidateAll(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Reports out of band are asked for where they are configured, and as often as
// that says.
func TestORCAOutOfBand(t *testing.T) {
	for _, period := range []time.Duration{0, 10 * time.Second} {
		c, err := resource.ClusterOf(&isobar.Service{Name: "checkout", ORCA: isobar.ORCA{On: true, OutOfBand: period}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ValidateAll(); err != nil {
			t.Error(err)
		}
		var wrr wrrv3.WrrLocality
		if err := c.GetLoadBalancingPolicy().GetPolicies()[0].GetTypedExtensionConfig().GetTypedConfig().UnmarshalTo(&wrr); err != nil {
			t.Fatal(err)
		}
		var weighted cswrrv3.ClientSideWeightedRoundRobin
		if err := wrr.GetEndpointPickingPolicy().GetPolicies()[0].GetTypedExtensionConfig().GetTypedConfig().UnmarshalTo(&weighted); err != nil {
			t.Fatal(err)
		}
		if weighted.GetEnableOobLoadReport().GetValue() != (period > 0) || weighted.GetOobReportingPeriod().AsDuration() != period {
			t.Errorf("%s: %v", period, &weighted)
		}
	}
}

// Clients that don't know the first policy take the next one; without it they
// refuse the cluster.
func TestORCAPoliciesFallBack(t *testing.T) {
	c, err := resource.ClusterOf(&isobar.Service{Name: "checkout", ORCA: isobar.ORCA{On: true}})
	if err != nil {
		t.Fatal(err)
	}
	var wrr wrrv3.WrrLocality
	if err := c.GetLoadBalancingPolicy().GetPolicies()[0].GetTypedExtensionConfig().GetTypedConfig().UnmarshalTo(&wrr); err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, p := range wrr.GetEndpointPickingPolicy().GetPolicies() {
		types = append(types, p.GetTypedExtensionConfig().GetTypedConfig().GetTypeUrl())
	}
	const prefix = "type.googleapis.com/envoy.extensions.load_balancing_policies."
	if want := []string{prefix + "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin", prefix + "round_robin.v3.RoundRobin"}; !slices.Equal(types, want) {
		t.Errorf("got %v, want %v", types, want)
	}
}

// TestRoutesHaveNoTimeout: unset, Envoy's timeout of a route is 15 s; deadlines are the caller's.
func TestRoutesHaveNoTimeout(t *testing.T) {
	r, err := resource.RouteOf(&isobar.Service{Name: "checkout"})
	if err != nil {
		t.Fatal(err)
	}
	timeout := r.GetVirtualHosts()[0].GetRoutes()[0].GetRoute().GetTimeout()
	if timeout == nil || timeout.AsDuration() != 0 {
		t.Errorf("a timeout of %v, want 0, said explicitly", timeout)
	}
}

func TestSettingsInThePolicy(t *testing.T) {
	for _, tt := range []struct {
		a    isobar.Assignment
		want string // the policy; empty = none
	}{
		{isobar.Assignment{ResourceTTL: time.Minute}, ``}, // it stands around the resource, not in it
		{isobar.Assignment{EndpointStaleAfter: 90 * time.Second}, `{"endpointStaleAfter": "90s"}`},
		{isobar.Assignment{WeightedPriorityHealth: true}, `{"weightedPriorityHealth": true}`},
		{
			isobar.Assignment{WeightedPriorityHealth: true, EndpointStaleAfter: 5500 * time.Millisecond, OverprovisioningFactor: 100},
			`{"weightedPriorityHealth": true, "endpointStaleAfter": "5.5s", "overprovisioningFactor": 100}`,
		},
	} {
		tt.a.Service = "s"
		m, err := resource.Assignment(&tt.a)
		if err != nil {
			t.Errorf("%+v: %v", tt.a, err)
			continue
		}
		var want *endpointv3.ClusterLoadAssignment_Policy
		if tt.want != "" {
			want = &endpointv3.ClusterLoadAssignment_Policy{}
			if err := protojson.Unmarshal([]byte(tt.want), want); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.GetPolicy(); !proto.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%+v: policy %v, want %v", tt.a, got, want)
		}
	}
	if _, err := resource.Assignment(&isobar.Assignment{Service: "s", EndpointStaleAfter: -time.Second}); err == nil {
		t.Error("endpoints that are stale at once go out")
	}
}

// BenchmarkEncodeAssignment checks and encodes an assignment of 10 localities
// with 10 endpoints each.
func BenchmarkEncodeAssignment(b *testing.B) {
	a := bigAssignment()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := resource.EncodeAssignment(rpc.As{}, a.Service, a); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAssignment makes messages of it first.
func BenchmarkAssignment(b *testing.B) {
	a := bigAssignment()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := encodeByMessages(rpc.As{}, a.Service, a); err != nil {
			b.Fatal(err)
		}
	}
}

func bigAssignment() *isobar.Assignment {
	a := &isobar.Assignment{Service: "checkout", OverprovisioningFactor: 140}
	var localities []isobar.LocalityWeight
	for l := range 10 {
		g := &isobar.EndpointGroup{Locality: isobar.MustLocality(fmt.Sprintf("us/%d", l))}
		for e := range 10 {
			g.Endpoints = append(g.Endpoints, isobar.WeightedEndpoint{Address: fmt.Sprintf("10.0.%d.%d:8080", l, e), Weight: 1, Health: isobar.Healthy})
		}
		localities = append(localities, isobar.LocalityWeight{EndpointGroup: g, Weight: 1000})
	}
	a.Priorities = [][]isobar.LocalityWeight{localities}
	return a
}
