package rpc

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/load"
)

// nodeBuildVersion is the field of a node in which old clients say what they
// are. v3 does not know it.
const nodeBuildVersion = 5

// buildVersion gives what an old client says of itself, empty if nothing.
func buildVersion(n *corev3.Node) string {
	for rest := []byte(n.ProtoReflect().GetUnknown()); len(rest) > 0; {
		number, kind, size := protowire.ConsumeField(rest)
		if size < 0 {
			return ""
		}
		if number == nodeBuildVersion && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(rest)
			v, _ := protowire.ConsumeString(rest[tag:])
			return strings.ToValidUTF8(v[:min(len(v), maxNodeName)], "")
		}
		rest = rest[size:]
	}
	return ""
}

// agentOfNode tells the kind of a client from its user agent, or its build
// version where it has none.
func agentOfNode(n *corev3.Node) load.Agent {
	if n.GetUserAgentName() == "" {
		return agentOfBuild(buildVersion(n))
	}
	return agentOf(n.GetUserAgentName())
}

// agentOfBuild tells the kind of a client from its build version: gRPC begins
// with its name, Envoy has the revision, the version, and two words on how it
// was built.
func agentOfBuild(version string) load.Agent {
	revision, rest, _ := strings.Cut(version, "/")
	if len(revision) >= 7 && strings.Trim(revision, "0123456789abcdef") == "" && strings.Contains(rest, "/") {
		return load.AgentEnvoy
	}
	return agentOf(version)
}
