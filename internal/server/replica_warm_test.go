package server_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// unhurried is the protocol between replicas for a test whose leader has to stay on a
// busy machine.
var unhurried = replica.Timing{
	Heartbeat: 400 * time.Millisecond, Deadline: 4 * time.Second, Renew: 500 * time.Millisecond, Campaign: 300 * time.Millisecond,
	EngineTimeout: time.Second, Gather: 300 * time.Millisecond, Rest: 5 * time.Second,
}

// loadStream opens a load report stream of a client in us/a to a replica, and returns it once
// it is accepted.
func (m *member) loadStream(node string) loadstatsv3.LoadReportingService_StreamLoadStatsClient {
	m.t.Helper()
	s, err := loadstatsv3.NewLoadReportingServiceClient(m.dial()).StreamLoadStats(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	if err := s.Send(&loadstatsv3.LoadStatsRequest{Node: nodeIn(node, "us/a")}); err != nil {
		m.t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		m.t.Fatal(err)
	}
	return s
}

// report opens a load report stream to a replica and reports once.
func (m *member) report(node string, issued uint64) {
	m.t.Helper()
	s := m.loadStream(node)
	stats := &endpointv3.ClusterStats{
		ClusterName: "checkout", LoadReportInterval: durationpb.New(10 * time.Second),
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
			Locality: protoLocality("us/a"), TotalIssuedRequests: issued, TotalSuccessfulRequests: issued,
		}},
	}
	if err := s.Send(&loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{stats}}); err != nil {
		m.t.Fatal(err)
	}
}

// decides returns the version of the plan and the demand that it was decided by,
// requests/s, as far as clients reported it; 0 where nothing was decided.
func (m *member) decides() (version uint64, reported float64) {
	p := m.server.Plan()
	if p == nil {
		return 0, 0
	}
	s, ok := p.Service("checkout")
	if !ok || s.Hold != "" || s.Load == nil {
		return 0, 0
	}
	for i := range s.Load.Sources {
		reported += s.Load.Sources[i].Raw
	}
	return p.Version, reported
}

// TestNewLeaderDecidesAtOnce asserts that a new leader decides at its first tick by what
// clients of all replicas reported before, and does not wait until they report again.
func TestNewLeaderDecidesAtOnce(t *testing.T) {
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1], "c=" + listen[2]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	begin := func(n int) *member {
		text := replicaConfig(t, string(rune('a'+n)), listen[n], election, checkoutAndCart, peers...)
		text = strings.Replace(text, "report_interval: 1s", "report_interval: 10s", 1)
		return startMemberWith(t, text, server.Options{ReplicaTiming: unhurried})
	}
	a := begin(0)
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b, c := begin(1), begin(2)
	testhelp.Eventually(t, "b and c follow", func() bool { return b.group().Removes && c.group().Removes })
	b.report("client-b", 1000)
	c.report("client-c", 2000)
	testhelp.Eventually(t, "a decides by the reports", func() bool {
		_, reported := a.decides()
		return reported > 250
	})
	a.end()
	leader := b
	testhelp.Eventually(t, "another one leads", func() bool {
		if c.group().Role == "leader" {
			leader = c
		}
		return leader.group().Role == "leader"
	})
	began := time.Now()
	testhelp.Eventually(t, "its first decision", func() bool {
		version, reported := leader.decides()
		return version > 0 && reported > 250
	})
	took := time.Since(began)
	if took > 5*time.Second { // clients report every 10 s
		t.Errorf("its first decision took %v", took)
	}
	t.Logf("the first decision of the new leader took %v", took)
}
