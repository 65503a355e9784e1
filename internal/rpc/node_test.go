package rpc_test

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
)

func TestNodeFrom(t *testing.T) {
	got, err := rpc.NodeFrom(&corev3.Node{
		Id: "n", Cluster: "web", UserAgentName: "gRPC Go", UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "1.85.0"},
		Locality:       &corev3.Locality{Region: "us-east", Zone: "b", SubZone: "rack1"},
		ClientFeatures: []string{rpc.FeatureNoOverprovisioning, "else"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := rpc.Node{
		Node:      load.Node{ID: "n", Cluster: "web", Locality: isobar.MustLocality("us-east/b/rack1"), Agent: load.AgentGRPC},
		UserAgent: "gRPC Go 1.85.0", NoOverprovision: true,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, err := rpc.NodeFrom(nil); err != nil || got != (rpc.Node{}) {
		t.Errorf("no node: %+v, %v", got, err)
	}
	if _, err := rpc.NodeFrom(&corev3.Node{ClientFeatures: make([]string, 300)}); err == nil {
		t.Error("300 features are accepted")
	}
	for agent, want := range map[string]load.Agent{
		"envoy": load.AgentEnvoy, "gRPC Node Pure JS": load.AgentGRPC, "grpc-c++": load.AgentGRPC, "": load.AgentUnknown, "curl": load.AgentUnknown,
	} {
		if got, _ := rpc.NodeFrom(&corev3.Node{UserAgentName: agent}); got.Agent != want {
			t.Errorf("agent %q is taken for %v", agent, got.Agent)
		}
	}
	got, _ = rpc.NodeFrom(&corev3.Node{ClientFeatures: []string{rpc.FeatureSendAllClusters}})
	if !got.SendAllClusters || got.NoOverprovision {
		t.Errorf("features: %+v", got)
	}
}
