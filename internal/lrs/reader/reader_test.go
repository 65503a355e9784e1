package reader_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
	"github.com/isobar-xds/isobar/internal/rpc"
)

var reportTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func read(t *testing.T, agent load.Agent, stats ...*endpointv3.ClusterStats) ([]load.ServiceReport, []reader.Rejection) {
	t.Helper()
	r, rejected, err := readBoth(t, &loadstatsv3.LoadStatsRequest{ClusterStats: stats}, agent)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Arrived.Equal(reportTime) {
		t.Errorf("arrived at %v, want %v", r.Arrived, reportTime)
	}
	return r.Services, rejected
}

// readBoth reads a report from the wire and compares with what the twin makes of
// the decoded message.
func readBoth(t *testing.T, m *loadstatsv3.LoadStatsRequest, agent load.Agent) (load.Report, []reader.Rejection, error) {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var rejected []reader.Rejection
	o := reader.ReportOptions{Agent: agent, Arrived: reportTime, Endpoints: true, Reject: func(x reader.Rejection) { rejected = append(rejected, x) }}
	var reports reader.ReportReader
	got, err := reports.Read(data, &o)
	var twins []reader.Rejection
	want, twinErr := twinReport(m, agent, reportTime, func(x reader.Rejection) { twins = append(twins, x) })
	if (err == nil) != (twinErr == nil) || (err == nil && (!reflect.DeepEqual(got, want) || !reflect.DeepEqual(rejected, twins))) {
		t.Errorf("read %+v, %v, %v\ntwin %+v, %v, %v", got, rejected, err, want, twins, twinErr)
	}
	again := len(rejected)
	second, secondErr := reports.Read(data, &o) // with names that are known by now
	if (err == nil) != (secondErr == nil) || !reflect.DeepEqual(got, second) || !reflect.DeepEqual(rejected[:again], rejected[again:]) {
		t.Errorf("read again it is %+v, %v, and was %+v, %v", second, secondErr, got, err)
	}
	return got, rejected[:again], err
}

func goodStats() *endpointv3.ClusterStats {
	return &endpointv3.ClusterStats{
		ClusterName:        "outbound",
		ClusterServiceName: "checkout",
		LoadReportInterval: durationpb.New(5 * time.Second),
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
			Locality:                &corev3.Locality{Region: "us-east", Zone: "b", SubZone: "1"},
			Priority:                1,
			TotalIssuedRequests:     100,
			TotalSuccessfulRequests: 90,
			TotalErrorRequests:      5,
			TotalRequestsInProgress: 7,
			CpuUtilization:          &endpointv3.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: 10, TotalMetricValue: 5},
			LoadMetricStats: []*endpointv3.EndpointLoadMetricStats{
				{MetricName: "queue", NumRequestsFinishedWithMetric: 2, TotalMetricValue: 6},
				{MetricName: "named_metrics.queue", NumRequestsFinishedWithMetric: 1, TotalMetricValue: 3},
				{MetricName: "application_utilization", NumRequestsFinishedWithMetric: 4, TotalMetricValue: 2},
			},
			UpstreamEndpointStats: []*endpointv3.UpstreamEndpointStats{
				{Address: socket("10.0.0.1", 80), TotalIssuedRequests: 60, TotalErrorRequests: 5},
				{Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/x"}}}, TotalIssuedRequests: 40},
			},
		}},
	}
}

func socket(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func TestLoadReport(t *testing.T) {
	got, rejected := read(t, load.AgentGRPC, goodStats())
	if len(rejected) > 0 {
		t.Fatalf("rejected %v", rejected)
	}
	want := []load.ServiceReport{{
		Service:  "checkout",
		Interval: 5 * time.Second,
		Localities: []load.LocalityReport{{
			Locality: &isobar.Locality{Region: "us-east", Zone: "b", SubZone: "1"}, Priority: 1,
			Issued: 100, HasIssued: true, Succeeded: 90, Errors: 5, InProgress: 7,
			Details: &load.LocalityDetails{
				Metrics: []load.MetricSum{
					{Name: load.MetricApplication, Requests: 4, Total: 2},
					{Name: load.MetricCPU, Requests: 10, Total: 5},
					{Name: "queue", Requests: 3, Total: 9},
				},
				Endpoints: []load.EndpointReport{{Address: "10.0.0.1:80", Issued: 60, Errors: 5}},
			},
		}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestLoadReportDrops(t *testing.T) {
	stats := func(total uint64, by ...uint64) *endpointv3.ClusterStats {
		cs := &endpointv3.ClusterStats{ClusterName: "checkout", TotalDroppedRequests: total}
		for i, n := range by {
			cs.DroppedRequests = append(cs.DroppedRequests, &endpointv3.ClusterStats_DroppedRequests{Category: fmt.Sprint(9 - i), DroppedCount: n})
		}
		return cs
	}
	for _, tc := range []struct {
		name  string
		agent load.Agent
		stats *endpointv3.ClusterStats
		want  uint64
	}{
		{"gRPC's total holds the categories", load.AgentGRPC, stats(12, 7, 3), 12},
		{"Envoy's does, too", load.AgentEnvoy, stats(12, 7, 3), 12},
		{"categories without a total", load.AgentEnvoy, stats(0, 7, 3), 10},
		{"unknown: the total is larger", load.AgentUnknown, stats(12, 7, 3), 12},
		{"unknown: the categories are larger", load.AgentUnknown, stats(4, 7, 3), 10},
	} {
		got, _ := read(t, tc.agent, tc.stats)
		if len(got) != 1 || got[0].Dropped != tc.want {
			t.Errorf("%s: dropped %+v, want %d", tc.name, got, tc.want)
		}
		if by := got[0].DroppedBy; len(by) != 2 || by[0].Category != "8" || by[0].Count != 3 {
			t.Errorf("%s: by category %+v, want them sorted", tc.name, by)
		}
	}
}

// TestLoadReportClientBugs: what real clients do wrong is no reason to reject.
func TestLoadReportClientBugs(t *testing.T) {
	t.Run("an idle cluster has no localities", func(t *testing.T) {
		got, rejected := read(t, load.AgentEnvoy, &endpointv3.ClusterStats{ClusterName: "checkout", LoadReportInterval: durationpb.New(time.Second)})
		if len(got) != 1 || len(rejected) > 0 {
			t.Errorf("got %v, rejected %v", got, rejected)
		}
	})
	t.Run("an empty heartbeat", func(t *testing.T) {
		if got, rejected := read(t, load.AgentGRPC); len(got) > 0 || len(rejected) > 0 {
			t.Errorf("got %v, rejected %v", got, rejected)
		}
	})
	t.Run("no interval and nothing issued", func(t *testing.T) {
		cs := goodStats()
		cs.LoadReportInterval = nil
		cs.UpstreamLocalityStats[0].TotalIssuedRequests = 0
		got, _ := read(t, load.AgentEnvoy, cs)
		if len(got) != 1 || got[0].Interval != 0 || got[0].Localities[0].HasIssued {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("the time since the year 1", func(t *testing.T) {
		cs := goodStats()
		cs.LoadReportInterval = durationpb.New(math.MaxInt64)
		got, rejected := read(t, load.AgentGRPC, cs)
		if len(got) != 1 || got[0].Interval != 0 || len(rejected) > 0 {
			t.Errorf("got %+v, rejected %+v; want it without an interval", got, rejected)
		}
	})
	t.Run("no locality", func(t *testing.T) {
		cs := goodStats()
		cs.UpstreamLocalityStats[0].Locality = nil
		if got, _ := read(t, load.AgentGRPC, cs); len(got) != 1 || got[0].Localities[0].Locality != nil {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("one cluster twice, by service", func(t *testing.T) {
		other := goodStats()
		other.ClusterServiceName = "account"
		got, _ := read(t, load.AgentGRPC, goodStats(), other, goodStats())
		if len(got) != 3 || got[0].Service != "account" || got[1].Service != "checkout" || got[2].Service != "checkout" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("null items", func(t *testing.T) {
		cs := goodStats()
		cs.UpstreamLocalityStats = append(cs.UpstreamLocalityStats, nil)
		cs.DroppedRequests = append(cs.DroppedRequests, nil)
		cs.UpstreamLocalityStats[0].LoadMetricStats = append(cs.UpstreamLocalityStats[0].LoadMetricStats, nil)
		cs.UpstreamLocalityStats[0].UpstreamEndpointStats = append(cs.UpstreamLocalityStats[0].UpstreamEndpointStats, nil)
		if got, _ := read(t, load.AgentGRPC, nil, cs); len(got) != 1 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestLoadReportRejects(t *testing.T) {
	first := func(cs *endpointv3.ClusterStats) *endpointv3.UpstreamLocalityStats {
		return cs.GetUpstreamLocalityStats()[0]
	}
	for _, tc := range []struct {
		name  string
		spoil func(cs *endpointv3.ClusterStats)
		code  rpc.RejectCode
		kept  bool // the entry stays, only a part of it goes
	}{
		{"no name", func(cs *endpointv3.ClusterStats) { cs.ClusterName, cs.ClusterServiceName = "", "" }, rpc.RejectName, false},
		{"long name", func(cs *endpointv3.ClusterStats) { cs.ClusterServiceName = strings.Repeat("x", 2000) }, rpc.RejectName, false},
		{"negative interval", func(cs *endpointv3.ClusterStats) { cs.LoadReportInterval = durationpb.New(-time.Second) }, rpc.RejectInterval, false},
		{"interval of years", func(cs *endpointv3.ClusterStats) { cs.LoadReportInterval.Seconds = 1e9 }, rpc.RejectInterval, false},
		{"invalid interval", func(cs *endpointv3.ClusterStats) { cs.LoadReportInterval.Nanos = -5 }, rpc.RejectInterval, false},
		{"issued 2^64-1", func(cs *endpointv3.ClusterStats) { first(cs).TotalIssuedRequests = math.MaxUint64 }, rpc.RejectCounter, false},
		{"succeeded 2^64-1", func(cs *endpointv3.ClusterStats) { first(cs).TotalSuccessfulRequests = math.MaxUint64 }, rpc.RejectCounter, false},
		{"errors 2^64-1", func(cs *endpointv3.ClusterStats) { first(cs).TotalErrorRequests = math.MaxUint64 }, rpc.RejectCounter, false},
		{"in progress 2^64-1", func(cs *endpointv3.ClusterStats) { first(cs).TotalRequestsInProgress = math.MaxUint64 }, rpc.RejectCounter, true},
		{"dropped 2^64-1", func(cs *endpointv3.ClusterStats) { cs.TotalDroppedRequests = math.MaxUint64 }, rpc.RejectCounter, false},
		{"a category of 2^64-1", func(cs *endpointv3.ClusterStats) {
			cs.DroppedRequests = []*endpointv3.ClusterStats_DroppedRequests{{DroppedCount: math.MaxUint64}}
		}, rpc.RejectCounter, false},
		{"a billion a second", func(cs *endpointv3.ClusterStats) { first(cs).TotalIssuedRequests = 5e9 }, rpc.RejectCounter, false},
		{"an endpoint's 2^64-1", func(cs *endpointv3.ClusterStats) {
			first(cs).UpstreamEndpointStats[0].TotalIssuedRequests = math.MaxUint64
		}, rpc.RejectCounter, false},
		{"priority 129", func(cs *endpointv3.ClusterStats) { first(cs).Priority = 129 }, rpc.RejectLocality, false},
		{"long zone", func(cs *endpointv3.ClusterStats) { first(cs).Locality.Zone = strings.Repeat("x", 300) }, rpc.RejectLocality, false},
		{"too many localities", func(cs *endpointv3.ClusterStats) {
			cs.UpstreamLocalityStats = make([]*endpointv3.UpstreamLocalityStats, 2000)
		}, rpc.RejectSize, false},
		{"too many categories", func(cs *endpointv3.ClusterStats) {
			cs.DroppedRequests = make([]*endpointv3.ClusterStats_DroppedRequests, 100)
		}, rpc.RejectSize, false},
		{"too many endpoints", func(cs *endpointv3.ClusterStats) {
			first(cs).UpstreamEndpointStats = make([]*endpointv3.UpstreamEndpointStats, 20_000)
		}, rpc.RejectSize, false},
		{"too many metrics", func(cs *endpointv3.ClusterStats) {
			first(cs).LoadMetricStats = make([]*endpointv3.EndpointLoadMetricStats, 100)
		}, rpc.RejectSize, true},
		{"NaN", func(cs *endpointv3.ClusterStats) { first(cs).CpuUtilization.TotalMetricValue = math.NaN() }, rpc.RejectMetric, true},
		{"infinity", func(cs *endpointv3.ClusterStats) { first(cs).CpuUtilization.TotalMetricValue = math.Inf(-1) }, rpc.RejectMetric, true},
		{"negative utilization", func(cs *endpointv3.ClusterStats) { first(cs).CpuUtilization.TotalMetricValue = -1 }, rpc.RejectMetric, true},
		{"utilization of 1000", func(cs *endpointv3.ClusterStats) { first(cs).CpuUtilization.TotalMetricValue = 10_000 }, rpc.RejectMetric, true},
		{"a total over no requests", func(cs *endpointv3.ClusterStats) { first(cs).CpuUtilization.NumRequestsFinishedWithMetric = 0 }, rpc.RejectMetric, true},
		{"a metric over 2^64-1 requests", func(cs *endpointv3.ClusterStats) {
			first(cs).CpuUtilization.NumRequestsFinishedWithMetric = math.MaxUint64
		}, rpc.RejectMetric, true},
		{"a metric without a name", func(cs *endpointv3.ClusterStats) { first(cs).LoadMetricStats[0].MetricName = "" }, rpc.RejectMetric, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bad := goodStats()
			tc.spoil(bad)
			good := goodStats()
			good.ClusterServiceName = "good"
			got, rejected := read(t, load.AgentGRPC, bad, good)
			if len(rejected) != 1 || rejected[0].Code != tc.code || rejected[0].Text == "" {
				t.Errorf("rejected %+v, want one of %q", rejected, tc.code)
			}
			want := 1
			if tc.kept {
				want = 2
			}
			if len(got) != want || got[want-1].Service != "good" {
				t.Errorf("kept %d entries, want %d", len(got), want)
			}
		})
	}
}

func TestLoadReportOfTooManyClusters(t *testing.T) {
	m := &loadstatsv3.LoadStatsRequest{ClusterStats: make([]*endpointv3.ClusterStats, 20_001)}
	_, _, err := readBoth(t, m, load.AgentGRPC)
	if err == nil || !strings.Contains(err.Error(), "cluster_stats") {
		t.Errorf("error %v, want one that names cluster_stats", err)
	}
}

func TestReportsBuiltToGrowAreRefused(t *testing.T) {
	// A locality of two bytes becomes 70 times as much in memory.
	cluster := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "checkout")
	for range 1000 {
		cluster = protowire.AppendBytes(protowire.AppendTag(cluster, 2, protowire.BytesType), nil)
	}
	var data []byte
	for range 300 {
		data = protowire.AppendBytes(protowire.AppendTag(data, 2, protowire.BytesType), cluster)
	}
	var reports reader.ReportReader
	if _, err := reports.Read(data, &reader.ReportOptions{}); !errors.Is(err, rpc.ErrMessage) || !strings.Contains(err.Error(), "more than 250000 parts") {
		t.Errorf("%d bytes of empty localities: %v", len(data), err)
	}
}

func TestMalformedReports(t *testing.T) {
	good, err := proto.Marshal(&loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{goodStats()}})
	if err != nil {
		t.Fatal(err)
	}
	var reports reader.ReportReader
	for n := range good {
		var m loadstatsv3.LoadStatsRequest
		cut := good[:n]
		if _, err := reports.Read(cut, &reader.ReportOptions{Endpoints: true}); (err == nil) != (proto.Unmarshal(cut, &m) == nil) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
	bad := bytes.ReplaceAll(good, []byte("us-east"), []byte("us-\xff\xfe\xfd\xfc"))
	if _, err := reports.Read(bad, &reader.ReportOptions{}); !errors.Is(err, rpc.ErrMessage) {
		t.Errorf("a name that is no UTF-8: %v", err)
	}
}

// Most reports hold counters and nothing else, and are read a faster way.
func TestLoadReportOfCountersOnly(t *testing.T) {
	stats := goodStats()
	l := stats.GetUpstreamLocalityStats()[0]
	l.CpuUtilization, l.LoadMetricStats, l.UpstreamEndpointStats = nil, nil, nil
	got, rejected := read(t, load.AgentGRPC, stats)
	want := []load.ServiceReport{{
		Service: "checkout", Interval: 5 * time.Second,
		Localities: []load.LocalityReport{{
			Locality: &isobar.Locality{Region: "us-east", Zone: "b", SubZone: "1"}, Priority: 1,
			Issued: 100, HasIssued: true, Succeeded: 90, Errors: 5, InProgress: 7,
		}},
	}}
	if len(rejected) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v\nrejected %v", got, want, rejected)
	}
}
