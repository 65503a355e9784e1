package wire_test

import (
	"fmt"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/wire"
)

// BenchmarkReport reads a report of 100 services in 3 localities each, from the
// wire and by way of the generated decoder.
func BenchmarkReport(b *testing.B) {
	m := &loadstatsv3.LoadStatsRequest{}
	known := services{}
	for c := range 100 {
		cs := &endpointv3.ClusterStats{ClusterName: fmt.Sprintf("cluster-%03d", c), LoadReportInterval: durationpb.New(5 * time.Second)}
		known[cs.GetClusterName()] = cs.GetClusterName()
		for l := range 3 {
			cs.UpstreamLocalityStats = append(cs.UpstreamLocalityStats, &endpointv3.UpstreamLocalityStats{
				Locality:            &corev3.Locality{Region: "region-1", Zone: fmt.Sprintf("zone-%d", (c+l)%10)},
				TotalIssuedRequests: 1000, TotalSuccessfulRequests: 990, TotalErrorRequests: 3, TotalRequestsInProgress: 5,
			})
		}
		m.ClusterStats = append(m.ClusterStats, cs)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("wire", func(b *testing.B) {
		b.ReportAllocs()
		var reader wire.ReportReader
		o := wire.ReportOptions{Agent: load.AgentEnvoy, Arrived: reportTime, Known: &known}
		for b.Loop() {
			if _, _, err := reader.Read(data, &o); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(data, &loadstatsv3.LoadStatsRequest{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// services are those that are known.
type services map[string]string

// Find implements wire.Services.
func (s *services) Find(name []byte) (string, bool) {
	service, ok := (*s)[string(name)]
	return service, ok
}
