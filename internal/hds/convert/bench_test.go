package convert_test

import (
	"fmt"
	"testing"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/hds/convert"
)

// BenchmarkHealthReport reads the report of a checker of 600 endpoints, in both
// forms as Envoy sends it.
func BenchmarkHealthReport(b *testing.B) {
	var entries []*healthv3.EndpointHealth
	for i := range 600 {
		entries = append(entries, healthOf(fmt.Sprintf("10.0.%d.%d", i/250, i%250), 80, 1))
	}
	data, err := proto.Marshal(&healthv3.HealthCheckRequestOrEndpointHealthResponse{
		RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{EndpointHealthResponse: healthReport(entries...)},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		m, err := convert.LaterHealthMessage(data)
		if err != nil {
			b.Fatal(err)
		}
		if got, _, err := convert.HealthEntries(m.Response, nil); err != nil || len(got) != 600 {
			b.Fatal(len(got), err)
		}
	}
}
