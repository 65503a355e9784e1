package convert_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// mayBeMissing are the fields of a specifier without which every checker does
// something sensible: it uses a default that is as good, or probes another way
// than asked for. All others are refused when they are missing.
var mayBeMissing = map[protoreflect.FullName]string{
	"envoy.service.health.v3.HealthCheckSpecifier.cluster_health_checks":      "nothing to probe",
	"envoy.service.health.v3.ClusterHealthCheck.locality_endpoints":           "a cluster that is drained",
	"envoy.config.core.v3.HealthCheck.interval_jitter":                        "no jitter",
	"envoy.config.core.v3.HealthCheck.reuse_connection":                       "true is the default",
	"envoy.config.core.v3.HealthCheck.transport_socket_match_criteria":        "plaintext",
	"envoy.config.core.v3.HealthCheck.tls_options":                            "no ALPN",
	"envoy.config.core.v3.HealthCheck.HttpHealthCheck.host":                   "the cluster's name",
	"envoy.config.core.v3.HealthCheck.HttpHealthCheck.method":                 "GET",
	"envoy.config.core.v3.HealthCheck.HttpHealthCheck.expected_statuses":      "200",
	"envoy.config.core.v3.HealthCheck.HttpHealthCheck.request_headers_to_add": "none",
	"envoy.config.core.v3.HealthCheck.HttpHealthCheck.codec_client_type":      "HTTP/1",
	"envoy.config.core.v3.HealthCheck.TcpHealthCheck.send":                    "connect only",
	"envoy.config.core.v3.HealthCheck.TcpHealthCheck.receive":                 "connect only",
	"envoy.config.core.v3.HealthCheck.GrpcHealthCheck.service_name":           "the whole server",
	"envoy.config.core.v3.HealthCheck.GrpcHealthCheck.authority":              "the cluster's name",
	"envoy.config.core.v3.HealthCheck.TlsOptions.alpn_protocols":              "no ALPN",
	"envoy.config.core.v3.HeaderValueOption.append_action":                    "appended",
	"envoy.config.core.v3.HeaderValue.value":                                  "empty",
	"envoy.config.core.v3.Locality.region":                                    "another locality, which no report can be joined with",
	"envoy.config.core.v3.Locality.zone":                                      "the same",
	"envoy.config.core.v3.Locality.sub_zone":                                  "the same",
	"envoy.config.endpoint.v3.Endpoint.health_check_config":                   "probed at its own address",
	"envoy.config.endpoint.v3.Endpoint.HealthCheckConfig.address":             "probed at its own address",
	"envoy.config.endpoint.v3.Endpoint.HealthCheckConfig.port_value":          "probed at its own port",
	"envoy.config.endpoint.v3.Endpoint.HealthCheckConfig.hostname":            "the check's host",
	"google.protobuf.Duration.nanos":                                          "that of the jitter, which is none then",
	"google.protobuf.BoolValue.value":                                         "that of reuse_connection: a connection for each probe",
	"google.protobuf.Any.value":                                               "a message without fields",
}

// TestSweepOfSpecifiers clears each field of a specifier in turn, however deep:
// it is refused then, or known to do no harm.
func TestSweepOfSpecifiers(t *testing.T) {
	cleared := 0
	harmless := map[protoreflect.FullName]bool{}
	for n := 0; ; n++ {
		m := specifier(t)
		i := n
		field, ok := testhelp.ClearField(m.ProtoReflect(), &i)
		if !ok {
			break
		}
		cleared++
		err := convert.CheckSpecifier(m)
		_, may := mayBeMissing[field]
		if err == nil {
			harmless[field] = true
		}
		switch {
		case err == nil && !may:
			t.Errorf("%s may be missing", field)
		case err != nil && !errors.Is(err, rpc.ErrRefused):
			t.Errorf("%s: %v", field, err)
		}
	}
	if cleared < 60 {
		t.Errorf("only %d fields were cleared", cleared)
	}
	for _, field := range slices.Sorted(maps.Keys(mayBeMissing)) {
		if !harmless[field] {
			t.Errorf("%s is on the list, but is refused or not in the specifier", field)
		}
	}
}

// TestSweepOfInbound clears each field of what checkers send in turn: the
// message or the entry is rejected, or it means less, never more: no entry
// appears that was not there, and none turns healthy.
func TestSweepOfInbound(t *testing.T) {
	full := func() *healthv3.EndpointHealthResponse {
		e := healthOf("10.0.0.1", 80, corev3.HealthStatus_UNHEALTHY)
		e.HealthMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewBoolValue(true)}}
		return healthReport(e, healthOf("10.0.0.2", 80, corev3.HealthStatus_TIMEOUT))
	}
	before, _, err := convert.HealthEntries(full(), nil)
	if err != nil || len(before) != 2 {
		t.Fatalf("%+v, %v", before, err)
	}
	cleared := 0
	for n := 0; ; n++ {
		m := &healthv3.EndpointHealthResponse{ClusterEndpointsHealth: full().GetClusterEndpointsHealth()} // the flat copies have their own round
		i := n
		field, ok := testhelp.ClearField(m.ProtoReflect(), &i)
		if !ok {
			break
		}
		cleared++
		after, _, err := convert.HealthEntries(m, nil)
		if err != nil || len(after) > 2 {
			t.Errorf("without %s: %+v, %v", field, after, err)
		}
		for _, e := range after {
			if e.Status == isobar.Healthy || e.Status == isobar.Unknown || e.Service == "" || !e.Address.IsValid() || e.Address.Port() == 0 {
				t.Errorf("without %s: %+v", field, e)
			}
		}
	}
	for n := 0; ; n++ {
		m := full()
		m.ClusterEndpointsHealth = nil
		i := n
		field, ok := testhelp.ClearField(m.ProtoReflect(), &i)
		if !ok {
			break
		}
		cleared++
		after, _, err := convert.HealthEntries(m, nil)
		for _, e := range after {
			if err != nil || e.Status == isobar.Healthy || e.Status == isobar.Unknown || !e.Address.IsValid() {
				t.Errorf("flat without %s: %+v, %v", field, e, err)
			}
		}
	}
	for n := 0; ; n++ {
		r := wrapped(helloOf("probe-1"))
		i := n
		field, ok := testhelp.ClearField(r.ProtoReflect(), &i)
		if !ok {
			break
		}
		cleared++
		data, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		m, err := convert.FirstHealthMessage(data)
		if err != nil {
			continue
		}
		c, err := convert.CheckerFrom(m.Request, rpc.V3)
		if err != nil {
			continue
		}
		if c.Node.ID != "probe-1" || !(health.ProtocolsOf(isobar.CheckHTTP, isobar.CheckTCP) | health.SpeaksV2 | health.SpeaksV3).Has(c.Protocols) {
			t.Errorf("without %s: %+v", field, c)
		}
	}
	if cleared < 40 {
		t.Errorf("only %d fields were cleared", cleared)
	}
}
