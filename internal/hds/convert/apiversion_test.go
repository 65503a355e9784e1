package convert_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv2 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet/client2017"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// anyService draws a service with checks and endpoints of every kind.
func anyService(t *rapid.T) *isobar.Service {
	s := &isobar.Service{Name: rapid.SampledFrom([]string{"checkout", "cart.example"}).Draw(t, "name")}
	for i := range rapid.IntRange(1, 3).Draw(t, "checks") {
		s.HealthChecks = append(s.HealthChecks, anyCheck(t, i))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "localities") {
		l := isobar.ServiceLocality{Locality: isobar.Locality{Region: "r", Zone: fmt.Sprint("z", i)}}
		for j := range rapid.IntRange(0, 3).Draw(t, "endpoints") {
			e := isobar.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i, j+1)}
			if rapid.Bool().Draw(t, "own") {
				e.Check = &isobar.EndpointCheck{
					Address: oneOf(t, "", "", "10.9.9.9"), Hostname: oneOf(t, "", "", "host.example"),
					Port: rapid.SampledFrom([]uint16{0, 0, 9000}).Draw(t, "port"), Disabled: rapid.Bool().Draw(t, "disabled"),
				}
			}
			l.Endpoints = append(l.Endpoints, e)
		}
		s.Localities = append(s.Localities, l)
	}
	return s
}

func oneOf(t *rapid.T, of ...string) string { return rapid.SampledFrom(of).Draw(t, "text") }

func anyCheck(t *rapid.T, i int) isobar.HealthCheck {
	millis := func(name string) time.Duration {
		return time.Duration(rapid.IntRange(1, 60_000).Draw(t, name)) * time.Millisecond
	}
	c := isobar.HealthCheck{
		Protocol: rapid.SampledFrom([]isobar.CheckProtocol{isobar.CheckHTTP, isobar.CheckTCP, isobar.CheckGRPC, isobar.CheckRedis}).Draw(t, "protocol"),
		Interval: millis("interval"), Timeout: millis("timeout"), Jitter: time.Duration(i) * time.Second,
		UnhealthyThreshold: rapid.Uint32Range(1, 9).Draw(t, "unhealthy"), HealthyThreshold: rapid.Uint32Range(1, 9).Draw(t, "healthy"),
		TLS: rapid.IntRange(0, 9).Draw(t, "tls") == 0,
	}
	switch c.Protocol {
	case isobar.CheckHTTP:
		c.HTTP = &isobar.HTTPCheck{
			Path: "/" + oneOf(t, "", "healthz"), Host: oneOf(t, "", "", "checkout", "shop.example"),
			Method: oneOf(t, "", "", "GET", "HEAD"), HTTP2: rapid.IntRange(0, 4).Draw(t, "h2") == 0,
		}
		if r := rapid.IntRange(-2, 2).Draw(t, "expected"); r >= 0 {
			c.HTTP.Expected = []isobar.StatusRange{{Start: 200, End: 201 + 50*r}}
		}
		if rapid.IntRange(0, 4).Draw(t, "headers") == 0 {
			c.HTTP.Headers = []isobar.Header{{Name: "x-probe", Value: "1"}}
		}
	case isobar.CheckTCP:
		c.TCP = &isobar.TCPCheck{}
		if rapid.Bool().Draw(t, "send") {
			c.TCP.Send, c.TCP.Receive = []byte("PING"), [][]byte{[]byte("PO"), {0}}
		}
	case isobar.CheckGRPC:
		c.GRPC = &isobar.GRPCCheck{Service: oneOf(t, "", "shop.v1.Shop"), Authority: oneOf(t, "", "shop.example")}
	case isobar.CheckRedis:
		c.Redis = &isobar.RedisCheck{Key: oneOf(t, "", "maintenance")}
	}
	return c
}

// needed is what a checker must be able to do for all of a service.
func needed(s *isobar.Service) health.Protocols {
	out := health.Needs(s)
	for i := range s.Localities {
		for j := range s.Localities[i].Endpoints {
			out |= health.NeedsOf(&s.Localities[i].Endpoints[j])
		}
	}
	return out
}

// A checker of an old API version gets only what its version can express: the result comes back with the documented losses and no other, holds no field of a later
// time, and what would be probed wrongly is refused. health.Needs knows which
// is which.
func TestSpecifierInOldAPIVersions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyService(t)
		c, err := convert.ClusterHealthCheckOf(s, targetsOf(s))
		if err != nil {
			t.Fatal(err)
		}
		m := convert.HealthCheckSpecifier([]*healthv3.ClusterHealthCheck{c}, 5*time.Second)
		before := proto.Clone(m)
		needs := needed(s)
		for _, tc := range []struct {
			api  rpc.APIVersion
			fits bool
		}{
			{rpc.V3, true},
			{rpc.V2, !needs.Has(health.SpeaksV3)},
			{rpc.V2017, !needs.Has(health.SpeaksV2) && !needs.Has(health.ProtocolsOf(isobar.CheckGRPC))},
		} {
			got, err := convert.SpecifierIn(tc.api, m)
			if !proto.Equal(m, before) {
				t.Fatalf("%s: the original was changed", tc.api)
			}
			if !tc.fits {
				if !errors.Is(err, rpc.ErrRefused) {
					t.Fatalf("%s of a service that needs %b: %v, %v; want ErrRefused", tc.api, needs, got, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s of a service that needs %b: %v", tc.api, needs, err)
			}
			if back, want := fromAPI(t, tc.api, got), lossy(tc.api, m); !proto.Equal(back, want) {
				t.Fatalf("%s came back as\n%v, want\n%v", tc.api, back, want)
			}
			checkFields(t, tc.api, got)
		}
	})
}

// checkFields refuses fields that an API version did not have.
func checkFields(t *rapid.T, api rpc.APIVersion, m proto.Message) {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	switch api {
	case rpc.V2017:
		_, err = client2017.Decode("HealthCheckSpecifier", data)
	case rpc.V2:
		clean := &discoveryv2.HealthCheckSpecifier{}
		if err = (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, clean); err == nil && !proto.Equal(clean, m) {
			err = errors.New("there are fields that v2 did not have")
		}
	case rpc.V3:
	}
	if err != nil {
		t.Fatalf("%s: %v", api, err)
	}
}

// lossy is a specifier after the documented losses of an API version.
func lossy(api rpc.APIVersion, m *healthv3.HealthCheckSpecifier) *healthv3.HealthCheckSpecifier {
	out := proto.CloneOf(m)
	if api == rpc.V3 {
		return out
	}
	for _, c := range out.GetClusterHealthChecks() {
		for _, h := range c.GetHealthChecks() {
			if http := h.GetHttpHealthCheck(); http != nil {
				http.Method = corev3.RequestMethod_METHOD_UNSPECIFIED // GET
				if api == rpc.V2017 {
					http.ExpectedStatuses = nil // 200
				}
			}
			if api == rpc.V2017 {
				h.NoTrafficInterval = nil
			}
		}
	}
	return out
}

// fromAPI reads a specifier of some API version as a checker would that works with
// v3: written without regard to the code that made it.
func fromAPI(t *rapid.T, api rpc.APIVersion, m proto.Message) *healthv3.HealthCheckSpecifier {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := &healthv3.HealthCheckSpecifier{}
	if err := proto.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	for _, c := range out.GetClusterHealthChecks() {
		for _, h := range c.GetHealthChecks() {
			if api == rpc.V2017 && string(h.ProtoReflect().GetUnknown()) == "\x52\x00" { // field 10, empty
				h.ProtoReflect().SetUnknown(nil)
				h.HealthChecker = redisIn3()
			}
			if api != rpc.V2 {
				continue
			}
			if config := h.GetCustomHealthCheck().GetTypedConfig(); config != nil {
				config.TypeUrl = strings.Replace(config.GetTypeUrl(), "envoy.config.health_checker.redis.v2.", "envoy.extensions.health_checkers.redis.v3.", 1)
			}
			if http := h.GetHttpHealthCheck(); http != nil {
				dropField(http.ProtoReflect(), 7) // use_http2, which codec_client_type says too
				for _, o := range http.GetRequestHeadersToAdd() {
					if o.GetAppend() != nil && !o.GetAppend().GetValue() { //nolint:staticcheck // all that v2 has
						o.Append, o.AppendAction = nil, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD //nolint:staticcheck // as above
					}
				}
			}
		}
	}
	return out
}

func redisIn3() *corev3.HealthCheck_CustomHealthCheck_ {
	return &corev3.HealthCheck_CustomHealthCheck_{CustomHealthCheck: &corev3.HealthCheck_CustomHealthCheck{
		Name: "envoy.health_checkers.redis",
		ConfigType: &corev3.HealthCheck_CustomHealthCheck_TypedConfig{
			TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/envoy.extensions.health_checkers.redis.v3.Redis"},
		},
	}}
}

// dropField takes a number out of the unknown fields of a message.
func dropField(m protoreflect.Message, number protowire.Number) {
	var kept []byte
	for rest := []byte(m.GetUnknown()); len(rest) > 0; {
		n, _, size := protowire.ConsumeField(rest)
		if size < 0 {
			return
		}
		if n != number {
			kept = append(kept, rest[:size]...)
		}
		rest = rest[size:]
	}
	m.SetUnknown(kept)
}
