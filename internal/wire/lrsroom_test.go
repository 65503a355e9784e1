package wire_test

import (
	"reflect"
	"testing"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/wire"
)

// One room takes reports of all sizes, one after the other, and nothing of one
// shows in the next.
func TestRoomsAreUsedAgain(t *testing.T) {
	var (
		reader wire.ReportReader
		room   wire.ReportRoom
	)
	for i, size := range []struct{ clusters, endpoints int }{
		{10, 20}, {10, 20}, {10, 20}, // the same again and again
		{1, 3000}, {30, 300}, {30, 600}, // ever larger, the last beyond what rooms keep
		{30, 0}, {1, 1}, {5, 0}, {1, 2}, {2, 1}, {1, 1}, {2, 2}, {2, 3}, {1, 1}, {1, 0}, // until the room is given back
		{20, 10}, {20, 10},
	} {
		data, known := largeReport(t, size.clusters, size.endpoints)
		var m loadstatsv3.LoadStatsRequest
		if err := proto.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		o := wire.ReportOptions{Agent: load.AgentEnvoy, Arrived: reportTime, Known: &known, Endpoints: true, Room: &room}
		got, _, err := reader.Read(data, &o)
		if err != nil {
			t.Fatal(err)
		}
		want, err := twinReport(&m, load.AgentEnvoy, reportTime, nil)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("report %d, of %d clusters with %d endpoints, is not what the twin makes of it (%v)", i, size.clusters, size.endpoints, err)
		}
	}
}

// A report like the one before costs no memory, with endpoints or without.
func TestReportsInUsedRoomsCostNoMemory(t *testing.T) {
	for _, endpoints := range []int{0, 20} {
		data, known := largeReport(t, 50, endpoints)
		var (
			reader wire.ReportReader
			room   wire.ReportRoom
		)
		o := wire.ReportOptions{Agent: load.AgentEnvoy, Arrived: reportTime, Known: &known, Endpoints: true, Room: &room}
		read := func() {
			if _, _, err := reader.Read(data, &o); err != nil {
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
