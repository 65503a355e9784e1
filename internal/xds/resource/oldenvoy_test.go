package resource_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// TestEnvoysThatRefuseWRRLocality: those before 1.37, by the version that they
// tell; of others nothing is assumed.
func TestEnvoysThatRefuseWRRLocality(t *testing.T) {
	build := func(major, minor uint32) *corev3.Node {
		return &corev3.Node{UserAgentName: "envoy", UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: major, MinorNumber: minor, Patch: 2}},
		}}
	}
	text := func(agent, version string) *corev3.Node {
		return &corev3.Node{UserAgentName: agent, UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: version}}
	}
	for _, tt := range []struct {
		node    *corev3.Node
		refuses bool
		agent   string
	}{
		{build(1, 36), true, "envoy 1.36.2"},
		{build(1, 37), false, "envoy 1.37.2"},
		{build(2, 0), false, "envoy 2.0.2"},
		{text("envoy", "1.30.0"), true, "envoy 1.30.0"},
		{text("envoy", "new"), false, "envoy new"},
		{text("envoy", ""), false, "envoy"},
		{text("gRPC Go", "1.30.0"), false, "gRPC Go 1.30.0"},
	} {
		n, err := rpc.NodeFrom(tt.node)
		if err != nil || n.UserAgent != tt.agent || n.RefusesWRRLocality() != tt.refuses {
			t.Errorf("%s: agent %q, refuses %v, error %v", tt.agent, n.UserAgent, n.RefusesWRRLocality(), err)
		}
	}
}

// TestClusterWithoutPolicies: weights of localities are obeyed nevertheless, and
// what the cluster reports is left.
func TestClusterWithoutPolicies(t *testing.T) {
	c, err := resource.ClusterOf(&isobar.Service{Name: "a", ORCA: isobar.ORCA{On: true}})
	if err != nil {
		t.Fatal(err)
	}
	metrics := len(c.GetLrsReportEndpointMetrics())
	resource.WithoutPolicies(c)
	if c.GetLoadBalancingPolicy() != nil || c.GetCommonLbConfig().GetLocalityWeightedLbConfig() == nil ||
		c.GetLbPolicy() != clusterv3.Cluster_ROUND_ROBIN || len(c.GetLrsReportEndpointMetrics()) != metrics || metrics == 0 {
		t.Errorf("%v", c)
	}
}
