package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/health"
)

// Sizes of the fleet: 20,000 endpoints, each probed by 3 of 100 checkers.
const (
	services  = 200
	zones     = 10
	endpoints = 20 // of a service in each of half of the zones
	checkers  = 100
	probedBy  = 3
	interval  = time.Minute // longer than a run of the benchmark may take to go round
)

func zone(i int) isobar.Locality { return isobar.Locality{Region: "r", Zone: fmt.Sprint(i % zones)} }

func topology() *isobar.Topology {
	t := &isobar.Topology{Revision: 1}
	for s := range services {
		spec := isobar.Service{
			Name: fmt.Sprintf("service-%03d", s), Checkers: isobar.Checkers{Count: probedBy, Domains: 2},
			HealthChecks: []isobar.HealthCheck{{
				Protocol: isobar.CheckTCP, TCP: &isobar.TCPCheck{}, Interval: 5 * time.Second, Timeout: time.Second,
				UnhealthyThreshold: 2, HealthyThreshold: 1,
			}},
		}
		for z := range zones / 2 {
			l := isobar.ServiceLocality{Locality: zone(s + z)}
			for e := range endpoints {
				l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:8080", s, z, e), MaxRate: 100})
			}
			spec.Localities = append(spec.Localities, l)
		}
		t.Services = append(t.Services, spec)
	}
	t.Normalize()
	return t
}

// fleet is a server with its checkers, all told what to probe.
type fleet struct {
	b        *testing.B
	server   *hds.Server
	monitor  *health.Monitor
	topology *isobar.Topology
	streams  []*stream
	reports  [][2][]byte // of each stream: all well, and 1% down
	entries  int         // of all streams together
}

func newFleet(b *testing.B) *fleet {
	b.Helper()
	f := &fleet{
		b: b, topology: topology(), server: hds.New(hds.Options{Interval: func() time.Duration { return interval }}),
		monitor: health.NewMonitor(interval, interval, health.SavedMonitor{}, time.Now()),
	}
	for i := range checkers {
		f.streams = append(f.streams, enter(b, f.server, fmt.Sprintf("checker-%03d", i), zone(i)))
	}
	r := f.observe()
	f.server.Designate(r.Topology, f.monitor.Placement().Designations)
	for _, s := range f.streams {
		spec := <-s.told
		well, n := answer(b, spec, func(int) bool { return false })
		ill, _ := answer(b, spec, func(i int) bool { return i%100 == 0 })
		f.reports = append(f.reports, [2][]byte{well, ill})
		f.entries += n
	}
	if want := services * zones / 2 * endpoints * probedBy; f.entries != want {
		b.Fatalf("%d designations, want %d", f.entries, want)
	}
	return f
}

// observe has what was reported counted, as the control loop does.
func (f *fleet) observe() health.Reaction {
	now := time.Now()
	listed := f.server.Checkers(now)
	connected := make([]health.Checker, len(listed))
	for i := range listed {
		connected[i] = listed[i].Checker
	}
	r := f.monitor.Observe(health.Event{Now: now, Topology: f.topology, Reports: f.server.Collect(now), Connected: connected})
	if r.Ignored > 0 {
		f.b.Fatalf("%d reports do not count", r.Ignored)
	}
	return r
}

// send has checker i report, and returns when the server has booked it.
func (f *fleet) send(i, round int) { f.streams[i].say(f.reports[i][round%2]) }

// BenchmarkReport is the report of one checker on 600 endpoints: read from the
// wire, checked, and booked by endpoint; 1% of the endpoints change. Checkers
// take turns, so that none finds its memory in the processor's caches.
func BenchmarkReport(b *testing.B) {
	f := newFleet(b)
	b.SetBytes(int64(len(f.reports[0][0])))
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		f.send(n%checkers, n/checkers)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(float64(f.entries)/checkers), "ns/entry")
}

// BenchmarkInterval is all that comes in one report interval: 100 checkers
// report on 600 endpoints each, which is collected and counted into the
// verdicts of 20,000 endpoints, after each report and once for all of them.
func BenchmarkInterval(b *testing.B) {
	for _, often := range []struct {
		name  string
		every int // reports
	}{{"after-each", 1}, {"together", checkers}} {
		b.Run("counted="+often.name, func(b *testing.B) {
			f := newFleet(b)
			b.ReportAllocs()
			b.ResetTimer()
			for n := range b.N {
				for i := range checkers {
					f.send(i, n)
					if (i+1)%often.every == 0 {
						f.observe()
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(f.entries), "ns/vote")
		})
	}
}
