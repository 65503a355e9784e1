package reader_test

import (
	"math"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Counters that no client can reach are refused one by one, also in reports
// that hold nothing else and are read a faster way.
func TestAbsurdCountersOnly(t *testing.T) {
	for name, set := range map[string]func(*endpointv3.UpstreamLocalityStats){
		"issued":     func(l *endpointv3.UpstreamLocalityStats) { l.TotalIssuedRequests = math.MaxUint64 },
		"successful": func(l *endpointv3.UpstreamLocalityStats) { l.TotalSuccessfulRequests = math.MaxUint64 },
		"error":      func(l *endpointv3.UpstreamLocalityStats) { l.TotalErrorRequests = math.MaxUint64 },
		"in progress": func(l *endpointv3.UpstreamLocalityStats) {
			l.TotalRequestsInProgress, l.TotalIssuedRequests = math.MaxUint64, 0
		},
	} {
		stats := goodStats()
		l := stats.GetUpstreamLocalityStats()[0]
		l.CpuUtilization, l.LoadMetricStats, l.UpstreamEndpointStats = nil, nil, nil
		set(l)
		if got, rejected := read(t, load.AgentEnvoy, stats); len(got) > 0 || len(rejected) != 1 || rejected[0].Code != rpc.RejectCounter {
			t.Errorf("%s: got %+v, rejected %v", name, got, rejected)
		}
	}
}

// A number in progress of a client that tells what it issued is refused alone: if the whole
// cluster were left out, what gRPC sent would be taken for nothing.
func TestAbsurdGaugeAlone(t *testing.T) {
	for _, tt := range []struct {
		agent  load.Agent
		issued uint64
	}{{load.AgentEnvoy, 100}, {load.AgentGRPC, 100}, {load.AgentGRPC, 0}} {
		stats := goodStats()
		l := stats.GetUpstreamLocalityStats()[0]
		l.TotalRequestsInProgress, l.TotalIssuedRequests = math.MaxUint64, tt.issued
		got, rejected := read(t, tt.agent, stats)
		if len(rejected) != 1 || rejected[0].Code != rpc.RejectCounter || !strings.Contains(rejected[0].Text, "total_requests_in_progress") {
			t.Errorf("%+v: rejected %v", tt, rejected)
		}
		if len(got) != 1 || len(got[0].Localities) != 1 || got[0].Localities[0].InProgress != 0 || got[0].Localities[0].Issued != tt.issued {
			t.Errorf("%+v: got %+v", tt, got)
		}
	}
}
