package convert

import (
	"bytes"
	"encoding/json"
	"fmt"

	discoveryv2 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// HealthMessageFromJSON reads what a checker says in JSON, in either spelling of
// the field names: a message, or a request alone. Fields that are not known are
// of a later version. Of an old form, V2, it tells which of the two is spoken:
// they name one field of a request differently.
func HealthMessageFromJSON(body []byte, form rpc.APIVersion) (HealthMessage, rpc.APIVersion, error) {
	if err := rpc.ScanJSON(body); err != nil {
		return HealthMessage{}, form, err
	}
	if form != rpc.V3 {
		renamed, old, err := modernRequest(body)
		switch {
		case err != nil:
			return HealthMessage{}, form, rpc.BadMessagef("body", "%v", err)
		case old:
			body, form = renamed, rpc.V2017
		}
	}
	var m healthv3.HealthCheckRequestOrEndpointHealthResponse
	lenient := protojson.UnmarshalOptions{DiscardUnknown: true}
	if err := lenient.Unmarshal(body, &m); err != nil {
		return HealthMessage{}, form, rpc.BadMessagef("body", "%v", err)
	}
	if m.GetRequestType() == nil {
		var bare healthv3.HealthCheckRequest
		if err := lenient.Unmarshal(body, &bare); err == nil && proto.Size(bare.GetNode()) > 0 {
			return HealthMessage{Request: &bare}, form, nil
		}
	}
	return HealthMessageOf(&m), form, nil
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

// SpecifierJSON writes a specifier of a form, as [SpecifierIn] gives it, with
// the field names of that form's proto files.
func SpecifierJSON(form rpc.APIVersion, m proto.Message) ([]byte, error) {
	out, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	old, ok := m.(*discoveryv2.HealthCheckSpecifier)
	if err != nil || form != rpc.V2017 || !ok {
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
