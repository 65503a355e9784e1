package convert

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/core"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/health_checker/redis/v2" // is looked up by name when it is written in JSON
	discoveryv2 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// What differs between the API versions of health checks.
const (
	redisURL2 = resource.TypePrefix + "envoy.config.health_checker.redis.v2.Redis"

	// checkRedis2017 is the checker for Redis in HealthCheck as of 2017, an
	// empty message. The number is not used any more.
	checkRedis2017 = 10
)

// SpecifierIn puts a specifier into an API version: *healthv3.HealthCheckSpecifier for
// V3, else *discoveryv2.HealthCheckSpecifier, in which only fields of that API version
// are set. The original stays as it is, and may be shared.
//
// What makes no difference to a checker of that API version is left out:
// no_traffic_interval and tls_options (2017), a method GET and an expected
// status 200 that are written out. What would make it probe something else is
// an error, which wraps ErrRefused; [health.SpeaksV2] and [health.SpeaksV3]
// keep such checks from such checkers.
func SpecifierIn(api rpc.APIVersion, m *healthv3.HealthCheckSpecifier) (proto.Message, error) {
	if api == rpc.V3 {
		return m, nil
	}
	// The API versions share their field numbers, so v2 reads v3 and loses what it
	// does not know.
	encoded, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("specifier: %w", err)
	}
	out := &discoveryv2.HealthCheckSpecifier{}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(encoded, out); err != nil {
		return nil, fmt.Errorf("specifier as %s: %w", api, err)
	}
	for i, c := range m.GetClusterHealthChecks() {
		if err := clusterIn(api, c, out.GetClusterHealthChecks()[i]); err != nil {
			return nil, fmt.Errorf("cluster_health_checks[%d] as %s: %w", i, api, err)
		}
	}
	return out, nil
}

// clusterIn completes a cluster of an old API version.
func clusterIn(api rpc.APIVersion, m *healthv3.ClusterHealthCheck, out *discoveryv2.ClusterHealthCheck) error {
	if len(m.GetTransportSocketMatches()) > 0 {
		return rpc.Refusedf("transport_socket_matches", "they are of v3: the probes would be in plaintext")
	}
	if m.GetUpstreamBindConfig() != nil {
		return rpc.Refusedf("upstream_bind_config", "it is of v3")
	}
	for i, c := range m.GetHealthChecks() {
		o := out.GetHealthChecks()[i]
		err := checkInV2(c, o)
		if err == nil && api == rpc.V2017 {
			out.HealthChecks[i], err = checkIn2017(o, m.GetClusterName())
		}
		if err != nil {
			return fmt.Errorf("health_checks[%d]: %w", i, err)
		}
	}
	for i, l := range m.GetLocalityEndpoints() {
		for j, e := range l.GetEndpoints() {
			field := fmt.Sprintf("locality_endpoints[%d].endpoints[%d].health_check_config", i, j)
			switch c := e.GetHealthCheckConfig(); {
			case c == nil:
			case c.GetAddress() != nil, c.GetDisableActiveHealthCheck():
				return rpc.Refusedf(field, "the address and the switch are of v3: another address would be probed")
			case api == rpc.V2017:
				return rpc.Refusedf(field, "it is of v2: another address would be probed")
			}
		}
	}
	return nil
}

// checkInV2 completes a health check of v2, which holds what both have in
// common.
func checkInV2(c *corev3.HealthCheck, out *corev2.HealthCheck) error {
	if c.GetTransportSocketMatchCriteria() != nil {
		return rpc.Refusedf("transport_socket_match_criteria", "they are of v3: the probe would be in plaintext")
	}
	switch h := c.GetHealthChecker().(type) {
	case *corev3.HealthCheck_HttpHealthCheck_:
		return httpInV2(h.HttpHealthCheck, out.GetHttpHealthCheck())
	case *corev3.HealthCheck_CustomHealthCheck_:
		config := out.GetCustomHealthCheck().GetTypedConfig()
		if config.GetTypeUrl() != redisURL {
			return rpc.Refusedf("custom_health_check", "it is not the one for Redis")
		}
		config.TypeUrl = redisURL2
	}
	return nil
}

func httpInV2(h *corev3.HealthCheck_HttpHealthCheck, out *corev2.HealthCheck_HttpHealthCheck) error {
	switch h.GetMethod() {
	case corev3.RequestMethod_METHOD_UNSPECIFIED, corev3.RequestMethod_GET:
	default:
		return rpc.Refusedf("http_health_check.method", "%v is of v3: the probe would be a GET", h.GetMethod())
	}
	if len(h.GetRetriableStatuses()) > 0 || len(h.GetReceive()) > 0 {
		return rpc.Refusedf("http_health_check", "retriable_statuses and receive are of v3")
	}
	// Builds before there was a codec know this field only.
	out.UseHttp2 = h.GetCodecClientType() == typev3.CodecClientType_HTTP2 //nolint:staticcheck // deprecated, and all that early builds know
	for i, o := range h.GetRequestHeadersToAdd() {
		add := o.GetAppendAction() == corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		if o.GetAppend() != nil { //nolint:staticcheck // deprecated, and counts where it is set
			add = o.GetAppend().GetValue() //nolint:staticcheck // as above
		}
		out.RequestHeadersToAdd[i].Append = wrapperspb.Bool(add)
	}
	return nil
}

// checkIn2017 makes a health check of 2017 from one of v2: it takes over what
// there was then.
func checkIn2017(c *corev2.HealthCheck, cluster string) (*corev2.HealthCheck, error) {
	out := &corev2.HealthCheck{
		Timeout: c.GetTimeout(), Interval: c.GetInterval(), IntervalJitter: c.GetIntervalJitter(),
		UnhealthyThreshold: c.GetUnhealthyThreshold(), HealthyThreshold: c.GetHealthyThreshold(),
		ReuseConnection: c.GetReuseConnection(),
	}
	switch h := c.GetHealthChecker().(type) {
	case *corev2.HealthCheck_HttpHealthCheck_:
		if err := plainHTTP(h.HttpHealthCheck, cluster); err != nil {
			return nil, err
		}
		out.HealthChecker = &corev2.HealthCheck_HttpHealthCheck_{HttpHealthCheck: &corev2.HealthCheck_HttpHealthCheck{
			Host: h.HttpHealthCheck.GetHost(), Path: h.HttpHealthCheck.GetPath(),
		}}
	case *corev2.HealthCheck_TcpHealthCheck_:
		out.HealthChecker = h
	case *corev2.HealthCheck_CustomHealthCheck_:
		if len(h.CustomHealthCheck.GetTypedConfig().GetValue()) > 0 {
			return nil, rpc.Refusedf("custom_health_check", "a key is of v2: the probe would be a PING")
		}
		out.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, checkRedis2017, protowire.BytesType), nil))
	default:
		return nil, rpc.Refusedf("health_checker", "only HTTP, TCP and Redis were there in 2017")
	}
	return out, nil
}

// plainHTTP reports whether an HTTP probe is one of 2017: a GET of a path from the
// host that is named like the cluster, by HTTP/1, for a 200.
func plainHTTP(h *corev2.HealthCheck_HttpHealthCheck, cluster string) error {
	if host := h.GetHost(); host != "" && host != cluster {
		return rpc.Refusedf("http_health_check.host", "%.100q has an effect since v2 only: the probe would have the host %.100q", host, cluster)
	}
	if h.GetUseHttp2() || h.GetCodecClientType() != 0 { //nolint:staticcheck // it is set above
		return rpc.Refusedf("http_health_check.codec_client_type", "HTTP/2 is of v2")
	}
	for _, r := range h.GetExpectedStatuses() {
		if r.GetStart() != 200 || r.GetEnd() != 201 {
			return rpc.Refusedf("http_health_check.expected_statuses", "%d to %d is of v2: 200 would be expected", r.GetStart(), r.GetEnd()-1)
		}
	}
	if len(h.GetRequestHeadersToAdd())+len(h.GetRequestHeadersToRemove()) > 0 || h.GetServiceNameMatcher() != nil || h.GetSend() != nil {
		return rpc.Refusedf("http_health_check", "request headers, service_name_matcher and send came later")
	}
	return nil
}

// HealthMessageFromJSON reads what a checker says in JSON, in either spelling of
// the field names: a message, or a request alone. Fields that are not known are
// of a later version. Of an old API version, V2, it tells which of the two is spoken:
// they name one field of a request differently.
func HealthMessageFromJSON(body []byte, api rpc.APIVersion) (HealthMessage, rpc.APIVersion, error) {
	if err := rpc.ScanJSON(body); err != nil {
		return HealthMessage{}, api, err
	}
	if api != rpc.V3 {
		renamed, old, err := modernRequest(body)
		switch {
		case err != nil:
			return HealthMessage{}, api, rpc.BadMessagef("body", "%v", err)
		case old:
			body, api = renamed, rpc.V2017
		}
	}
	var m healthv3.HealthCheckRequestOrEndpointHealthResponse
	lenient := protojson.UnmarshalOptions{DiscardUnknown: true}
	if err := lenient.Unmarshal(body, &m); err != nil {
		return HealthMessage{}, api, rpc.BadMessagef("body", "%v", err)
	}
	if m.GetRequestType() == nil {
		var bare healthv3.HealthCheckRequest
		if err := lenient.Unmarshal(body, &bare); err == nil && proto.Size(bare.GetNode()) > 0 {
			return HealthMessage{Request: &bare}, api, nil
		}
	}
	return HealthMessageOf(&m), api, nil
}

// modernRequest returns a message with the field names of v2 if it has those of
// 2017.
func modernRequest(body []byte) (renamed []byte, old bool, err error) {
	top := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &top); err != nil {
		return nil, false, err
	}
	for _, name := range []string{"health_check_request", "healthCheckRequest"} {
		inner := map[string]json.RawMessage{}
		if json.Unmarshal(top[name], &inner) != nil || !renameCapability(inner) {
			continue // what it is instead, the parser will say
		}
		if top[name], err = json.Marshal(inner); err != nil {
			return nil, false, err
		}
		old = true
	}
	if !renameCapability(top) && !old {
		return nil, false, nil
	}
	renamed, err = json.Marshal(top)
	return renamed, true, err
}

// renameCapability renames the field of a request's capability, and tells
// whether it was there under its old name.
func renameCapability(request map[string]json.RawMessage) bool {
	capability := map[string]json.RawMessage{}
	if json.Unmarshal(request["capability"], &capability) != nil {
		return false
	}
	found := false
	for _, name := range []string{"health_check_protocol", "healthCheckProtocol"} {
		if v, ok := capability[name]; ok {
			delete(capability, name)
			capability["health_check_protocols"] = v
			found = true
		}
	}
	if !found {
		return false
	}
	out, err := json.Marshal(capability)
	if err != nil {
		return false // it was JSON a moment ago
	}
	request["capability"] = out
	return true
}

// SpecifierJSON writes a specifier of an API version, as [SpecifierIn] gives it, with
// the field names of that API version's proto files.
func SpecifierJSON(api rpc.APIVersion, m proto.Message) ([]byte, error) {
	out, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	old, ok := m.(*discoveryv2.HealthCheckSpecifier)
	if err != nil || api != rpc.V2017 || !ok {
		return out, err
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	decoder.UseNumber()
	var top map[string]any
	if err := decoder.Decode(&top); err != nil {
		return nil, fmt.Errorf("specifier: %w", err)
	}
	rename(top, "cluster_health_checks", "health_check")
	clusters, _ := top["health_check"].([]any)
	for i, c := range clusters {
		cluster, _ := c.(map[string]any)
		rename(cluster, "locality_endpoints", "endpoints")
		checks, _ := cluster["health_checks"].([]any)
		for j := range checks {
			check, _ := checks[j].(map[string]any)
			if check != nil && old.GetClusterHealthChecks()[i].GetHealthChecks()[j].GetHealthChecker() == nil {
				check["redis_health_check"] = map[string]any{} // which v2 does not know
			}
		}
	}
	return json.Marshal(top)
}

func rename(in map[string]any, from, to string) {
	if v, ok := in[from]; ok {
		delete(in, from)
		in[to] = v
	}
}
