package reader_test

import (
	"fmt"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// BenchmarkReport reads a report of 10 services in 3 localities each, and one of
// 100, without and with 20 endpoints in each, from the wire and through the
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
				reports reader.ReportReader
				buffer  reader.ReportBuffer
			)
			o := reader.ReportOptions{Agent: load.AgentEnvoy, Arrived: reportTime, Known: &known, Endpoints: true, Buffer: &buffer}
			for b.Loop() {
				if _, err := reports.Read(data, &o); err != nil {
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

// Find implements Services.
func (s *services) Find(name []byte) (string, bool) {
	service, ok := (*s)[string(name)]
	return service, ok
}

// BenchmarkReportWithNode reads a report of 10 services in 3 localities that comes
// with the node of an Envoy, in pieces as large as the frames of HTTP/2.
func BenchmarkReportWithNode(b *testing.B) {
	report, known := largeReport(b, 10, 0)
	n := &corev3.Node{Id: "e", UserAgentName: "envoy"}
	for e := range 470 {
		n.Extensions = append(n.Extensions, &corev3.Extension{
			Name: fmt.Sprintf("envoy.filters.some_category.extension_%03d", e), Category: "envoy.filters.some_category",
			TypeUrls: []string{fmt.Sprintf("envoy.extensions.filters.some.v3.Extension%03d", e)},
		})
	}
	message, err := proto.Marshal(&loadstatsv3.LoadStatsRequest{Node: n})
	if err != nil {
		b.Fatal(err)
	}
	message = append(message, report...)
	var data mem.BufferSlice
	for rest := message; len(rest) > 0; {
		size := min(len(rest), 16<<10)
		data, rest = append(data, mem.SliceBuffer(rest[:size])), rest[size:]
	}
	for name, skips := range map[string]protowire.Number{"skipped": reader.ReportNode, "whole": 0} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(message)))
			r := &reportReader{skips: skips, options: reader.ReportOptions{
				Agent: load.AgentEnvoy, Arrived: reportTime, Known: &known, Buffer: new(reader.ReportBuffer),
			}}
			for b.Loop() {
				if err := rpc.ServerCodec().Unmarshal(data, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// reportReader reads load reports as their streams do.
type reportReader struct {
	skips   protowire.Number
	reader  reader.ReportReader
	options reader.ReportOptions
}

func (r *reportReader) Skips() protowire.Number { return r.skips }

func (r *reportReader) ReadMessage(encoded []byte) error {
	_, err := r.reader.Read(encoded, &r.options)
	return err
}
