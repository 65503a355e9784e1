package csds

import (
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
)

// nodeOf gives what is kept of a client's node.
func nodeOf(n *rpc.Node) *corev3.Node {
	out := &corev3.Node{Id: n.ID, Cluster: n.Cluster}
	if l := n.Locality; !l.IsZero() {
		out.Locality = &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
	}
	name, version := splitAgent(n.UserAgent)
	out.UserAgentName = name
	if version != "" {
		out.UserAgentVersionType = &corev3.Node_UserAgentVersion{UserAgentVersion: version}
	}
	return out
}

// splitAgent takes name and version apart, which are kept as one text: names
// have blanks, versions begin with a digit.
func splitAgent(agent string) (name, version string) {
	at := strings.LastIndexByte(agent, ' ')
	if rest := strings.TrimPrefix(agent[at+1:], "v"); at > 0 && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
		return agent[:at], agent[at+1:]
	}
	return agent, ""
}

// configOf tells what a client was told of a resource; bare leaves the content
// out.
func configOf(r *xds.Resource, bare bool) *statusv3.ClientConfig_GenericXdsConfig {
	out := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: r.TypeURL, Name: r.Name}
	out.ConfigStatus, out.ClientStatus = statusOf(r)
	if !r.At.IsZero() {
		out.LastUpdated = timestamppb.New(r.At)
	}
	if r.Sent != nil {
		out.VersionInfo = r.Sent.Version
		if !bare {
			out.XdsConfig = contentOf(r.Sent.Body)
		}
	}
	if r.Delivery == xds.Rejected {
		out.ErrorState = &adminv3.UpdateFailureState{
			LastUpdateAttempt: timestamppb.New(r.Nack.At), Details: r.Nack.Text, VersionInfo: out.GetVersionInfo(),
		}
	}
	return out
}

// contentOf decodes the Any that was sent.
func contentOf(body []byte) *anypb.Any {
	out := &anypb.Any{}
	if err := proto.Unmarshal(body, out); err != nil {
		return nil // what we encoded ourselves can be decoded
	}
	return out
}

// statusOf translates how far a resource got.
func statusOf(r *xds.Resource) (statusv3.ConfigStatus, adminv3.ClientResourceStatus) {
	switch r.Delivery {
	case xds.Unanswered:
		return statusv3.ConfigStatus_STALE, adminv3.ClientResourceStatus_REQUESTED
	case xds.Rejected:
		return statusv3.ConfigStatus_ERROR, adminv3.ClientResourceStatus_NACKED
	case xds.Accepted:
		if r.Newer {
			return statusv3.ConfigStatus_NOT_SENT, adminv3.ClientResourceStatus_ACKED
		}
		return statusv3.ConfigStatus_SYNCED, adminv3.ClientResourceStatus_ACKED
	case xds.NotSent:
	}
	if r.Absent {
		return statusv3.ConfigStatus_NOT_SENT, adminv3.ClientResourceStatus_DOES_NOT_EXIST
	}
	return statusv3.ConfigStatus_NOT_SENT, adminv3.ClientResourceStatus_REQUESTED
}
