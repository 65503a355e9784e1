// Package convert makes health check specifiers from services, in each version of
// the API, and reads and checks what checkers send.
package convert

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	redisv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_checkers/redis/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// redisCheckerName is the name by which Envoy knows its extension.
const redisCheckerName = "envoy.health_checkers.redis"

// tlsMatchKey is the key of the label by which a health check picks its TLS
// settings from those of the cluster; the value is the number of the check.
const tlsMatchKey = "isobar.health_check"

// ProbeTarget is what a checker shall probe of a service in one locality.
type ProbeTarget struct {
	Locality  isobar.Locality
	Endpoints []isobar.Endpoint
}

// HealthCheckSpecifier makes the full desired state of one checker, which it
// reports on once per interval. The interval is always told: without it some
// builds of Envoy crash, and 0 silences all.
func HealthCheckSpecifier(clusters []*healthv3.ClusterHealthCheck, interval time.Duration) *healthv3.HealthCheckSpecifier {
	return &healthv3.HealthCheckSpecifier{ClusterHealthChecks: clusters, Interval: durationpb.New(interval)}
}

// ClusterHealthCheckOf makes what a checker has to know of one service.
// Without targets the cluster stands there empty: so a checker lets go of its
// endpoints before it loses the cluster itself. The result has passed
// [CheckSpecifier]; errors wrap ErrRefused.
//
// Endpoints whose check is disabled are left out, and so are localities of
// which nothing remains: older builds of Envoy would probe the former, and all
// crash on the latter.
func ClusterHealthCheckOf(s *isobar.Service, targets []ProbeTarget) (*healthv3.ClusterHealthCheck, error) {
	out := &healthv3.ClusterHealthCheck{ClusterName: s.Name}
	for i := range s.HealthChecks {
		c, err := healthCheckOf(s, i)
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", s.Name, err)
		}
		out.HealthChecks = append(out.HealthChecks, c)
		if !s.HealthChecks[i].TLS {
			continue
		}
		m, err := tlsMatchOf(s, i)
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", s.Name, err)
		}
		out.TransportSocketMatches = append(out.TransportSocketMatches, m)
	}
	for _, t := range targets {
		if l := localityEndpointsOf(t); len(l.GetEndpoints()) > 0 {
			out.LocalityEndpoints = append(out.LocalityEndpoints, l)
		}
	}
	if err := checkClusterHealthCheck(out); err != nil {
		return nil, fmt.Errorf("service %s: %w", s.Name, err)
	}
	return out, nil
}

// harmlessInterval is that of a check that never probes.
const harmlessInterval = time.Hour

// EmptyClusterHealthCheck makes a cluster without endpoints and with a check in
// which nothing of the service stands. A checker that comes back may have been
// ended by the check that it had.
func EmptyClusterHealthCheck(service string) *healthv3.ClusterHealthCheck {
	return &healthv3.ClusterHealthCheck{ClusterName: service, HealthChecks: []*corev3.HealthCheck{{
		Timeout:            durationpb.New(time.Second),
		Interval:           durationpb.New(harmlessInterval),
		NoTrafficInterval:  durationpb.New(harmlessInterval),
		UnhealthyThreshold: wrapperspb.UInt32(1), HealthyThreshold: wrapperspb.UInt32(1),
		HealthChecker: &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}},
	}}}
}

func localityEndpointsOf(t ProbeTarget) *healthv3.LocalityEndpoints {
	out := &healthv3.LocalityEndpoints{
		Locality: &corev3.Locality{Region: t.Locality.Region, Zone: t.Locality.Zone, SubZone: t.Locality.SubZone},
	}
	for i := range t.Endpoints {
		if e := &t.Endpoints[i]; e.Check == nil || !e.Check.Disabled {
			out.Endpoints = append(out.Endpoints, probedEndpointOf(e))
		}
	}
	return out
}

// probedEndpointOf makes an endpoint; an address that is none is left for the
// check to refuse.
func probedEndpointOf(e *isobar.Endpoint) *endpointv3.Endpoint {
	ap, _ := netip.ParseAddrPort(e.Address)
	out := &endpointv3.Endpoint{Address: resource.SocketAddressOf(ap.Addr().String(), ap.Port())}
	if e.Check != nil {
		out.HealthCheckConfig = resource.EndpointCheckOf(e.Check, ap.Port())
	}
	return out
}

// healthCheckOf makes check i of a service.
func healthCheckOf(s *isobar.Service, i int) (*corev3.HealthCheck, error) {
	c := &s.HealthChecks[i]
	out := &corev3.HealthCheck{
		Timeout:  durationpb.New(c.Timeout),
		Interval: durationpb.New(c.Interval),
		// A checker sends no traffic of its own, so this is the interval that
		// counts; its default of a minute would.
		NoTrafficInterval:  durationpb.New(c.Interval),
		UnhealthyThreshold: wrapperspb.UInt32(c.UnhealthyThreshold), // some builds crash without
		HealthyThreshold:   wrapperspb.UInt32(c.HealthyThreshold),
		// Servers greet once: without anything to send, a connection of before
		// would be silent.
		ReuseConnection: wrapperspb.Bool(c.TCP == nil || len(c.TCP.Send) > 0 || len(c.TCP.Receive) == 0),
	}
	if c.Jitter > 0 {
		out.IntervalJitter = durationpb.New(c.Jitter)
	}
	if c.TLS {
		out.TransportSocketMatchCriteria = tlsLabel(i)
		if c.GRPC != nil || c.HTTP != nil && c.HTTP.HTTP2 {
			out.TlsOptions = &corev3.HealthCheck_TlsOptions{AlpnProtocols: []string{"h2"}}
		}
	}
	return out, setProbe(out, c, s.Name)
}

// setProbe sets the one checker of a health check.
func setProbe(out *corev3.HealthCheck, c *isobar.HealthCheck, service string) error {
	switch {
	case c.Protocol == isobar.CheckHTTP && c.HTTP != nil:
		out.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: httpProbeOf(c.HTTP, service)}
	case c.Protocol == isobar.CheckTCP && c.TCP != nil:
		out.HealthChecker = &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: tcpProbeOf(c.TCP)}
	case c.Protocol == isobar.CheckGRPC && c.GRPC != nil:
		out.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{
			ServiceName: c.GRPC.Service, Authority: either(c.GRPC.Authority, service),
		}}
	case c.Protocol == isobar.CheckRedis && c.Redis != nil:
		config, err := resource.Packed(&redisv3.Redis{Key: c.Redis.Key})
		if err != nil {
			return err
		}
		out.HealthChecker = &corev3.HealthCheck_CustomHealthCheck_{CustomHealthCheck: &corev3.HealthCheck_CustomHealthCheck{
			Name: redisCheckerName, ConfigType: &corev3.HealthCheck_CustomHealthCheck_TypedConfig{TypedConfig: config},
		}}
	default:
		return rpc.Refusedf("health_checks", "a check by %s has no settings for %s", c.Protocol, c.Protocol)
	}
	return nil
}

func httpProbeOf(c *isobar.HTTPCheck, service string) *corev3.HealthCheck_HttpHealthCheck {
	out := &corev3.HealthCheck_HttpHealthCheck{Host: either(c.Host, service), Path: c.Path}
	if c.Method != "" {
		// A method that does not exist stays 0, which checkClusterHealthCheck
		// can't tell from GET; configuration refuses it.
		out.Method = corev3.RequestMethod(corev3.RequestMethod_value[c.Method])
	}
	if c.HTTP2 {
		out.CodecClientType = typev3.CodecClientType_HTTP2
	}
	for _, r := range c.Expected {
		out.ExpectedStatuses = append(out.ExpectedStatuses, &typev3.Int64Range{Start: int64(r.Start), End: int64(r.End)})
	}
	for _, h := range c.Headers {
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: h.Name, Value: literalFormat(h.Value)},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return out
}

// literalFormat returns the format string that stands for a text. Values of
// headers are format strings in every version of Envoy that adds headers to
// checks; a command that an Envoy does not know ends its process.
func literalFormat(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// tcpProbeOf writes payloads in hexadecimal, the one form that every build
// reads.
func tcpProbeOf(c *isobar.TCPCheck) *corev3.HealthCheck_TcpHealthCheck {
	out := &corev3.HealthCheck_TcpHealthCheck{}
	if len(c.Send) > 0 {
		out.Send = payloadOf(c.Send)
	}
	for _, b := range c.Receive {
		out.Receive = append(out.Receive, payloadOf(b))
	}
	return out
}

func payloadOf(b []byte) *corev3.HealthCheck_Payload {
	return &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Text{Text: hex.EncodeToString(b)}}
}

func tlsLabel(i int) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{tlsMatchKey: structpb.NewStringValue(strconv.Itoa(i))}}
}

// tlsMatchOf makes the TLS settings of check i: no validation of the
// certificate, and the host as server name where one is given.
func tlsMatchOf(s *isobar.Service, i int) (*clusterv3.Cluster_TransportSocketMatch, error) {
	config, err := resource.Packed(&tlsv3.UpstreamTlsContext{Sni: serverName(&s.HealthChecks[i])})
	if err != nil {
		return nil, err
	}
	return &clusterv3.Cluster_TransportSocketMatch{
		Name:  fmt.Sprintf("%s-%d", tlsMatchKey, i),
		Match: tlsLabel(i),
		TransportSocket: &corev3.TransportSocket{
			Name: resource.TLSSocketName, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config},
		},
	}, nil
}

// serverName is the host of a check without its port; IP addresses are not
// allowed as server names.
func serverName(c *isobar.HealthCheck) string {
	host := ""
	switch {
	case c.HTTP != nil:
		host = c.HTTP.Host
	case c.GRPC != nil:
		host = c.GRPC.Authority
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	return host
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
