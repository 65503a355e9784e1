package checker

import (
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// everyKind is a valid specifier with checks of all protocols.
func everyKind() *healthv3.HealthCheckSpecifier {
	second := durationpb.New(time.Second)
	text := func(s string) *corev3.HealthCheck_Payload {
		return &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Text{Text: s}}
	}
	address := func(ip string) *corev3.Address {
		return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
		}}}
	}
	spec := &healthv3.HealthCheckSpecifier{Interval: second}
	for name, kind := range map[string]*corev3.HealthCheck{
		"http": {HealthChecker: &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: &corev3.HealthCheck_HttpHealthCheck{
			Host: "h", Path: "/p?q=1", Method: corev3.RequestMethod_POST, Send: text("00ff"), Receive: []*corev3.HealthCheck_Payload{text("01")},
			ExpectedStatuses: []*typev3.Int64Range{{Start: 200, End: 300}}, RetriableStatuses: []*typev3.Int64Range{{Start: 503, End: 504}},
			RequestHeadersToAdd:    []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "k", Value: "v"}}},
			RequestHeadersToRemove: []string{"user-agent"}, ResponseBufferSize: wrapperspb.UInt64(10),
			CodecClientType: typev3.CodecClientType_HTTP2,
		}}},
		"tcp":  {HealthChecker: &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{Send: text("00"), Receive: []*corev3.HealthCheck_Payload{text("01")}}}},
		"grpc": {HealthChecker: &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{ServiceName: "s", Authority: "a"}}},
		"redis": {HealthChecker: &corev3.HealthCheck_CustomHealthCheck_{CustomHealthCheck: &corev3.HealthCheck_CustomHealthCheck{
			Name: "envoy.health_checkers.redis",
		}}},
	} {
		kind.Timeout, kind.Interval, kind.NoTrafficInterval = second, second, second
		kind.UnhealthyInterval, kind.IntervalJitter, kind.InitialJitter = second, second, second
		kind.UnhealthyThreshold, kind.HealthyThreshold = wrapperspb.UInt32(3), wrapperspb.UInt32(2)
		spec.ClusterHealthChecks = append(spec.ClusterHealthChecks, &healthv3.ClusterHealthCheck{
			ClusterName: name, HealthChecks: []*corev3.HealthCheck{kind},
			LocalityEndpoints: []*healthv3.LocalityEndpoints{{
				Locality: &corev3.Locality{Region: "r", Zone: "z", SubZone: "s"},
				Endpoints: []*endpointv3.Endpoint{{Address: address("192.0.2.1")}, {
					Address:           address("2001:db8::1"),
					HealthCheckConfig: &endpointv3.Endpoint_HealthCheckConfig{PortValue: 81, Hostname: "h", Address: address("192.0.2.2")},
				}},
			}},
			UpstreamBindConfig: &corev3.BindConfig{SourceAddress: &corev3.SocketAddress{Address: "127.0.0.1"}},
		})
	}
	return spec
}

// take does with a specifier all that a checker does but for probing, and
// looks at what must hold of any.
func take(t *testing.T, spec *healthv3.HealthCheckSpecifier) {
	t.Helper()
	const limit = 100
	d := parse(spec, nil)
	if d.interval != 0 && d.interval < leastReportInterval {
		t.Fatalf("reports every %s", d.interval)
	}
	s, first := merge(&state{}, d, limit)
	for _, task := range first.added {
		c := task.check
		for _, wait := range []time.Duration{c.interval, c.usual(), c.unhealthyInterval, c.unhealthyEdge, c.healthyEdge} {
			if wait < leastInterval {
				t.Fatalf("a probe every %s", wait)
			}
		}
		if c.timeout <= 0 || c.timeout > mostTimeout || c.healthyThreshold == 0 || c.unhealthyThreshold == 0 {
			t.Fatalf("timeout %s, thresholds %d and %d", c.timeout, c.healthyThreshold, c.unhealthyThreshold)
		}
		p, err := c.build(task.host.target)
		if err != nil {
			t.Fatalf("a check that was taken can't probe: %v", err)
		}
		p.Close()
	}
	hosts := 0
	for _, c := range s.clusters {
		hosts += len(c.hosts)
		for _, g := range c.groups {
			if len(g.hosts) == 0 {
				t.Fatal("a locality without endpoints")
			}
		}
	}
	if hosts != s.hosts || hosts > limit {
		t.Fatalf("%d hosts, %d counted", hosts, s.hosts)
	}
	var r reporter
	m := r.report(s).GetEndpointHealthResponse()
	if len(m.GetEndpointsHealth()) != hosts { //nolint:staticcheck // older servers read it
		t.Fatalf("%d endpoints in the report, %d hosts", len(m.GetEndpointsHealth()), hosts) //nolint:staticcheck // as above
	}
	if _, err := proto.Marshal(r.message); err != nil {
		t.Fatal(err)
	}
	again, second := merge(s, parse(spec, nil), limit)
	unnamed := 0
	for _, c := range again.clusters {
		if c.name == "" {
			unnamed += len(c.hosts) * len(c.checks)
		}
	}
	if len(second.added) != unnamed || len(second.removed) != unnamed {
		t.Fatalf("the same specifier again adds %d tasks and removes %d", len(second.added), len(second.removed))
	}
	if last, end := merge(again, &desired{}, limit); last.hosts != 0 || len(end.removed) != len(first.added) {
		t.Fatalf("nothing wanted leaves %d hosts, and %d of %d tasks are removed", last.hosts, len(end.removed), len(first.added))
	}
}

func FuzzSpecifier(f *testing.F) {
	full := everyKind()
	for _, spec := range []*healthv3.HealthCheckSpecifier{full, {}, {ClusterHealthChecks: []*healthv3.ClusterHealthCheck{{}}}} {
		b, err := proto.Marshal(spec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		spec := new(healthv3.HealthCheckSpecifier)
		if proto.Unmarshal(b, spec) == nil {
			take(t, spec)
		}
	})
}

// TestClearedFields clears each field of a full specifier in turn.
func TestClearedFields(t *testing.T) {
	for n := 0; ; n++ {
		spec := everyKind()
		left := n
		name := clearField(spec.ProtoReflect(), &left)
		if name == "" {
			if n < 60 {
				t.Errorf("only %d fields were cleared", n)
			}
			return
		}
		t.Run(name, func(t *testing.T) { take(t, spec) })
	}
}

// clearField clears the n-th field that is set, counted depth first, and returns
// its name; "" for none.
func clearField(m protoreflect.Message, n *int) (name string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		if *n == 0 {
			m.Clear(f)
			return string(f.FullName())
		}
		*n--
		if f.Message() == nil || f.IsMap() {
			continue
		}
		if f.IsList() {
			for j := range m.Get(f).List().Len() {
				if name := clearField(m.Get(f).List().Get(j).Message(), n); name != "" {
					return name
				}
			}
		} else if name := clearField(m.Get(f).Message(), n); name != "" {
			return name
		}
	}
	return ""
}

// TestNullEntries: lists and fields that hold nil, as a test or a decoder may
// make them.
func TestNullEntries(t *testing.T) {
	take(t, nil)
	take(t, &healthv3.HealthCheckSpecifier{ClusterHealthChecks: []*healthv3.ClusterHealthCheck{
		nil, {HealthChecks: []*corev3.HealthCheck{nil}}, {LocalityEndpoints: []*healthv3.LocalityEndpoints{nil}},
		{ClusterName: "c", LocalityEndpoints: []*healthv3.LocalityEndpoints{{Endpoints: []*endpointv3.Endpoint{nil}}}},
	}})
}
