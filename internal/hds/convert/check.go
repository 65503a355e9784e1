package convert

import (
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// maxCheckDuration bounds every duration of a health check: more is a mistake
// in units.
const maxCheckDuration = 24 * time.Hour

// CheckSpecifier holds a specifier against what checkers take: there is no
// rejection in health discovery, a checker that gets what it does not expect
// crashes, stops reporting or drops the rest. Errors wrap ErrRefused and name the
// field.
func CheckSpecifier(m *healthv3.HealthCheckSpecifier) error {
	if err := checkPositive("interval", m.GetInterval()); err != nil {
		return err
	}
	names := make(map[string]bool, len(m.GetClusterHealthChecks()))
	for i, c := range m.GetClusterHealthChecks() {
		if err := checkClusterHealthCheck(c); err != nil {
			return fmt.Errorf("cluster_health_checks[%d]: %w", i, err)
		}
		if names[c.GetClusterName()] {
			return rpc.Refusedf("cluster_health_checks", "cluster %.200q is listed twice", c.GetClusterName())
		}
		names[c.GetClusterName()] = true
	}
	return nil
}

// checkClusterHealthCheck is CheckSpecifier for one cluster.
func checkClusterHealthCheck(m *healthv3.ClusterHealthCheck) error {
	if n := len(m.GetClusterName()); n == 0 || n > resource.DefaultNameSize {
		return rpc.Refusedf("cluster_name", "%d bytes long, want 1 to %d", n, resource.DefaultNameSize)
	}
	if len(m.GetHealthChecks()) == 0 {
		return rpc.Refusedf("health_checks", "none")
	}
	sockets := map[string]bool{}
	for i, s := range m.GetTransportSocketMatches() {
		label := s.GetMatch().GetFields()[tlsMatchKey].GetStringValue()
		if label == "" || sockets[label] || s.GetName() == "" {
			return rpc.Refusedf(fmt.Sprintf("transport_socket_matches[%d]", i), "it has no name, or no label of its own")
		}
		if t := s.GetTransportSocket(); t.GetName() != resource.TLSSocketName || t.GetTypedConfig().GetTypeUrl() == "" {
			return rpc.Refusedf(fmt.Sprintf("transport_socket_matches[%d].transport_socket", i), "it is not TLS")
		}
		sockets[label] = true
	}
	for i, c := range m.GetHealthChecks() {
		if err := checkHealthCheck(c, sockets); err != nil {
			return fmt.Errorf("health_checks[%d]: %w", i, err)
		}
	}
	return checkProbed(m.GetLocalityEndpoints())
}

func checkHealthCheck(c *corev3.HealthCheck, sockets map[string]bool) error {
	for _, d := range []struct {
		field string
		value *durationpb.Duration
	}{
		{"timeout", c.GetTimeout()}, {"interval", c.GetInterval()}, {"no_traffic_interval", c.GetNoTrafficInterval()},
	} {
		if err := checkPositive(d.field, d.value); err != nil {
			return err
		}
	}
	if j := c.GetIntervalJitter(); j != nil && (!j.IsValid() || j.AsDuration() < 0 || j.AsDuration() > maxCheckDuration) {
		return rpc.Refusedf("interval_jitter", "%v, want 0 to %v", j.AsDuration(), maxCheckDuration)
	}
	if c.GetUnhealthyThreshold().GetValue() == 0 {
		return rpc.Refusedf("unhealthy_threshold", "0 or not set, want at least 1")
	}
	if c.GetHealthyThreshold().GetValue() == 0 {
		return rpc.Refusedf("healthy_threshold", "0 or not set, want at least 1")
	}
	if criteria := c.GetTransportSocketMatchCriteria(); criteria != nil {
		if label := criteria.GetFields()[tlsMatchKey].GetStringValue(); !sockets[label] {
			return rpc.Refusedf("transport_socket_match_criteria", "they match none of the cluster's transport sockets: the probe would be in plaintext")
		}
	}
	return checkProbe(c)
}

// checkProbe checks the one checker of a health check.
func checkProbe(c *corev3.HealthCheck) error {
	switch h := c.GetHealthChecker().(type) {
	case *corev3.HealthCheck_HttpHealthCheck_:
		return checkHTTPProbe(h.HttpHealthCheck)
	case *corev3.HealthCheck_TcpHealthCheck_:
		if h.TcpHealthCheck == nil {
			return rpc.Refusedf("tcp_health_check", "not set")
		}
		if s := h.TcpHealthCheck.GetSend(); s != nil {
			if err := checkPayload("tcp_health_check.send", s); err != nil {
				return err
			}
		}
		for i, p := range h.TcpHealthCheck.GetReceive() {
			if err := checkPayload(fmt.Sprintf("tcp_health_check.receive[%d]", i), p); err != nil {
				return err
			}
		}
		return nil
	case *corev3.HealthCheck_GrpcHealthCheck_:
		if !headerText(h.GrpcHealthCheck.GetAuthority()) {
			return rpc.Refusedf("grpc_health_check.authority", "%.100q can't be sent", h.GrpcHealthCheck.GetAuthority())
		}
		return nil
	case *corev3.HealthCheck_CustomHealthCheck_:
		if h.CustomHealthCheck.GetName() != redisCheckerName || h.CustomHealthCheck.GetTypedConfig().GetTypeUrl() != redisURL {
			return rpc.Refusedf("custom_health_check", "it is not the one for Redis")
		}
		return nil
	default:
		return rpc.Refusedf("health_checker", "not set, want exactly one")
	}
}

const redisURL = resource.TypePrefix + "envoy.extensions.health_checkers.redis.v3.Redis"

func checkHTTPProbe(h *corev3.HealthCheck_HttpHealthCheck) error {
	if h.GetPath() == "" || h.GetPath()[0] != '/' || !headerText(h.GetPath()) {
		return rpc.Refusedf("http_health_check.path", "%.100q, want a path", h.GetPath())
	}
	if !headerText(h.GetHost()) {
		return rpc.Refusedf("http_health_check.host", "%.100q can't be sent", h.GetHost())
	}
	if _, known := corev3.RequestMethod_name[int32(h.GetMethod())]; !known || h.GetMethod() == corev3.RequestMethod_CONNECT {
		return rpc.Refusedf("http_health_check.method", "%v, want one that Envoy sends", h.GetMethod())
	}
	for i, r := range h.GetExpectedStatuses() {
		if r.GetStart() < 100 || r.GetEnd() > 600 || r.GetStart() >= r.GetEnd() {
			return rpc.Refusedf(fmt.Sprintf("http_health_check.expected_statuses[%d]", i), "%d to %d, want a range within 100 to 600", r.GetStart(), r.GetEnd())
		}
	}
	for i, o := range h.GetRequestHeadersToAdd() {
		field := fmt.Sprintf("http_health_check.request_headers_to_add[%d]", i)
		k, v := o.GetHeader().GetKey(), o.GetHeader().GetValue()
		if k == "" || k[0] == ':' || !headerText(k) || !headerText(v) {
			return rpc.Refusedf(field, "%.100q can't be sent", k)
		}
		if strings.Contains(strings.ReplaceAll(v, "%%", ""), "%") {
			return rpc.Refusedf(field, "%.100q has a command in its value, which may end an Envoy; want %%%% for each percent sign", k)
		}
	}
	return nil
}

// headerText reports whether s may stand in a header.
func headerText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// checkPayload refuses all but hexadecimal text.
func checkPayload(field string, p *corev3.HealthCheck_Payload) error {
	if b, err := hex.DecodeString(p.GetText()); err != nil || len(b) == 0 {
		return rpc.Refusedf(field, "%.100q, want bytes in hexadecimal", p.GetText())
	}
	return nil
}

func checkPositive(field string, d *durationpb.Duration) error {
	if d == nil {
		return rpc.Refusedf(field, "not set")
	}
	if !d.IsValid() || d.AsDuration() <= 0 || d.AsDuration() > maxCheckDuration {
		return rpc.Refusedf(field, "%v, want more than 0 and at most %v", d.AsDuration(), maxCheckDuration)
	}
	return nil
}

// checkProbed checks endpoints; none of them is allowed, an empty locality is
// not. Checkers tell their hosts apart by locality and address, and so does
// the reader of their reports.
func checkProbed(localities []*healthv3.LocalityEndpoints) error {
	seen := make(map[[3]string]bool, len(localities))
	addresses := map[netip.AddrPort]bool{}
	for i, l := range localities {
		field := fmt.Sprintf("locality_endpoints[%d]", i)
		id := l.GetLocality()
		if id == nil {
			return rpc.Refusedf(field+".locality", "not set")
		}
		at := [3]string{id.GetRegion(), id.GetZone(), id.GetSubZone()}
		if seen[at] {
			return rpc.Refusedf(field+".locality", "%s/%s/%s is listed twice", at[0], at[1], at[2])
		}
		seen[at] = true
		probed := 0
		for j, e := range l.GetEndpoints() {
			at := fmt.Sprintf("%s.endpoints[%d]", field, j)
			if err := checkProbedEndpoint(at, e, addresses); err != nil {
				return err
			}
			if !e.GetHealthCheckConfig().GetDisableActiveHealthCheck() {
				probed++
			}
		}
		if probed == 0 {
			return rpc.Refusedf(field+".endpoints", "none that is probed: Envoy would crash")
		}
	}
	return nil
}

func checkProbedEndpoint(field string, e *endpointv3.Endpoint, addresses map[netip.AddrPort]bool) error {
	ap, ok := addressOf(e.GetAddress())
	if !ok {
		return rpc.Refusedf(field+".address", "want an IP address and a port")
	}
	if addresses[ap] {
		return rpc.Refusedf(field+".address", "%s is listed twice", ap)
	}
	addresses[ap] = true
	c := e.GetHealthCheckConfig()
	if c.GetAddress() != nil {
		if _, ok := addressOf(c.GetAddress()); !ok {
			return rpc.Refusedf(field+".health_check_config.address", "want an IP address and a port")
		}
	}
	if c.GetPortValue() > math.MaxUint16 {
		return rpc.Refusedf(field+".health_check_config.port_value", "%d, want at most %d", c.GetPortValue(), math.MaxUint16)
	}
	if !headerText(c.GetHostname()) {
		return rpc.Refusedf(field+".health_check_config.hostname", "%.100q can't be sent", c.GetHostname())
	}
	return nil
}

// addressOf reads an IP address without zone and a port.
func addressOf(a *corev3.Address) (netip.AddrPort, bool) {
	s := a.GetSocketAddress()
	ip, err := netip.ParseAddr(s.GetAddress())
	port := s.GetPortValue()
	if err != nil || ip.Zone() != "" || port == 0 || port > math.MaxUint16 {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)), true
}
