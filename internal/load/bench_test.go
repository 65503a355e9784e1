package load_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// BenchmarkTick merges and sums one interval of 5,000 streams in 10 zones that
// report on 10 of 1,000 services with 3 localities each.
func BenchmarkTick(b *testing.B) {
	const streams, perStream, services = 5_000, 10, 1_000
	tab := table()
	windows := make([]load.StreamWindow, streams)
	for i := range windows {
		var r load.Report
		for j := range perStream {
			s := load.ServiceReport{Service: fmt.Sprintf("s%03d", (i*7+j*101)%services), Interval: interval}
			for z := range 3 {
				s.Localities = append(s.Localities, load.LocalityReport{Locality: &isobar.Locality{Region: "r", Zone: fmt.Sprint(z)}, Issued: 100, HasIssued: true})
			}
			r.Services = append(r.Services, s)
		}
		windows[i] = load.StreamWindow{
			Stream: load.StreamID(i + 1), Opened: start, Reports: []load.Report{r},
			Node: load.Node{ID: fmt.Sprint(i), Cluster: "web", Locality: isobar.Locality{Region: "r", Zone: fmt.Sprint(i % 10)}, Agent: load.AgentGRPC},
		}
	}
	now := start
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(interval)
		for i := range windows {
			windows[i].Reports[0].Arrived = now.Add(-time.Duration(i) * time.Millisecond / 2)
		}
		tab.Merge(windows)
		tab.Snapshot(now)
	}
}
