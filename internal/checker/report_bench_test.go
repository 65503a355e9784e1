package checker

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
)

// BenchmarkReport is a report of 10,000 endpoints, encoded.
func BenchmarkReport(b *testing.B) {
	spec := everyKind()
	spec.ClusterHealthChecks = spec.ClusterHealthChecks[:1]
	g := spec.GetClusterHealthChecks()[0].GetLocalityEndpoints()[0]
	g.Endpoints = nil
	for i := range 10_000 {
		g.Endpoints = append(g.Endpoints, &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{
				Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080},
			},
		}}})
	}
	s, _ := merge(&state{}, parse(spec, nil), DefaultMaxEndpoints)
	var r reporter
	b.ReportAllocs()
	for b.Loop() {
		out, err := proto.Marshal(r.report(s))
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(out)))
	}
}
