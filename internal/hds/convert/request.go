package convert

import (
	"math"
	"slices"
	"strings"
	"unicode"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// FeatureGRPCChecks is the client feature of a checker that can do gRPC checks
// for a management server. Envoy's enumeration of capabilities has no word for
// it, and Envoy can't do it: its clusters for health discovery don't speak
// HTTP/2. Isobar's own checker, which is known by its user agent, needs not
// say it.
const (
	FeatureGRPCChecks = "isobar.hds.supports_grpc_checks"
	checkerAgent      = "isobar-checker"
)

// CheckerHello is a checker as its first message tells.
type CheckerHello struct {
	Node      rpc.Node
	Protocols health.Protocols
	// MaxEndpoints bounds what it is to probe, see [health.Checker]; 0 = it says
	// nothing of it.
	MaxEndpoints int
}

// Bounded returns h with a bound for Envoys that say none.
func (h CheckerHello) Bounded(envoy int) CheckerHello {
	if h.MaxEndpoints == 0 && h.Node.Agent == load.AgentEnvoy {
		h.MaxEndpoints = envoy
	}
	return h
}

// MaxCheckerEndpoints is what a checker may ask for at most.
const MaxCheckerEndpoints = 1_000_000

// maxEndpointsOf reads `isobar: {max_endpoints: N}` in the metadata of a node; 0
// where it is not there.
func maxEndpointsOf(n *corev3.Node) (int, error) {
	v, found := n.GetMetadata().GetFields()["isobar"].GetStructValue().GetFields()["max_endpoints"]
	switch x := v.GetNumberValue(); {
	case found && (x < 1 || x > MaxCheckerEndpoints || x != math.Trunc(x)):
		return 0, rpc.BadMessagef("node.metadata.isobar.max_endpoints", "%v, want a whole number from 1 to %d", v.AsInterface(), MaxCheckerEndpoints)
	case found:
		return int(x), nil
	}
	return 0, nil
}

// HealthMessage is anything that a checker sends.
type HealthMessage struct {
	// Request is set in the first message of a stream; a later one changes what
	// the checker can probe.
	Request *healthv3.HealthCheckRequest
	// Response is a report. Neither is set where a checker has nothing to
	// report on and says so once per interval.
	Response *healthv3.EndpointHealthResponse
}

// FirstHealthMessage decodes the first message of a stream: a request, as it
// stands or, from builds before the end of 2018, without the message around
// it. Errors wrap ErrMessage.
func FirstHealthMessage(data []byte) (HealthMessage, error) {
	m, wrappedErr := decodeWrapped(data)
	if wrappedErr == nil && m.Request != nil && whole(m.Request) && whole(m.Request.GetNode()) {
		return m, nil
	}
	bare := &healthv3.HealthCheckRequest{}
	if err := rpc.DecodeUpTo(data, bare, maxHealthParts); err == nil && plainNode(bare.GetNode()) {
		return HealthMessage{Request: bare}, nil
	}
	return m, wrappedErr
}

// whole reports whether a message holds known fields only.
func whole(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) == 0 }

// plainNode reports whether a node was likely meant as one, rather than being
// the inside of another message.
func plainNode(n *corev3.Node) bool {
	return n != nil && n.GetId() != "" && !strings.ContainsFunc(n.GetId(), unicode.IsControl)
}

// LaterHealthMessage decodes a message of a stream after the first: a report, or a
// request in either form of [FirstHealthMessage]. A message without a
// member is allowed. Errors wrap ErrMessage.
//
// Reports say everything twice, see [HealthEntries]. The form that is not
// looked at is not decoded either, which is half of the work.
func LaterHealthMessage(data []byte) (HealthMessage, error) {
	report, ok := onlyReport(data)
	if !ok {
		return FirstHealthMessage(data)
	}
	if grouped, ok := groupedOnly(report); ok {
		m := &healthv3.EndpointHealthResponse{}
		if err := rpc.DecodeUpTo(grouped, m, maxHealthParts); err != nil {
			return HealthMessage{}, rpc.BadMessagef("endpoint_health_response", "%v", err)
		}
		return HealthMessage{Response: m}, nil
	}
	return decodeWrapped(data)
}

// decodeWrapped decodes a message as the API has had it since the end of 2018.
func decodeWrapped(data []byte) (HealthMessage, error) {
	var m healthv3.HealthCheckRequestOrEndpointHealthResponse
	if err := rpc.DecodeUpTo(data, &m, maxHealthParts); err != nil {
		return HealthMessage{}, rpc.BadMessagef("message", "%v", err)
	}
	return HealthMessageOf(&m), nil
}

// Field numbers of HealthCheckRequestOrEndpointHealthResponse and
// EndpointHealthResponse.
const (
	messageReport = 2
	reportFlat    = 1
	reportGrouped = 2
)

// onlyReport returns the report in a message that holds just that.
func onlyReport(data []byte) ([]byte, bool) {
	num, kind, n := protowire.ConsumeTag(data)
	if n < 0 || num != messageReport || kind != protowire.BytesType {
		return nil, false
	}
	report, m := protowire.ConsumeBytes(data[n:])
	return report, m >= 0 && n+m == len(data)
}

// groupedOnly returns a report without its flat entries, if it has both forms.
// Fields that it can't read it leaves to the decoder.
func groupedOnly(report []byte) ([]byte, bool) {
	var grouped []byte
	for rest := report; len(rest) > 0; {
		num, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return nil, false
		}
		m := protowire.ConsumeFieldValue(num, kind, rest[n:])
		if m < 0 {
			return nil, false
		}
		if num == reportGrouped && kind == protowire.BytesType {
			grouped = append(grouped, rest[:n+m]...)
		} else if num != reportFlat {
			return nil, false
		}
		rest = rest[n+m:]
	}
	return grouped, len(grouped) > 0
}

// HealthMessageOf takes a message apart.
func HealthMessageOf(m *healthv3.HealthCheckRequestOrEndpointHealthResponse) HealthMessage {
	return HealthMessage{Request: m.GetHealthCheckRequest(), Response: m.GetEndpointHealthResponse()}
}

// CheckerFrom converts the request of a checker. The node's id is needed, since
// it is what votes are counted by; without a locality all such checkers are
// one failure domain, and without capabilities a checker gets nothing to do.
// The API version of the checker decides which fields a specifier for it may have.
func CheckerFrom(r *healthv3.HealthCheckRequest, api rpc.APIVersion) (CheckerHello, error) {
	if r == nil {
		return CheckerHello{}, rpc.BadMessagef("health_check_request", "missing: the first message must be one")
	}
	n, err := rpc.NodeFrom(r.GetNode())
	if err != nil {
		return CheckerHello{}, err
	}
	if n.ID == "" {
		return CheckerHello{}, rpc.BadMessagef("node.id", "missing: it identifies the checker")
	}
	if strings.ContainsFunc(n.ID, unicode.IsControl) {
		return CheckerHello{}, rpc.BadMessagef("node.id", "it holds a control character")
	}
	out := CheckerHello{Node: n, Protocols: protocolsOf(r.GetCapability(), api)}
	if probesGRPC(r.GetNode(), api) {
		out.Protocols |= health.ProtocolsOf(isobar.CheckGRPC)
	}
	out.MaxEndpoints, err = maxEndpointsOf(r.GetNode())
	return out, err
}

// Changed returns what h is after a later request of the same checker. Its node's id and
// locality stay those of the first. A request without capabilities, or without a node,
// changes nothing of what they would say. Errors wrap ErrMessage.
func (h CheckerHello) Changed(r *healthv3.HealthCheckRequest, api rpc.APIVersion) (CheckerHello, error) {
	ofNode := h.Protocols & health.ProtocolsOf(isobar.CheckGRPC)
	if r.GetNode().GetId() != "" {
		most, err := maxEndpointsOf(r.GetNode())
		if err != nil {
			return h, err
		}
		h.MaxEndpoints, ofNode = most, 0
		if probesGRPC(r.GetNode(), api) {
			ofNode = health.ProtocolsOf(isobar.CheckGRPC)
		}
	}
	if r.GetCapability() != nil {
		h.Protocols = protocolsOf(r.GetCapability(), api)
	}
	h.Protocols = h.Protocols&^health.ProtocolsOf(isobar.CheckGRPC) | ofNode
	return h, nil
}

// protocolsOf returns what a checker names, and how it can be told.
func protocolsOf(c *healthv3.Capability, api rpc.APIVersion) health.Protocols {
	var out health.Protocols
	for _, p := range c.GetHealthCheckProtocols() {
		switch p {
		case healthv3.Capability_HTTP:
			out |= health.ProtocolsOf(isobar.CheckHTTP)
		case healthv3.Capability_TCP:
			out |= health.ProtocolsOf(isobar.CheckTCP)
		case healthv3.Capability_REDIS:
			out |= health.ProtocolsOf(isobar.CheckRedis)
		default: // of a later version
		}
	}
	switch api {
	case rpc.V3:
		out |= health.SpeaksV3 | health.SpeaksV2
	case rpc.V2:
		out |= health.SpeaksV2
	case rpc.V2017:
	}
	return out
}

// probesGRPC reports whether a checker says by its node that it can do gRPC checks. The API of
// 2017 can't express them.
func probesGRPC(n *corev3.Node, api rpc.APIVersion) bool {
	return api != rpc.V2017 && (n.GetUserAgentName() == checkerAgent || slices.Contains(n.GetClientFeatures(), FeatureGRPCChecks))
}
