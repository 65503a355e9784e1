//go:build !race

package relay_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
)

// TestLargeReportsInParts asserts that no message of a follower with many clients and checkers exceeds
// what a connection takes, and that the leader gets all of it.
func TestLargeReportsInParts(t *testing.T) {
	const streams, reports, votes = 5, 6, 40_000
	large := load.Report{Arrived: other.Add(-time.Second)}
	for i := range 1000 {
		large.Services = append(large.Services, load.ServiceReport{Service: strings.Repeat("s", 500) + strconv.Itoa(i), Interval: time.Second})
	}
	much := &here{}
	for i := range streams {
		much.windows = append(much.windows, load.StreamWindow{
			Stream: load.StreamID(i + 1), Node: load.Node{ID: "client", Locality: usA}, Opened: other.Add(-time.Minute), Closed: other,
			Reports: slices.Repeat([]load.Report{large}, reports),
		})
	}
	for i := range votes {
		much.votes = append(much.votes, health.Report{Checker: "checker", Service: "checkout", Locality: usA, Address: "10.0.0.1:" + strconv.Itoa(i), Arrived: other})
	}
	leader, follower := newEnd(true, &here{}), newEnd(false, much)
	for _, o := range follower.Observations(other, false, false) {
		if size := proto.Size(o); size > 2<<20 {
			t.Errorf("a message has %d bytes", size)
		}
	}
	pass(t, follower, leader, 1, other, clock)
	got := leader.Windows(clock)
	if len(got) != streams {
		t.Fatalf("the leader got %d streams", len(got))
	}
	for _, w := range got {
		if len(w.Reports) != reports || !w.Closed.Equal(clock) {
			t.Errorf("a stream has %d reports, closed at %v", len(w.Reports), w.Closed)
		}
	}
	if got := leader.Votes(clock); len(got) != votes {
		t.Errorf("the leader got %d votes", len(got))
	}
}

// TestReportTooLargeForAMessage asserts that a load report which no connection takes is alone in its
// message, so that the leader gets everything else: other reports of the same client, those of
// other clients, and the end of the stream.
func TestReportTooLargeForAMessage(t *testing.T) {
	const most = 4 << 20
	small := load.Report{Arrived: other, Services: []load.ServiceReport{{Service: "checkout", Interval: time.Second}}}
	large := load.Report{Arrived: other}
	for i := range 400 {
		s := load.ServiceReport{Service: "s" + strconv.Itoa(i), Interval: time.Second}
		for j := range 1000 {
			s.Localities = append(s.Localities, load.LocalityReport{Locality: &isobar.Locality{Region: "r" + strconv.Itoa(j)}, Issued: 1, HasIssued: true})
		}
		large.Services = append(large.Services, s)
	}
	node := load.Node{ID: "client", Locality: usA}
	much := &here{windows: []load.StreamWindow{
		{Stream: 1, Node: node, Opened: other, Reports: []load.Report{small}},
		{Stream: 2, Node: node, Opened: other, Closed: other, Reports: []load.Report{small, large, small}},
		{Stream: 3, Node: node, Opened: other, Closed: other, Reports: []load.Report{large}},
		{Stream: 4, Node: node, Opened: other, Reports: []load.Report{small}},
	}}
	leader, left := newEnd(true, &here{}), 0
	for _, o := range newEnd(false, much).Observations(other, false, false) {
		if proto.Size(o) > most {
			left++
			continue
		}
		if err := leader.Receive("b", 1, o, clock); err != nil {
			t.Fatal(err)
		}
	}
	if left != 2 {
		t.Errorf("%d messages can't be sent, want those of the two large reports", left)
	}
	var reports []int
	var closed []bool
	for _, w := range leader.Windows(clock) {
		reports, closed = append(reports, len(w.Reports)), append(closed, !w.Closed.IsZero())
	}
	if !slices.Equal(reports, []int{1, 2, 0, 1}) || !slices.Equal(closed, []bool{false, true, true, false}) {
		t.Errorf("the streams have %v reports, and are closed: %v", reports, closed)
	}
}
