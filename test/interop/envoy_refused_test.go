package interop

import (
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// What `isobar predict` says that Envoy refuses, Envoy refuses, and nothing else.
func TestEnvoyRefusesWhatPredictSays(t *testing.T) {
	t.Parallel()
	socket := func(change func(*corev3.SocketAddress)) *endpointv3.ClusterLoadAssignment {
		h := rawHost("127.0.0.1:80", 0, corev3.HealthStatus_HEALTHY)
		change(h.GetEndpoint().GetAddress().GetSocketAddress())
		return rawAssignment("c", rawLocality("a", 0, 1, h))
	}
	plain := func(change func(*endpointv3.ClusterLoadAssignment)) *endpointv3.ClusterLoadAssignment {
		m := socket(func(*corev3.SocketAddress) {})
		change(m)
		return m
	}
	policy := func(p *endpointv3.ClusterLoadAssignment_Policy) *endpointv3.ClusterLoadAssignment {
		return plain(func(m *endpointv3.ClusterLoadAssignment) { m.Policy = p })
	}
	drops := func(numerators ...uint32) *endpointv3.ClusterLoadAssignment {
		p := &endpointv3.ClusterLoadAssignment_Policy{}
		for i, n := range numerators {
			p.DropOverloads = append(p.DropOverloads, &endpointv3.ClusterLoadAssignment_Policy_DropOverload{
				Category: string(rune('a' + i)), DropPercentage: &typev3.FractionalPercent{Numerator: n},
			})
		}
		return policy(p)
	}
	endpoint := func(change func(*endpointv3.Endpoint)) *endpointv3.ClusterLoadAssignment {
		return plain(func(m *endpointv3.ClusterLoadAssignment) {
			change(m.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint())
		})
	}
	host := func(address string) *endpointv3.LbEndpoint { return rawHost(address, 0, corev3.HealthStatus_HEALTHY) }
	cases := []struct {
		name string
		m    *endpointv3.ClusterLoadAssignment
	}{
		{"plain", socket(func(*corev3.SocketAddress) {})},
		{"IPv6", socket(func(s *corev3.SocketAddress) { s.Address = "::1" })},
		{"host name", socket(func(s *corev3.SocketAddress) { s.Address = "localhost" })},
		{"no address text", socket(func(s *corev3.SocketAddress) { s.Address = "" })},
		{"IPv6 with a zone", socket(func(s *corev3.SocketAddress) { s.Address = "fe80::1%1" })},
		{"port 0", socket(func(s *corev3.SocketAddress) { s.PortSpecifier = &corev3.SocketAddress_PortValue{} })},
		{"no port", socket(func(s *corev3.SocketAddress) { s.PortSpecifier = nil })},
		{"port 65536", socket(func(s *corev3.SocketAddress) { s.PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: 65536} })},
		{"named port", socket(func(s *corev3.SocketAddress) { s.PortSpecifier = &corev3.SocketAddress_NamedPort{NamedPort: "http"} })},
		{"resolver_name", socket(func(s *corev3.SocketAddress) { s.ResolverName = "dns" })},
		{"UDP", socket(func(s *corev3.SocketAddress) { s.Protocol = corev3.SocketAddress_UDP })},
		{"no address", endpoint(func(e *endpointv3.Endpoint) { e.Address = nil })},
		{"pipe", endpoint(func(e *endpointv3.Endpoint) {
			e.Address = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/tmp/x"}}}
		})},
		{"pipe without a path", endpoint(func(e *endpointv3.Endpoint) {
			e.Address = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{}}}
		})},
		{"additional host name", endpoint(func(e *endpointv3.Endpoint) {
			e.AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: host("localhost:80").GetEndpoint().GetAddress()}}
		})},
		{"additional address that is not set", endpoint(func(e *endpointv3.Endpoint) {
			e.AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{}}
		})},
		{"additional IPv6 address", endpoint(func(e *endpointv3.Endpoint) {
			a := host("127.0.0.1:80").GetEndpoint().GetAddress()
			a.GetSocketAddress().Address = "::1"
			e.AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: a}}
		})},
		{"health check at a host name", endpoint(func(e *endpointv3.Endpoint) {
			e.HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{Address: host("localhost:80").GetEndpoint().GetAddress()}
		})},
		{"health check port 65536", endpoint(func(e *endpointv3.Endpoint) {
			e.HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{PortValue: 65536}
		})},
		{"named endpoint", plain(func(m *endpointv3.ClusterLoadAssignment) {
			m.NamedEndpoints = map[string]*endpointv3.Endpoint{"n": host("127.0.0.1:80").GetEndpoint()}
			m.Endpoints[0].LbEndpoints[0].HostIdentifier = &endpointv3.LbEndpoint_EndpointName{EndpointName: "n"}
		})},
		{"one drop category", drops(10)},
		{"drop of everything", drops(100)},
		{"drop above 1", drops(101)},
		{"two drop categories", drops(10, 20)},
		{"two drop categories, one of 0", drops(10, 0)},
		{"drop without a category", policy(&endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{
			{DropPercentage: &typev3.FractionalPercent{Numerator: 1}},
		}})},
		{"drop without a percentage", policy(&endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{
			{Category: "x"},
		}})},
		{"endpoint_stale_after of 0", policy(&endpointv3.ClusterLoadAssignment_Policy{EndpointStaleAfter: durationpb.New(0)})},
		{"endpoint_stale_after", policy(&endpointv3.ClusterLoadAssignment_Policy{EndpointStaleAfter: durationpb.New(time.Hour)})},
		{"no locality", plain(func(m *endpointv3.ClusterLoadAssignment) { m.Endpoints[0].Locality = nil })},
		{"gap", rawAssignment("c", rawLocality("a", 2, 1, host("127.0.0.1:80")))},
		{"no weights", rawAssignment("c", rawLocality("a", 0, 0, host("127.0.0.1:80")))},
		{"locality twice", rawAssignment("c", rawLocality("a", 0, 1, host("127.0.0.1:80")), rawLocality("a", 0, 1, host("127.0.0.1:81")))},
		{"address twice", rawAssignment("c", rawLocality("a", 0, 1, host("127.0.0.1:80")), rawLocality("b", 0, 1, host("127.0.0.1:80")))},
		{"nothing", rawAssignment("c")},
		{"largest sum of weights", rawAssignment("c", rawLocality("a", 0, 1<<31, host("127.0.0.1:80")), rawLocality("b", 0, 1<<31-1, host("127.0.0.1:81")))},
	}
	for _, version := range envoyVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := startAssignmentServer(t)
			p := startEnvoy(t, version, assignmentBootstrap(server.address, localityWeighted, "c"))
			for i, c := range cases {
				v := server.set(t, c.m)
				if i == 0 {
					if err := p.AwaitReady(t.Context(), patience); err != nil {
						t.Fatal(err)
					}
				}
				text := server.answer(t, v)
				if _, err := resource.ClusterFrom(c.m); err != nil {
					t.Errorf("%s: unreadable: %v", c.name, err)
				}
				if said := resource.RefusedByEnvoy(c.m); (said != nil) != (text != "") {
					t.Errorf("%s: predicted %v, Envoy says %q", c.name, said, text)
				}
			}
		})
	}
}
