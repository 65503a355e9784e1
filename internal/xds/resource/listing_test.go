package resource_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func listedEndpoint(ip string, port uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}}},
	}}}
}

func listedAssignment(endpoints ...*endpointv3.LbEndpoint) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: "c", Endpoints: []*endpointv3.LocalityLbEndpoints{{
		Locality: &corev3.Locality{Region: "r", Zone: "z"}, LbEndpoints: endpoints,
	}}}
}

// TestReadListingRefuses changes one thing of a good assignment; the error
// names the field.
func TestReadListingRefuses(t *testing.T) {
	type assignment = endpointv3.ClusterLoadAssignment
	first := func(m *assignment) *endpointv3.LbEndpoint { return m.GetEndpoints()[0].GetLbEndpoints()[0] }
	socket := func(m *assignment) *corev3.SocketAddress {
		return first(m).GetEndpoint().GetAddress().GetSocketAddress()
	}
	for name, tt := range map[string]struct {
		change func(*assignment)
		want   string
	}{
		"weight 0":          {func(m *assignment) { first(m).LoadBalancingWeight = wrapperspb.UInt32(0) }, "endpoints[0].lb_endpoints[0].load_balancing_weight"},
		"weights too large": {func(m *assignment) { first(m).LoadBalancingWeight = wrapperspb.UInt32(math.MaxUint32) }, "2^32"},
		"locality weight 0": {func(m *assignment) { m.Endpoints[0].LoadBalancingWeight = wrapperspb.UInt32(0) }, "endpoints[0].load_balancing_weight"},
		"priority":          {func(m *assignment) { m.Endpoints[0].Priority = 129 }, "endpoints[0].priority"},
		"LEDS": {func(m *assignment) {
			m.Endpoints[0].LbConfig = &endpointv3.LocalityLbEndpoints_LedsClusterLocalityConfig{}
		}, "LEDS"},
		"no locality": {func(m *assignment) { m.Endpoints[0].Locality = nil }, "default_locality"},
		"long zone":   {func(m *assignment) { m.Endpoints[0].Locality.Zone = strings.Repeat("z", 254) }, "254 bytes"},
		"odd zone":    {func(m *assignment) { m.Endpoints[0].Locality.Zone = "a\nb" }, "printed"},
		"health 99":   {func(m *assignment) { first(m).HealthStatus = 99 }, "health_status"},
		"health -1":   {func(m *assignment) { first(m).HealthStatus = -1 }, "health_status"},
		"port 0":      {func(m *assignment) { socket(m).PortSpecifier = nil }, "port 0"},
		"port 65536":  {func(m *assignment) { socket(m).PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: 65536} }, "port 65536"},
		"everywhere":  {func(m *assignment) { socket(m).Address = "0.0.0.0" }, "connect"},
		"multicast":   {func(m *assignment) { socket(m).Address = "ff02::1" }, "connect"},
		"IPv6 zone":   {func(m *assignment) { socket(m).Address = "fe80::1%eth0" }, "connect"},
		"twice":       {func(m *assignment) { socket(m).Address = "::ffff:10.0.0.2" }, "lb_endpoints[1].endpoint.address: 10.0.0.2:80 is already at endpoints[0].lb_endpoints[0]"},
		"twice in two localities": {func(m *assignment) {
			again, _ := proto.Clone(m.GetEndpoints()[0]).(*endpointv3.LocalityLbEndpoints)
			again.Locality.Zone, again.Priority = "y", 1
			m.Endpoints = append(m.Endpoints, again)
		}, "endpoints[1].lb_endpoints[0]"},
		"probe port": {func(m *assignment) {
			first(m).GetEndpoint().HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{PortValue: 65536}
		}, "health_check_config.port_value"},
		"probe host": {func(m *assignment) {
			first(m).GetEndpoint().HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{Hostname: "a b"}
		}, "health_check_config.hostname"},
		"probe address": {func(m *assignment) {
			first(m).GetEndpoint().HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{Address: &corev3.Address{}}
		}, "health_check_config.address"},
		"many localities": {func(m *assignment) {
			for i := range 600 {
				m.Endpoints = append(m.Endpoints, &endpointv3.LocalityLbEndpoints{
					Locality:    &corev3.Locality{Region: strings.Repeat("r", i%200+1), Zone: strings.Repeat("z", i/200+1)},
					LbEndpoints: []*endpointv3.LbEndpoint{listedEndpoint("10.1.0.1", uint32(i)+1)},
				})
			}
		}, "more than 512 localities"},
		"many endpoints": {func(m *assignment) {
			for i := range uint32(30_000) {
				m.Endpoints[0].LbEndpoints = append(m.Endpoints[0].LbEndpoints, listedEndpoint("10.1.0.1", i+1))
			}
		}, "more than 30000 endpoints"},
		"names only": {func(m *assignment) {
			socket(m).Address = "backend.example"
			m.Endpoints[0].LbEndpoints[1] = &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_EndpointName{EndpointName: "e"}}
		}, "none of 2 can be used"},
	} {
		t.Run(name, func(t *testing.T) {
			m := listedAssignment(listedEndpoint("10.0.0.1", 80), listedEndpoint("10.0.0.2", 80))
			tt.change(m)
			_, err := resource.ReadListing(m, isobar.Locality{})
			if !errors.Is(err, rpc.ErrMessage) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestReadListing reads what is kept, merges localities over priorities, and
// leaves out what has no IP address.
func TestReadListing(t *testing.T) {
	one := listedEndpoint("10.0.0.1", 80)
	one.HealthStatus, one.LoadBalancingWeight = corev3.HealthStatus_DEGRADED, wrapperspb.UInt32(3)
	one.GetEndpoint().HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{
		Hostname: "h", DisableActiveHealthCheck: true,
		Address: listedEndpoint("10.9.9.9", 99).GetEndpoint().GetAddress(),
	}
	named, pipe := listedEndpoint("backend.example", 80), listedEndpoint("", 0)
	pipe.GetEndpoint().Address = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/x"}}}
	m := listedAssignment(one, named, pipe)
	m.Endpoints = append(m.Endpoints,
		&endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Region: "r", Zone: "z"}, Priority: 7, LbEndpoints: []*endpointv3.LbEndpoint{listedEndpoint("::1", 1)}},
		&endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{}, LbEndpoints: []*endpointv3.LbEndpoint{listedEndpoint("::2", 1)}},
		&endpointv3.LocalityLbEndpoints{Priority: 2}, // empty: its locality does not matter
	)
	got, err := resource.ReadListing(m, isobar.MustLocality("a/b"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Localities) != 2 || got.Localities[0].Locality.String() != "a/b" || got.Localities[1].Locality.String() != "r/z" {
		t.Fatalf("localities %+v", got.Localities)
	}
	e := got.Localities[1].Endpoints
	if len(e) != 2 || e[0].Weight != 3 || e[0].Health != isobar.Degraded || e[1].Address != "[::1]:1" || e[1].Check != nil {
		t.Fatalf("endpoints %+v", e)
	}
	if want := (isobar.EndpointCheck{Address: "10.9.9.9", Port: 99, Hostname: "h", Disabled: true}); *e[0].Check != want {
		t.Errorf("probe %+v, want %+v", *e[0].Check, want)
	}
	if got.Endpoints != 3 || got.LeftOut != 2 || !strings.Contains(got.Reason, "endpoints[0].lb_endpoints[1]") || !strings.Contains(got.Reason, "backend.example") {
		t.Errorf("%d endpoints, %d left out: %s", got.Endpoints, got.LeftOut, got.Reason)
	}
	if empty, err := resource.ReadListing(&endpointv3.ClusterLoadAssignment{}, isobar.Locality{}); err != nil || empty.Endpoints != 0 {
		t.Errorf("an empty assignment is %+v, %v", empty, err)
	}
}

// FuzzReadListing: whatever bytes come, there is an error or a listing that
// keeps all rules; what is kept can be published again.
func FuzzReadListing(f *testing.F) {
	for _, m := range []*endpointv3.ClusterLoadAssignment{{}, listedAssignment(listedEndpoint("10.0.0.1", 80), listedEndpoint("x", 1))} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &endpointv3.ClusterLoadAssignment{}
		if rpc.Decode(data, m) != nil {
			return
		}
		l, err := resource.ReadListing(m, isobar.MustLocality("a/b"))
		if err != nil {
			if !errors.Is(err, rpc.ErrMessage) {
				t.Errorf("error %v does not wrap ErrMessage", err)
			}
			return
		}
		seen, n := map[string]bool{}, 0
		for _, sl := range l.Localities {
			if sl.Locality.IsZero() || len(sl.Endpoints) == 0 {
				t.Errorf("locality %+v", sl)
			}
			for _, e := range sl.Endpoints {
				if seen[e.Address] || e.Health > isobar.Degraded {
					t.Errorf("endpoint %+v", e)
				}
				seen[e.Address] = true
				n++
			}
		}
		if n != l.Endpoints {
			t.Errorf("%d endpoints are counted as %d", n, l.Endpoints)
		}
	})
}

func additional(endpoints ...*endpointv3.LbEndpoint) []*endpointv3.Endpoint_AdditionalAddress {
	var out []*endpointv3.Endpoint_AdditionalAddress
	for _, e := range endpoints {
		out = append(out, &endpointv3.Endpoint_AdditionalAddress{Address: e.GetEndpoint().GetAddress()})
	}
	return out
}

func filterMetadata(name, key string, v any) *corev3.Metadata {
	s, err := structpb.NewStruct(map[string]any{key: v})
	if err != nil {
		panic(err)
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{name: s}}
}

// What another control plane says of an endpoint is kept.
func TestListedDetails(t *testing.T) {
	e := listedEndpoint("10.0.0.1", 80)
	e.Metadata = filterMetadata("envoy.lb", "version", "canary")
	e.GetEndpoint().Hostname = "one.example"
	e.GetEndpoint().AdditionalAddresses = additional(listedEndpoint("2001:db8::1", 80), listedEndpoint("named.example", 80))
	got, err := resource.ReadListing(listedAssignment(e, listedEndpoint("10.0.0.2", 80)), isobar.Locality{})
	if err != nil {
		t.Fatal(err)
	}
	want := &isobar.EndpointDetails{
		Hostname: "one.example", AdditionalAddresses: []string{"[2001:db8::1]:80"}, Metadata: `{"envoy.lb":{"version":"canary"}}`,
	}
	endpoints := got.Localities[0].Endpoints
	if !reflect.DeepEqual(endpoints[0].Details, want) || endpoints[1].Details != nil {
		t.Errorf("got %+v and %+v, want %+v and none", endpoints[0].Details, endpoints[1].Details, want)
	}
}

func TestListedDetailsRefused(t *testing.T) {
	for says, change := range map[string]func(*endpointv3.LbEndpoint){
		"endpoint.hostname": func(e *endpointv3.LbEndpoint) { e.GetEndpoint().Hostname = "a b" },
		"lb_endpoints[0].metadata: bad metadata": func(e *endpointv3.LbEndpoint) {
			e.Metadata = filterMetadata("a", "x", strings.Repeat("y", isobar.MaxMetadata))
		},
		"additional_addresses[0]: 10.0.0.1:80 is already at endpoints[0].lb_endpoints[0]": func(e *endpointv3.LbEndpoint) {
			e.GetEndpoint().AdditionalAddresses = additional(e)
		},
		"additional_addresses[0]: \"0.0.0.0\"": func(e *endpointv3.LbEndpoint) {
			e.GetEndpoint().AdditionalAddresses = additional(listedEndpoint("0.0.0.0", 80))
		},
		"more than 16 addresses": func(e *endpointv3.LbEndpoint) {
			for port := range uint32(17) {
				e.GetEndpoint().AdditionalAddresses = append(e.GetEndpoint().AdditionalAddresses, additional(listedEndpoint("10.1.0.1", port+1))...)
			}
		},
	} {
		e := listedEndpoint("10.0.0.1", 80)
		change(e)
		_, err := resource.ReadListing(listedAssignment(e), isobar.Locality{})
		if !errors.Is(err, rpc.ErrMessage) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

// TestSweepOfListings clears each field of an assignment of another control plane
// in turn, however deep: it is refused, or read with defaults that do no harm,
// and never as something else than the endpoints that are left of it.
func TestSweepOfListings(t *testing.T) {
	full := func() *endpointv3.ClusterLoadAssignment {
		e := listedEndpoint("10.0.0.1", 80)
		e.HealthStatus, e.LoadBalancingWeight = corev3.HealthStatus_DRAINING, wrapperspb.UInt32(3)
		e.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": {Fields: map[string]*structpb.Value{"a": structpb.NewStringValue("b")}}}}
		e.GetEndpoint().Hostname = "one"
		e.GetEndpoint().HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{PortValue: 81, Hostname: "probe"}
		m := listedAssignment(e, listedEndpoint("10.0.0.2", 80))
		m.Endpoints[0].Locality.SubZone = "s"
		m.Endpoints[0].LoadBalancingWeight = wrapperspb.UInt32(5)
		m.Policy = &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(150)}
		return m
	}
	before, err := resource.ReadListing(full(), isobar.Locality{})
	if err != nil || before.Endpoints != 2 {
		t.Fatalf("%+v %v", before, err)
	}
	known := []string{"10.0.0.1:80", "10.0.0.2:80"}
	var refused []string
	cleared := 0
	for n := 0; ; n++ {
		m := full()
		i := n
		field, ok := testhelp.ClearField(m.ProtoReflect(), &i)
		if !ok {
			break
		}
		cleared++
		l, err := resource.ReadListing(m, isobar.Locality{})
		if err != nil {
			if !errors.Is(err, rpc.ErrMessage) {
				t.Errorf("%s: %v", field, err)
			}
			if name := string(field.Name()); !slices.Contains(refused, name) {
				refused = append(refused, name)
			}
			continue
		}
		for _, at := range l.Localities {
			for _, e := range at.Endpoints {
				if at.Locality.IsZero() || !slices.Contains(known, e.Address) {
					t.Errorf("%s: %s in %s", field, e.Address, at.Locality)
				}
			}
		}
		if l.Endpoints+l.LeftOut != 2 && field.Name() != "endpoints" && field.Name() != "lb_endpoints" {
			t.Errorf("%s: %d endpoints, %d left out", field, l.Endpoints, l.LeftOut)
		}
	}
	slices.Sort(refused) // a value is that of a weight, which is 0 then
	if want := []string{"locality", "port_value", "value"}; cleared < 25 || !slices.Equal(refused, want) {
		t.Errorf("of %d fields these are refused without: %q, want %q", cleared, refused, want)
	}
}
