package rpc_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	corev2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/core"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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

// Old clients say what they are in a field that v3 does not have. How drops add
// up depends on it.
func TestBuildVersion(t *testing.T) {
	const sha = "d362e791eb9e4efa8d87f6d878740e72dc8330ac"
	for _, tc := range []struct {
		build, agent string
		want         load.Agent
		shown        string
	}{
		{sha + "/1.5.0/Clean/RELEASE", "", load.AgentEnvoy, sha + "/1.5.0/Clean/RELEASE"},
		{"gRPC Go 1.29.1", "", load.AgentGRPC, "gRPC Go 1.29.1"},
		{"gRPC C-core linux C-core 9.0.0", "gRPC C-core linux", load.AgentGRPC, "gRPC C-core linux"},
		{"of my own/2", "", load.AgentUnknown, "of my own/2"},
		{sha, "", load.AgentUnknown, sha},
		{sha + "/1.5.0/Clean/RELEASE", "mine", load.AgentUnknown, "mine"},
		{"", "", load.AgentUnknown, ""},
		{strings.Repeat("é", 5000), "", load.AgentUnknown, strings.Repeat("é", 512)},
	} {
		data, err := proto.Marshal(&corev2.Node{Id: "n", BuildVersion: tc.build, UserAgentName: tc.agent}) //nolint:staticcheck // deprecated, and all that old clients have
		if err != nil {
			t.Fatal(err)
		}
		var n corev3.Node
		if err := proto.Unmarshal(data, &n); err != nil {
			t.Fatal(err)
		}
		got, err := rpc.NodeFrom(&n)
		if err != nil || got.Agent != tc.want || got.UserAgent != tc.shown {
			t.Errorf("%q: %v, %q, %v; want %v, %q", tc.build, got.Agent, got.UserAgent, err, tc.want, tc.shown)
		}
	}
	odd := &corev3.Node{Id: "n"}
	odd.ProtoReflect().SetUnknown([]byte{0x28, 1, 0x2a, 200}) // a number, then a text that ends too soon
	if got, err := rpc.NodeFrom(odd); err != nil || got.UserAgent != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDefectsAreToldWithABound: each stream that a panic ends gets its status,
// and the log does not grow with every one of them.
func TestDefectsAreToldWithABound(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var panics rpc.Panics
	broken := func() (err error) {
		defer panics.Recovered(&err, log, "method", "M")
		panic("a bug")
	}
	for range 1000 {
		if err := broken(); status.Code(err) != codes.Internal {
			t.Fatal(err)
		}
	}
	lines := strings.Count(out.String(), "a bug")
	if lines == 0 || lines > 50 || !strings.Contains(out.String(), "node_test.go") {
		t.Errorf("%d lines:\n%.2000s", lines, out.String())
	}
}
