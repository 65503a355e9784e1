package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// Client features that change what a server may do.
const (
	FeatureSendAllClusters    = "envoy.lrs.supports_send_all_clusters"
	FeatureNoOverprovisioning = "envoy.lb.does_not_support_overprovisioning"
	FeatureTTL                = "xds.config.supports-resource-ttl"
	FeatureWrapped            = "xds.config.resource-in-sotw"
	// FeatureSupportsWrapped is the name of the same feature in Envoy's list of
	// client features.
	FeatureSupportsWrapped = "xds.config.supports-resource-in-sotw"
)

// Bounds on what a node may tell. Real nodes stay far below.
const (
	maxNodeName     = 1024 // bytes of id, cluster and user agent
	MaxLocalityName = 253  // bytes of each part of a locality
	maxMachineName  = 253  // bytes of the name of a Kubernetes Node
	maxFeatures     = 256
)

// Node is a client as its first message tells.
type Node struct {
	load.Node

	UserAgent       string // name and version, for display
	Machine         string // the Kubernetes Node that it runs on, if its metadata says so and it has no locality
	SendAllClusters bool   // understands send_all_clusters of LRS
	NoOverprovision bool   // ignores overprovisioning factors
	TTL             bool   // understands resources with a time to live
	Wrapped         bool   // unwraps resources in state-of-the-world responses
}

// NodeFrom converts a node. A missing node, id or locality is allowed: such a
// client gets a view by headroom alone. Errors name the field.
func NodeFrom(n *corev3.Node) (Node, error) {
	if err := checkNode(n); err != nil {
		return Node{}, err
	}
	l := n.GetLocality()
	out := Node{
		Node: load.Node{
			ID:       n.GetId(),
			Cluster:  n.GetCluster(),
			Locality: isobar.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()},
			Agent:    agentOfNode(n),
		},
		UserAgent:       userAgent(n),
		SendAllClusters: slices.Contains(n.GetClientFeatures(), FeatureSendAllClusters),
		NoOverprovision: slices.Contains(n.GetClientFeatures(), FeatureNoOverprovisioning),
		TTL:             slices.Contains(n.GetClientFeatures(), FeatureTTL),
		Wrapped: slices.Contains(n.GetClientFeatures(), FeatureWrapped) ||
			slices.Contains(n.GetClientFeatures(), FeatureSupportsWrapped),
	}
	if out.Locality.IsZero() {
		out.Machine = machineOf(n)
	}
	return out, nil
}

// MachineKey is the key of a node's metadata that has the name of the Kubernetes Node.
// Envoys of Istio have it.
const MachineKey = "NODE_NAME"

func machineOf(n *corev3.Node) string {
	name := n.GetMetadata().GetFields()[MachineKey].GetStringValue()
	if len(name) > maxMachineName {
		return "" // no Node has such a name
	}
	return name
}

func checkNode(n *corev3.Node) error {
	l := n.GetLocality()
	for _, f := range []struct {
		field, value string
		limit        int
	}{
		{"node.id", n.GetId(), maxNodeName},
		{"node.cluster", n.GetCluster(), maxNodeName},
		{"node.user_agent_name", n.GetUserAgentName(), maxNodeName},
		{"node.user_agent_version", n.GetUserAgentVersion(), maxNodeName},
		{"node.locality.region", l.GetRegion(), MaxLocalityName},
		{"node.locality.zone", l.GetZone(), MaxLocalityName},
		{"node.locality.sub_zone", l.GetSubZone(), MaxLocalityName},
	} {
		if len(f.value) > f.limit {
			return BadMessagef(f.field, "%d bytes long, want at most %d", len(f.value), f.limit)
		}
	}
	if len(n.GetClientFeatures()) > maxFeatures {
		return BadMessagef("node.client_features", "%d features, want at most %d", len(n.GetClientFeatures()), maxFeatures)
	}
	return nil
}

// agentOf tells the kind of a client from its user agent: every gRPC says
// "gRPC" or "grpc" with its language, Envoy says "envoy".
func agentOf(name string) load.Agent {
	name = strings.ToLower(name)
	switch {
	case strings.HasPrefix(name, "envoy"):
		return load.AgentEnvoy
	case strings.HasPrefix(name, "grpc"):
		return load.AgentGRPC
	default:
		return load.AgentUnknown
	}
}

// IsGRPC reports whether the client is gRPC's own, in any language.
func (n *Node) IsGRPC() bool { return n.Agent == load.AgentGRPC }

// NeedsReturnMark reports whether the client uses a removed service again only if
// the resources that return have a mark (ReturnMark): grpc-js and C-core.
func (n *Node) NeedsReturnMark() bool {
	return strings.HasPrefix(n.UserAgent, "gRPC Node") || strings.HasPrefix(n.UserAgent, "gRPC C-core")
}

// RefusesWRRLocality reports whether the client is an Envoy before 1.37.
func (n *Node) RefusesWRRLocality() bool {
	if !n.IsEnvoy() {
		return false
	}
	var major, minor int
	_, version, _ := strings.Cut(n.UserAgent, " ")
	if k, err := fmt.Sscanf(version, "%d.%d", &major, &minor); k < 2 || err != nil {
		return false // it does not say
	}
	return major == 1 && minor < 37
}

// IgnoresORCA reports whether the client distributes requests evenly over the endpoints
// of a locality, whatever utilization these report: grpc-js and Envoy before 1.37.
func (n *Node) IgnoresORCA() bool {
	return strings.HasPrefix(n.UserAgent, "gRPC Node") || n.RefusesWRRLocality()
}

// IsEnvoy reports whether the client is an Envoy.
func (n *Node) IsEnvoy() bool { return n.Agent == load.AgentEnvoy }

func userAgent(n *corev3.Node) string {
	if n.GetUserAgentName() == "" {
		return buildVersion(n)
	}
	if v := n.GetUserAgentVersion(); v != "" {
		return n.GetUserAgentName() + " " + v
	}
	if v := n.GetUserAgentBuildVersion().GetVersion(); v != nil { // Envoy
		return fmt.Sprintf("%s %d.%d.%d", n.GetUserAgentName(), v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
	}
	return n.GetUserAgentName()
}

// nodeBuildVersion is the field of a node in which old clients say what they
// are. v3 does not know it.
const nodeBuildVersion = 5

// buildVersion returns what an old client says of itself, empty if nothing.
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

// PeerAddress is the address of the peer of a call; "" if it is not known.
func PeerAddress(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// Panics recovers panics that peers could cause. The zero value is ready; it is safe
// for concurrent use.
type Panics struct{ logs LogLimit }

// Recovered makes a panic the end of one peer's stream or request and not of
// the process: deferred, it logs the panic with what the attributes say and
// sets err to a status for the peer. A peer that found a defect may go on for
// ever, so that only so many are logged.
func (d *Panics) Recovered(err *error, log *slog.Logger, attributes ...any) {
	if r := recover(); r != nil {
		if skipped, ok := d.logs.Allow(time.Now()); ok {
			log.Error("a stream failed with an internal error; other streams continue",
				append(attributes, "panic", fmt.Sprint(r), "stack", string(debug.Stack()), "skipped_lines", skipped)...)
		}
		*err = status.Error(codes.Internal, "isobar: internal error; it is in the server's log")
	}
}
