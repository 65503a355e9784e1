package load_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// invented is a report of entries for one service, each with localities that
// nobody named before.
func invented(serial *int, entries, localities int) load.Report {
	r := load.Report{Arrived: at(5)}
	for range entries {
		s := load.ServiceReport{Service: "checkout", Interval: interval}
		for range localities {
			*serial++
			s.Localities = append(s.Localities, load.LocalityReport{
				Locality: &isobar.Locality{Region: fmt.Sprint("r", 1_000_000-*serial)}, Issued: 1, HasIssued: true,
			})
		}
		r.Services = append(r.Services, s)
	}
	return r
}

// The loop that adds reports serves everybody: no single report may hold it
// up. Unbounded, this one took 44 s.
func TestInventedLocalitiesAreBounded(t *testing.T) {
	tab := table()
	serial := 0
	tab.Merge([]load.StreamWindow{{Stream: 1, Node: load.Node{ID: "a", Locality: zoneA}, Opened: start, Reports: []load.Report{invented(&serial, 100, 1024)}}})
	s := tab.Snapshot(at(5)).Service("checkout")
	if n := len(s.Sites); n != 1024 {
		t.Errorf("%d localities are kept of one stream, want 1024", n)
	}
}

// Nor does a slow collector cost more memory the longer it is slow.
func TestMergedReportsAreBounded(t *testing.T) {
	var w load.StreamWindow
	serial := 0
	for range 20 {
		w.Append(invented(&serial, 1, 500), 1)
	}
	if n := len(w.Reports[0].Services[0].Localities); n != 1024 {
		t.Errorf("%d localities in one entry, want 1024", n)
	}
	for i := range 5 {
		r := load.Report{}
		for j := range 10_000 {
			r.Services = append(r.Services, load.ServiceReport{Service: fmt.Sprint("s", i, "-", j)})
			r.Refused = append(r.Refused, fmt.Sprint("r", i, "-", j))
		}
		w.Append(r, 1)
		w.Append(r, 1)
	}
	if n, m := len(w.Reports[0].Services), len(w.Reports[0].Refused); n != 20_000 || m != 20_000 {
		t.Errorf("%d entries and %d refused services in one report, want 20000 each", n, m)
	}
	if r := w.Reports[0].Refused; !slices.IsSorted(r) || len(slices.Compact(slices.Clone(r))) != len(r) {
		t.Error("what is refused of several reports is not a sorted set")
	}
	many := load.Report{Services: []load.ServiceReport{{Service: "checkout", Localities: []load.LocalityReport{{}}}}}
	l := &many.Services[0].Localities[0]
	w = load.StreamWindow{}
	for i := range 5 {
		l.Details = &load.LocalityDetails{}
		many.Services[0].DroppedBy = nil
		for j := range 16_384 {
			l.Details.Endpoints = append(l.Details.Endpoints, load.EndpointReport{Address: fmt.Sprint(i, "-", j), Issued: 1})
		}
		for j := range 64 {
			many.Services[0].DroppedBy = append(many.Services[0].DroppedBy, load.DropCount{Category: fmt.Sprint(i, "-", j), Count: 1})
		}
		w.Append(many, 1)
	}
	s := &w.Reports[0].Services[0]
	if n, m := len(s.Localities[0].Details.Endpoints), len(s.DroppedBy); n != 65_536 || m != 256 {
		t.Errorf("%d endpoints and %d categories, want 65536 and 256", n, m)
	}
}
