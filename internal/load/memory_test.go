package load_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// live is the memory in use, bytes.
func live() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// inZones is what a client sends to so many localities, whose names begin with a text.
func inZones(service, name string, n int, edit func(l *load.LocalityReport, i int)) load.ServiceReport {
	r := load.ServiceReport{Service: service, Interval: interval}
	for i := range n {
		l := load.LocalityReport{Locality: &isobar.Locality{Region: "r", Zone: fmt.Sprint(name, i)}, Issued: 100, Succeeded: 100, HasIssued: true}
		edit(&l, i)
		r.Localities = append(r.Localities, l)
	}
	return r
}

func unchanged(*load.LocalityReport, int) { /* as inZones makes it */ }

// TestMemoryOfLoad asserts that a table says how much memory it takes, whatever clients report.
func TestMemoryOfLoad(t *testing.T) {
	const clients = 400
	for name, reports := range map[string]func(i int) []load.ServiceReport{
		"a service in three localities": func(i int) []load.ServiceReport {
			return []load.ServiceReport{inZones("checkout", fmt.Sprint(i), 3, unchanged)}
		},
		"many services": func(i int) (all []load.ServiceReport) {
			for s := range 40 {
				all = append(all, inZones(fmt.Sprintf("service-%02d", s), fmt.Sprint(i, s), 1, unchanged))
			}
			return all
		},
		"many localities": func(i int) []load.ServiceReport {
			return []load.ServiceReport{inZones("checkout", fmt.Sprint(i, strings.Repeat("z", 200)), 100, unchanged)}
		},
		"metrics and endpoints": func(i int) []load.ServiceReport {
			return []load.ServiceReport{inZones("checkout", fmt.Sprint(i), 3, func(l *load.LocalityReport, at int) {
				l.Details = &load.LocalityDetails{}
				for n := range 50 {
					l.Details.Metrics = append(l.Details.Metrics, load.MetricSum{Name: fmt.Sprintf("%0300d", 1000*i+50*at+n), Requests: 1, Total: 1})
					l.Details.Endpoints = append(l.Details.Endpoints, load.EndpointReport{Address: fmt.Sprintf("10.%d.%d.%d:80", i%256, at, n), Issued: 1})
				}
			})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := live()
			tab := table()
			for k := range 2 {
				var windows []load.StreamWindow
				for i := range clients {
					c := newClient(load.StreamID(i+1), load.AgentEnvoy)
					c.node.Locality = isobar.Locality{Region: "r", Zone: fmt.Sprint(i % 10)}
					windows = append(windows, c.window(report(at(float64(k+1)), reports(i)...)))
				}
				tab.Merge(windows)
				tab.Snapshot(at(float64(k + 1)))
			}
			tab.Merge(nil)
			took, told := live()-before, tab.Memory().Used
			if told < took/2 || told > 3*took {
				t.Errorf("it takes %d KiB and says %d", took>>10, told>>10)
			}
		})
	}
}

// TestFullMemory asserts that clients which a table knows stay when no memory is left, also where they send to
// another locality more, that new ones of the same address do not count until there is memory again, and that
// clients with certificates may use what one address may not.
func TestFullMemory(t *testing.T) {
	const memory, each = 128 << 10, 5
	tab := load.NewTable(load.Settings{Interval: interval, Memory: memory}, nil, start)
	step, zones := 0, 1
	turn := func(address string, certified bool, first, n int) (nodes int) {
		step++
		var windows []load.StreamWindow
		for i := range n {
			w := newClient(load.StreamID(first+i), load.AgentEnvoy).window(report(at(float64(step)), inZones("checkout", "z", zones, unchanged)))
			w.Account, w.Identified = address, certified
			windows = append(windows, w)
		}
		tab.Merge(windows)
		return tab.Snapshot(at(float64(step))).Service("checkout").Sources[0].Nodes
	}
	if n := turn("192.0.2.1", false, 1, each); n != each {
		t.Fatalf("%d clients count, want %d", n, each)
	}
	if n := turn("192.0.2.1", false, 1, 4*each); n >= 2*each || n < each || tab.Memory().Refused == 0 {
		t.Errorf("%d clients of one address count: %+v", n, tab.Memory())
	}
	zones = 2
	if n := turn("192.0.2.1", false, 1, each); n < each {
		t.Errorf("%d clients count, want all %d that are known", n, each)
	}
	zones = 1
	if n := turn("fleet", true, 1000, 5*each); n < 5*each {
		t.Errorf("%d clients count, want all %d with a certificate", n, 5*each)
	}
	step += 20 // all are gone
	if n := turn("192.0.2.2", false, 2000, each); n != each {
		t.Errorf("%d clients count after others have gone, want %d", n, each)
	}
}

// TestEvidenceOfInventedLocalities asserts that clients which name other localities in each report, none of
// them of the service, leave no evidence, and that requests outside of the plan are found as before.
func TestEvidenceOfInventedLocalities(t *testing.T) {
	before := live()
	evidence := load.NewAdherence(load.Settings{Interval: interval})
	tab := table()
	var found load.Deviations
	for k := range 20 {
		now := at(float64(k + 1))
		c := newClient(1, load.AgentEnvoy)
		invented := inZones("checkout", fmt.Sprint(k, strings.Repeat("z", 200)), 800, func(l *load.LocalityReport, _ int) { l.Issued, l.Succeeded = 1, 0 })
		invented.Localities = append(invented.Localities, inZones("checkout", "b", 2, func(l *load.LocalityReport, _ int) {
			l.Issued, l.Succeeded = 5000, 5000
		}).Localities...)
		tab.Merge([]load.StreamWindow{c.window(report(now, invented))})
		evidence.SetSites("checkout", []load.Site{
			{Locality: isobar.Locality{Region: "r", Zone: "b0"}, Endpoints: 1, Usable: 1}, {Locality: isobar.Locality{Region: "r", Zone: "b1"}, Endpoints: 1, Usable: 1},
		})
		found = evidence.Observe(now, tab.Snapshot(now).Service("checkout"), []load.PlannedSource{{
			Source: zoneA, Acked: start.Add(-time.Hour), Streams: 1, Shares: []load.PlannedShare{{Locality: isobar.Locality{Region: "r", Zone: "b0"}, Share: 1}},
		}})
	}
	if len(found.Unmanaged) != 1 || found.Unmanaged[0].Locality.Zone != "b1" {
		t.Errorf("unmanaged load: %+v, want that in b1", found.Unmanaged)
	}
	if took := live() - before; took > 4<<20 {
		t.Errorf("table and evidence take %d KiB", took>>10)
	}
	runtime.KeepAlive(tab)
	runtime.KeepAlive(evidence)
}
