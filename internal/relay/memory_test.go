//go:build !race

package relay_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/load"
)

// flooding returns a replica whose clients of one address report 2 MB each, and one of another address as usual.
func flooding(clients int) *here {
	h := reporting()
	h.windows[0].Account, h.windows[0].Identified = "192.0.2.1", false
	large := load.Report{Arrived: other}
	for i := range 2000 {
		large.Services = append(large.Services, load.ServiceReport{Service: strings.Repeat("s", 1000) + strconv.Itoa(i), Interval: time.Second})
	}
	for i := range clients {
		h.windows = append(h.windows, load.StreamWindow{
			Stream: load.StreamID(100 + i), Node: load.Node{ID: "hostile", Locality: usA}, Account: "192.0.2.66", Opened: other,
			Reports: []load.Report{large},
		})
	}
	return h
}

// TestKeptReportsAreBounded asserts that the reports which a replica keeps for a new leader take no more memory
// than they may for one address, the newest first, and that those of other clients are kept for all six calls.
func TestKeptReportsAreBounded(t *testing.T) {
	const most, calls = 32 << 20, 8
	follower := newEnd(false, flooding(24)) // more than that in one call
	for i := range calls {
		follower.Observations(other.Add(time.Duration(i)*time.Second), false, false)
	}
	follower.here.windows = nil
	honest, hostile, oldest := 0, 0, time.Duration(0)
	for _, o := range follower.Observations(other.Add(calls*time.Second), false, true) {
		for _, w := range o.GetWindows() {
			if w.GetNodeId() == "client" {
				honest++
				continue
			}
			hostile += proto.Size(w)
			for _, r := range w.GetReports() {
				oldest = max(oldest, time.Duration(r.GetAgeUs())*time.Microsecond-calls*time.Second)
			}
		}
	}
	if honest != 6 {
		t.Errorf("%d calls of another client are kept, want 6", honest)
	}
	if hostile > most || hostile < most/2 {
		t.Errorf("%d bytes of the address are kept, want at most %d", hostile, most)
	}
	if oldest > 0 {
		t.Errorf("reports older by %v than those of the last call are kept", oldest)
	}
	if follower.Unkept() == 0 {
		t.Error("it counts no window that it did not keep")
	}
}

// TestReportsTakenAreBounded asserts that a leader takes no more reports of one address from a replica than it
// may until it decides, that it knows the streams nevertheless, and takes the reports of others.
func TestReportsTakenAreBounded(t *testing.T) {
	const most, clients = 48 << 20, 30
	leader, follower := newEnd(true, &here{}), newEnd(false, flooding(clients))
	for turn := range 2 {
		pass(t, follower, leader, 1, other, clock)
		windows, honest, bytes := leader.Windows(clock), 0, 0
		for i := range windows {
			if windows[i].Node.ID == "client" {
				honest += len(windows[i].Reports)
			}
			for _, r := range windows[i].Reports {
				for _, s := range r.Services {
					bytes += len(s.Service)
				}
			}
		}
		if len(windows) != clients+1 || honest != 1 {
			t.Errorf("turn %d: %d streams, %d reports of another client; want %d and 1", turn, len(windows), honest, clients+1)
		}
		if bytes > most || bytes < most/2 {
			t.Errorf("turn %d: %d bytes are taken of the address, want at most %d", turn, bytes, most)
		}
	}
	if leader.Unkept() == 0 {
		t.Error("it counts no window that it took without reports")
	}
}
