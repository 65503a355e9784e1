package convert

import (
	"encoding/json"
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Bounds on a health report. Real checkers stay far below.
const (
	maxHealthClusters  = 20_000  // in a message
	maxHealthEndpoints = 100_000 // in a message
	maxHealthParts     = 500_000 // messages within a message; an endpoint takes four
	maxHealthName      = 1_024   // bytes of the name of a cluster
	maxHealthMetadata  = 4096    // bytes of the metadata of one endpoint, encoded
)

// The reasons for which a part of a health report is left out, beside those of
// load reports.
const (
	RejectStatus   rpc.RejectCode = "status"   // not set, or no health status
	RejectAddress  rpc.RejectCode = "address"  // not an IP address and a port
	RejectMetadata rpc.RejectCode = "metadata" // too large, or no JSON
)

// HealthRejectCodes lists all reasons of [HealthEntries].
func HealthRejectCodes() []rpc.RejectCode {
	return []rpc.RejectCode{rpc.RejectName, rpc.RejectLocality, RejectStatus, RejectAddress, RejectMetadata}
}

// HealthEntry is what a checker says of one endpoint.
type HealthEntry struct {
	Service  string          // empty in the flat form
	Locality isobar.Locality // zero in the flat form
	Address  netip.AddrPort
	Status   isobar.HealthStatus // never Unknown
	Metadata string              // JSON text, or empty
}

// HealthRejection reports a part of a health report that was left out.
type HealthRejection struct {
	Service string
	Code    rpc.RejectCode
	Text    string // names the field and the value
}

// HealthEntries reads a health report. Present builds of Envoy send every
// entry in two forms, of which only the one grouped by cluster and locality
// says where the endpoint belongs; older builds send the flat form only, and
// then flat is true. What is unbelievable is told to reject and left out. The
// error is for messages that are too large to look at.
func HealthEntries(m *healthv3.EndpointHealthResponse, reject func(HealthRejection)) (entries []HealthEntry, flat bool, err error) {
	r := healthReader{reject: reject}
	if n := len(m.GetClusterEndpointsHealth()); n > maxHealthClusters {
		return nil, false, rpc.BadMessagef("cluster_endpoints_health", "%d clusters, want at most %d", n, maxHealthClusters)
	}
	only := m.GetEndpointsHealth() //nolint:staticcheck // deprecated, and the one form of old builds
	if len(m.GetClusterEndpointsHealth()) == 0 && len(only) > 0 {
		if n := len(only); n > maxHealthEndpoints {
			return nil, true, rpc.BadMessagef("endpoints_health", "%d endpoints, want at most %d", n, maxHealthEndpoints)
		}
		r.endpoints("", isobar.Locality{}, only)
		return r.out, true, nil
	}
	total := 0
	for _, c := range m.GetClusterEndpointsHealth() {
		for _, l := range c.GetLocalityEndpointsHealth() {
			total += len(l.GetEndpointsHealth())
		}
	}
	if total > maxHealthEndpoints {
		return nil, false, rpc.BadMessagef("cluster_endpoints_health", "%d endpoints, want at most %d", total, maxHealthEndpoints)
	}
	r.out = make([]HealthEntry, 0, total)
	for _, c := range m.GetClusterEndpointsHealth() {
		r.cluster(c)
	}
	return r.out, false, nil
}

type healthReader struct {
	reject func(HealthRejection)
	out    []HealthEntry
}

func (r *healthReader) refusef(service string, code rpc.RejectCode, format string, args ...any) {
	if r.reject != nil {
		r.reject(HealthRejection{Service: service, Code: code, Text: fmt.Sprintf(format, args...)})
	}
}

func (r *healthReader) cluster(c *healthv3.ClusterEndpointsHealth) {
	name := c.GetClusterName()
	if name == "" || len(name) > maxHealthName {
		r.refusef("", rpc.RejectName, "cluster_name: %d bytes long, want 1 to %d", len(name), maxHealthName)
		return
	}
	for _, l := range c.GetLocalityEndpointsHealth() {
		id := l.GetLocality()
		if n := max(len(id.GetRegion()), len(id.GetZone()), len(id.GetSubZone())); n > rpc.MaxLocalityName {
			r.refusef(name, rpc.RejectLocality, "locality: a part is %d bytes long, want at most %d", n, rpc.MaxLocalityName)
			continue
		}
		at := isobar.Locality{Region: id.GetRegion(), Zone: id.GetZone(), SubZone: id.GetSubZone()}
		r.endpoints(name, at, l.GetEndpointsHealth())
	}
}

func (r *healthReader) endpoints(service string, l isobar.Locality, list []*healthv3.EndpointHealth) {
	for _, e := range list {
		address, ok := addressOf(e.GetEndpoint().GetAddress())
		if !ok {
			r.refusef(service, RejectAddress, "endpoint.address: %.100q is not an IP address with a port",
				e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
			continue
		}
		s := e.GetHealthStatus()
		// Unknown would count as healthy further on; a checker that does not
		// know has nothing to say.
		if s <= corev3.HealthStatus_UNKNOWN || s > corev3.HealthStatus_DEGRADED {
			r.refusef(service, RejectStatus, "health_status of %s: %d, want 1 to %d", address, s, corev3.HealthStatus_DEGRADED)
			continue
		}
		r.out = append(r.out, HealthEntry{
			Service: service, Locality: l, Address: address,
			Status:   isobar.HealthStatus(s),
			Metadata: r.metadata(service, e.GetHealthMetadata()),
		})
	}
}

// metadata returns JSON text; what can't be kept goes alone, the status stands.
func (r *healthReader) metadata(service string, m *structpb.Struct) string {
	if len(m.GetFields()) == 0 {
		return ""
	}
	if n := proto.Size(m); n > maxHealthMetadata {
		r.refusef(service, RejectMetadata, "health_metadata: %d bytes, want at most %d", n, maxHealthMetadata)
		return ""
	}
	text, err := json.Marshal(m.AsMap())
	if err != nil {
		r.refusef(service, RejectMetadata, "health_metadata: %v", err)
		return ""
	}
	return string(text)
}
