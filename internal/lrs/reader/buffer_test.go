//go:build !race

package reader_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
)

// One buffer takes reports of all sizes, one after the other, and nothing of one
// shows in the next.
func TestBuffersAreUsedAgain(t *testing.T) {
	var (
		reports reader.ReportReader
		buffer  reader.ReportBuffer
	)
	for i, size := range []struct{ clusters, endpoints int }{
		{10, 20}, {10, 20}, {10, 20}, // the same again and again
		{1, 3000}, {30, 300}, {30, 600}, // ever larger, the last beyond what buffers keep
		{30, 0}, {1, 1}, {5, 0}, {1, 2}, {2, 1}, {1, 1}, {2, 2}, {2, 3}, {1, 1}, {1, 0}, // until the buffer is given back
		{20, 10}, {20, 10},
	} {
		data, known := largeReport(t, size.clusters, size.endpoints)
		var m loadstatsv3.LoadStatsRequest
		if err := proto.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		o := reader.ReportOptions{Agent: load.AgentEnvoy, Arrived: reportTime, Known: &known, Endpoints: true, Buffer: &buffer}
		got, err := reports.Read(data, &o)
		if err != nil {
			t.Fatal(err)
		}
		want, err := twinReport(&m, load.AgentEnvoy, reportTime, nil)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("report %d, of %d clusters with %d endpoints, is not what the twin makes of it (%v)", i, size.clusters, size.endpoints, err)
		}
	}
}

// A few clients with large reports don't leave memory to everybody else: buffers go
// from one client to the other.
func TestLargeReportsLeaveNoLargeBuffers(t *testing.T) {
	large, known := largeReport(t, 2000, 0)
	small, _ := largeReport(t, 2, 0)
	none := []byte{}
	idle, err := proto.Marshal(&loadstatsv3.LoadStatsRequest{ClusterStats: make([]*endpointv3.ClusterStats, 20_000)}) // of no service
	if err != nil {
		t.Fatal(err)
	}
	detailed, _ := largeReport(t, 10, 300)
	for name, data := range map[string][]byte{
		"clusters": large, "localities": wideReport(t, 1, 1000), "clusters and localities": wideReport(t, 10, 1000), "unknown clusters": idle, "endpoints": detailed,
	} {
		var reports reader.ReportReader
		buffers := make([]reader.ReportBuffer, 200)
		read := func(data []byte) {
			for i := range buffers {
				if _, err := reports.Read(data, &reader.ReportOptions{Agent: load.AgentEnvoy, Arrived: reportTime, Known: &known, Endpoints: true, Buffer: &buffers[i]}); err != nil {
					t.Fatal(err)
				}
			}
		}
		read(small)
		before := inUse()
		for _, next := range [][]byte{small, none} {
			read(data)
			for range 3 {
				read(next)
			}
			if kept := (inUse() - before) / len(buffers); kept > 6<<10 {
				t.Errorf("%s: %d bytes stay in a buffer after reports of %d bytes", name, kept, len(next))
			}
		}
		runtime.KeepAlive(buffers)
	}
}

// wideReport is on clusters in many localities.
func wideReport(t *testing.T, clusters, localities int) []byte {
	t.Helper()
	m := &loadstatsv3.LoadStatsRequest{}
	for n := range clusters {
		c := &endpointv3.ClusterStats{ClusterName: fmt.Sprintf("cluster-%03d", n), LoadReportInterval: durationpb.New(5 * time.Second)}
		for i := range localities {
			c.UpstreamLocalityStats = append(c.UpstreamLocalityStats, &endpointv3.UpstreamLocalityStats{
				Locality: &corev3.Locality{Region: "region-1", Zone: fmt.Sprintf("zone-%d", i)}, TotalIssuedRequests: 10,
			})
		}
		m.ClusterStats = append(m.ClusterStats, c)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// inUse is the memory in use after a collection, bytes.
func inUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A report like the one before costs no memory, with endpoints or without.
func TestReportsInUsedBuffersCostNoMemory(t *testing.T) {
	for _, endpoints := range []int{0, 20} {
		data, known := largeReport(t, 50, endpoints)
		var (
			reports reader.ReportReader
			buffer  reader.ReportBuffer
		)
		o := reader.ReportOptions{Agent: load.AgentEnvoy, Arrived: reportTime, Known: &known, Endpoints: true, Buffer: &buffer}
		read := func() {
			if _, err := reports.Read(data, &o); err != nil {
				t.Fatal(err)
			}
		}
		read()
		read()
		// A collection of garbage may take the reader's own memory meanwhile.
		if got := testing.AllocsPerRun(100, read); got > 1 {
			t.Errorf("%d endpoints in each locality: %v allocations a report", endpoints, got)
		}
	}
}

// TestBytesOfBuffers asserts that a buffer says what its report takes, whatever it holds, and that
// clusters that are no services take little.
func TestBytesOfBuffers(t *testing.T) {
	unknown := &loadstatsv3.LoadStatsRequest{}
	for i := range 19_000 {
		unknown.ClusterStats = append(unknown.ClusterStats, &endpointv3.ClusterStats{ClusterName: fmt.Sprint("x-", i)})
	}
	detailed, known := largeReport(t, 10, 300)
	one, _ := largeReport(t, 1, 0)
	strangers, err := proto.Marshal(unknown)
	if err != nil {
		t.Fatal(err)
	}
	many, _ := largeReport(t, 2000, 0)
	same := func(data []byte) func(int) []byte { return func(int) []byte { return data } }
	for name, test := range map[string]struct {
		data func(i int) []byte
		most int // KiB, 0 = any
		over int // quarters of what it takes that a buffer may say
	}{
		"one": {same(one), 6, 5}, "clusters": {same(many), 0, 5}, "localities": {same(wideReport(t, 10, 1000)), 0, 5}, "endpoints": {same(detailed), 0, 5},
		"unknown": {same(strangers), 4, 5}, "one and unknown": {same(slices.Concat(one, strangers)), 8, 5},
		"refused":                {same(refusedReport(t)), 8, 5},
		"metrics of a report":    {func(i int) []byte { return namedReport(t, i) }, 0, 5},
		"localities of a report": {func(i int) []byte { return placedReport(t, i, 1) }, 0, 5},
		"localities in parts":    {func(i int) []byte { return placedReport(t, i, 2) }, 0, 8}, // no client sends such: the first part counts, too
	} {
		var reports reader.ReportReader
		buffers := make([]reader.ReportBuffer, 50)
		kept := make([]load.Report, len(buffers))
		read := func(i int, into *reader.ReportBuffer) (out load.Report) {
			o := &reader.ReportOptions{Agent: load.AgentEnvoy, Arrived: reportTime, Known: &known, Endpoints: true, Buffer: into}
			out, err := reports.Read(test.data(i), o)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		read(-1, &reader.ReportBuffer{}) // what the reader remembers
		before, told := inUse(), 0
		for i := range buffers {
			kept[i] = read(i, &buffers[i])
			told += buffers[i].Bytes()
		}
		took := inUse() - before
		runtime.KeepAlive(buffers)
		runtime.KeepAlive(kept)
		const little = 4 << 10 // of a buffer that is hardly used
		if told < took/2-len(buffers)*little || told > took*test.over/4+len(buffers)*little {
			t.Errorf("%s: buffers take %d KiB and say %d", name, took>>10, told>>10)
		}
		if each := took / len(buffers) >> 10; test.most > 0 && each > test.most {
			t.Errorf("%s: a report takes %d KiB, want at most %d", name, each, test.most)
		}
	}
}

// refusedReport is on one service, 5,000 times, with more requests than a client can send.
func refusedReport(t *testing.T) []byte {
	t.Helper()
	m := &loadstatsv3.LoadStatsRequest{}
	for range 5000 {
		m.ClusterStats = append(m.ClusterStats, &endpointv3.ClusterStats{ClusterName: "cluster-000", TotalDroppedRequests: math.MaxUint64})
	}
	return encodedReport(t, m)
}

// namedReport is the report of a number: its metrics have long names that no other report has.
func namedReport(t *testing.T, number int) []byte {
	t.Helper()
	c := &endpointv3.ClusterStats{ClusterName: "cluster-000"}
	for i := range 20 {
		l := &endpointv3.UpstreamLocalityStats{Locality: &corev3.Locality{Region: "region-1", Zone: fmt.Sprint(i)}, TotalIssuedRequests: 10}
		for j := range 50 {
			l.LoadMetricStats = append(l.LoadMetricStats, &endpointv3.EndpointLoadMetricStats{
				MetricName: fmt.Sprintf("%0*d", 300+300*(j%2), 1000*(number+1)+50*i+j), NumRequestsFinishedWithMetric: 1, TotalMetricValue: 1,
			})
		}
		c.UpstreamLocalityStats = append(c.UpstreamLocalityStats, l)
	}
	return encodedReport(t, &loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{c}})
}

// placedReport is the report of a number: it is on localities with long names that no other report
// has. A message may hold a locality in several parts.
func placedReport(t *testing.T, number, parts int) []byte {
	t.Helper()
	c := &endpointv3.ClusterStats{ClusterName: "cluster-000"}
	for i := range 1000 {
		part := encodedReport(t, &endpointv3.UpstreamLocalityStats{
			Locality: &corev3.Locality{Region: fmt.Sprintf("%0200d", number), Zone: fmt.Sprintf("%0200d", i), SubZone: strings.Repeat("a", 200)},
		})
		l := &endpointv3.UpstreamLocalityStats{TotalIssuedRequests: 10}
		l.ProtoReflect().SetUnknown(bytes.Repeat(part, parts))
		c.UpstreamLocalityStats = append(c.UpstreamLocalityStats, l)
	}
	return encodedReport(t, &loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{c}})
}

func encodedReport(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
