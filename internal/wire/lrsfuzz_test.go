package wire_test

import (
	"math"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/wire"
)

// FuzzLoadReport feeds bytes from the wire through validation into a load
// table: nothing may panic, and nothing that comes out may be negative, NaN,
// infinite or more than a client can send.
func FuzzLoadReport(f *testing.F) {
	for _, m := range []*loadstatsv3.LoadStatsRequest{
		{},
		{ClusterStats: []*endpointv3.ClusterStats{goodStats()}},
		{ClusterStats: []*endpointv3.ClusterStats{goodStats(), goodStats()}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(2))
	}
	f.Fuzz(func(t *testing.T, data []byte, agent uint8) {
		var m loadstatsv3.LoadStatsRequest
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		entries := 0
		r, err := wire.LoadReport(&m, load.Agent(agent%3), reportTime.Add(time.Second), func(x wire.Rejection) {
			entries++
			if x.Text == "" || x.Code == "" {
				t.Errorf("a rejection without a reason: %+v", x)
			}
		})
		if err != nil {
			return
		}
		if len(r.Services)+entries < len(m.GetClusterStats()) {
			t.Errorf("%d entries in, %d out and %d rejections", len(m.GetClusterStats()), len(r.Services), entries)
		}
		table := load.NewTable(load.Settings{}, nil, reportTime)
		table.Merge([]load.StreamWindow{{Stream: 1, Opened: reportTime, Reports: []load.Report{r}}})
		s := table.Snapshot(r.Arrived)
		for i := range s.Services {
			for _, src := range s.Services[i].Sources {
				sane(t, "demand", src.Demand)
				sane(t, "errors", src.Errors)
				for _, l := range src.Landed {
					sane(t, "landed", l.Issued)
					sane(t, "in progress", l.InProgress)
				}
			}
			for _, l := range s.Services[i].Sites {
				sane(t, "utilization", l.Utilization)
			}
		}
	})
}

func sane(t *testing.T, what string, v float64) {
	t.Helper()
	if math.IsNaN(v) || v < 0 || v > 1e18 {
		t.Errorf("%s = %v", what, v)
	}
}
