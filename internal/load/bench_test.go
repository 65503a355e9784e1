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

// BenchmarkInventedLocalities merges and sums one interval of 1,000 streams in 10 zones that each report on one service
// in 900 localities with names of 600 bytes that no other one names. Half of the requests may fail.
func BenchmarkInventedLocalities(b *testing.B) {
	const streams, each = 1_000, 900
	for _, name := range []string{"succeeding", "failing"} {
		b.Run(name, func(b *testing.B) {
			tab := table()
			windows := make([]load.StreamWindow, streams)
			for i := range windows {
				s := load.ServiceReport{Service: "checkout", Interval: interval}
				for j := range each {
					l := load.LocalityReport{Issued: 10, HasIssued: true, Succeeded: 10}
					l.Locality = &isobar.Locality{Region: fmt.Sprintf("%0200d", i), Zone: fmt.Sprintf("%0200d", j), SubZone: fmt.Sprintf("%0200d", j)}
					if name == "failing" && (i+j)%2 == 0 {
						l.Succeeded, l.Errors = 0, 10
					}
					s.Localities = append(s.Localities, l)
				}
				windows[i] = load.StreamWindow{
					Stream: load.StreamID(i + 1), Opened: start, Reports: []load.Report{{Services: []load.ServiceReport{s}}}, Account: fmt.Sprint(i % 10),
					Node: load.Node{ID: fmt.Sprint(i), Cluster: "web", Locality: isobar.Locality{Region: "us", Zone: fmt.Sprint(i % 10)}, Agent: load.AgentEnvoy},
				}
			}
			now := start
			for b.Loop() {
				now = now.Add(interval)
				for i := range windows {
					windows[i].Reports[0].Arrived = now
				}
				tab.Merge(windows)
				tab.Snapshot(now)
			}
		})
	}
}
