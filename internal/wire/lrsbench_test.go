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

// BenchmarkReport reads a report of 10 services in 3 localities each, and one of
// 100, without and with 20 endpoints in each, from the wire and by way of the
// generated decoder.
func BenchmarkReport(b *testing.B) {
	for _, detail := range []struct {
		name                string
		clusters, endpoints int
	}{{"small", 10, 0}, {"localities", 100, 0}, {"endpoints", 100, 20}} {
		data, known := largeReport(b, detail.clusters, detail.endpoints)
		b.Run(detail.name+"/wire", func(b *testing.B) {
			b.ReportAllocs()
			var (
				reader wire.ReportReader
				room   wire.ReportRoom
			)
			o := wire.ReportOptions{Agent: load.AgentEnvoy, Arrived: reportTime, Known: &known, Endpoints: true, Room: &room}
			for b.Loop() {
				if _, _, err := reader.Read(data, &o); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(detail.name+"/generated", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := proto.Unmarshal(data, &loadstatsv3.LoadStatsRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// largeReport encodes a report on services in 3 localities each.
func largeReport(tb testing.TB, clusters, endpoints int) ([]byte, services) {
	tb.Helper()
	m := &loadstatsv3.LoadStatsRequest{}
	known := services{}
	for c := range clusters {
		cs := &endpointv3.ClusterStats{ClusterName: fmt.Sprintf("cluster-%03d", c), LoadReportInterval: durationpb.New(5 * time.Second)}
		known[cs.GetClusterName()] = cs.GetClusterName()
		for l := range 3 {
			ls := &endpointv3.UpstreamLocalityStats{
				Locality:            &corev3.Locality{Region: "region-1", Zone: fmt.Sprintf("zone-%d", (c+l)%10)},
				TotalIssuedRequests: 1000, TotalSuccessfulRequests: 990, TotalErrorRequests: 3, TotalRequestsInProgress: 5,
			}
			for e := range endpoints {
				ls.UpstreamEndpointStats = append(ls.UpstreamEndpointStats, &endpointv3.UpstreamEndpointStats{
					Address:             socket(fmt.Sprintf("10.%d.%d.%d", c, l, e), 8080),
					TotalIssuedRequests: uint64(50 + e), TotalSuccessfulRequests: 49, TotalErrorRequests: 1, TotalRequestsInProgress: 1,
				})
			}
			cs.UpstreamLocalityStats = append(cs.UpstreamLocalityStats, ls)
		}
		m.ClusterStats = append(m.ClusterStats, cs)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return data, known
}

// services are those that are known.
type services map[string]string

// Find implements wire.Services.
func (s *services) Find(name []byte) (string, bool) {
	service, ok := (*s)[string(name)]
	return service, ok
}
