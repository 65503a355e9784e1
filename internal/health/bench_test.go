package health_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// BenchmarkObserve takes one report interval of 100 checkers on 20,000
// endpoints, in one message per checker, while 1% of them change.
func BenchmarkObserve(b *testing.B) {
	var services []isobar.Service
	var at []isobar.Locality
	for i := range 10 {
		at = append(at, isobar.Locality{Region: "r", Zone: fmt.Sprint(i)})
	}
	for i := range 200 {
		services = append(services, service(fmt.Sprintf("s%03d", i), 20, at[i%5:i%5+5]...))
	}
	w := newWorld(b, topology(services...), checkersIn(10, at...))
	w.run(2 * interval)
	var messages [][]health.Report
	for _, d := range w.placement.Designations {
		var m []health.Report
		for _, k := range d.Endpoints {
			m = append(m, health.Report{Checker: d.Checker, Service: k.Service, Address: k.Address, Status: isobar.Healthy})
		}
		messages = append(messages, m)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		for i, m := range messages {
			now := w.now.Add(time.Duration(i) * interval / 100)
			for j := range m {
				m[j].Arrived, m[j].Status = now, isobar.Healthy
				if (j+i*7)%100 == 0 && n%2 == 0 {
					m[j].Status = isobar.Unhealthy
				}
			}
			w.table.Observe(health.Observation{Now: now, Reports: m, Checkers: w.checkers, Placement: w.placement, Topology: w.topology})
		}
		w.now = w.now.Add(interval)
	}
}

// BenchmarkStatus asks for the health of all endpoints as the planner does: one
// service in ten of 1,000 has checkers.
func BenchmarkStatus(b *testing.B) {
	var checked, all []isobar.Service
	for i := range 1000 {
		svc := service(fmt.Sprintf("s%03d", i), 10, zoneA, zoneB)
		if all = append(all, svc); i%10 == 0 {
			checked = append(checked, svc)
		}
	}
	w := newWorld(b, topology(checked...), checkersIn(1, zoneA, zoneB, zoneC))
	w.run(2 * interval)
	table := health.Table{}.WithVerdicts(w.table.Verdicts())
	for b.Loop() {
		for i := range all {
			known := table.Of(all[i].Name)
			for _, l := range all[i].Localities {
				for j := range l.Endpoints {
					known.Status(&l.Endpoints[j])
				}
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/20_000, "ns/endpoint")
}
