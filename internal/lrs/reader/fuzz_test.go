package reader_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
)

// fuzzReader remembers names from one input to the next, as it does from one
// stream to the other, and each report takes the memory of the one before.
var (
	fuzzReader reader.ReportReader
	fuzzBuffer reader.ReportBuffer
)

// FuzzLoadReport feeds bytes from the wire through validation into a load
// table: nothing may panic, what is read is what the generated decoder reads,
// and nothing that comes out may be negative, NaN,
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
		entries := 0
		var rejected []reader.Rejection
		o := reader.ReportOptions{
			Agent: load.Agent(agent % 3), Arrived: reportTime.Add(time.Second), Endpoints: true, Buffer: &fuzzBuffer,
			Reject: func(x reader.Rejection) {
				entries++
				rejected = append(rejected, x)
				if x.Text == "" || x.Code == "" {
					t.Errorf("a rejection without a reason: %+v", x)
				}
			},
		}
		r, err := fuzzReader.Read(data, &o)
		var m loadstatsv3.LoadStatsRequest
		if proto.Unmarshal(data, &m) != nil {
			return // what it holds that nobody reads is wrong, or all of it
		}
		var twins []reader.Rejection
		want, twinErr := twinReport(&m, o.Agent, o.Arrived, func(x reader.Rejection) { twins = append(twins, x) })
		if (err == nil) != (twinErr == nil) || (err == nil && (!reflect.DeepEqual(r, want) || !reflect.DeepEqual(rejected, twins))) {
			t.Errorf("read %+v, %v, %v\ntwin %+v, %v, %v", r, rejected, err, want, twins, twinErr)
		}
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
