package rpc_test

import (
	"strings"
	"testing"

	corev2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/core"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
)

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
