package load_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// A longer interval makes everything slower that counts in intervals.
func TestSetInterval(t *testing.T) {
	tab := table()
	c := newClient(1, load.AgentEnvoy)
	tab.Merge([]load.StreamWindow{c.window(report(at(1), sent(interval, 500)))})
	tab.Snapshot(at(1))
	tab.SetInterval(10 * interval)
	near(t, "demand held over what would be 20 missing reports", demand(tab.Snapshot(at(21))), 100, 1e-9)
	tab.SetInterval(0)
	near(t, "demand with the default again", demand(tab.Snapshot(at(60))), 0, 1)
}

func TestForgottenEvidence(t *testing.T) {
	a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.7, zoneB: 0.3}}
	w := newWorld(t, a)
	w.fate = dead(zoneB, failed)
	w.expect("dead", w.run(2), "us-east/a>us-east/b", "us-east/b")
	w.evidence.Forget("checkout")
	w.expect("forgotten", w.run(1), "", "")
	w.expect("found again", w.run(1), "us-east/a>us-east/b", "us-east/b")
	w.evidence.SetInterval(time.Minute)
	w.expect("not forgotten by another interval", w.run(1), "us-east/a>us-east/b", "us-east/b")
}

// Reports that become one keep every service and locality of both.
func TestMergedReportsKeepAllParts(t *testing.T) {
	part := func(service string, l int, issued uint64, inProgress uint32) load.ServiceReport {
		return load.ServiceReport{Service: service, Interval: interval, Localities: []load.LocalityReport{{
			Locality: &[]isobar.Locality{zoneA, zoneB}[l], Issued: issued, HasIssued: true, InProgress: inProgress,
			Details: &load.LocalityDetails{Endpoints: []load.EndpointReport{{Address: []string{"10.0.0.1:1", "10.0.0.2:1"}[l], Issued: issued}}},
		}}}
	}
	w := newClient(1, load.AgentGRPC).window(report(at(1), part("a", 0, 100, 7), part("b", 0, 10, 0)))
	w.Append(report(at(2), part("c", 0, 30, 0), part("a", 1, 50, 5), part("a", 0, 1, 0)), 1)
	r := w.Reports[0]
	if len(w.Reports) != 1 || !r.Arrived.Equal(at(2)) || len(r.Services) != 4 {
		t.Fatalf("%d reports, the first of %d services", len(w.Reports), len(r.Services))
	}
	a := r.Services[0]
	if a.Service != "a" || a.Interval != 2*interval || len(a.Localities) != 2 {
		t.Fatalf("merged %+v", a)
	}
	if a.Localities[0].Issued != 100 || a.Localities[0].InProgress != 0 || a.Localities[1].Issued != 50 || a.Localities[1].InProgress != 5 {
		t.Errorf("localities %+v", a.Localities)
	}
	tab := table()
	tab.Merge([]load.StreamWindow{w})
	s := tab.Snapshot(at(2))
	near(t, "a, whose entries add up", s.Service("a").Source(zoneA).Raw, 15+0.2, 1e-9)
	near(t, "b", s.Service("b").Source(zoneA).Raw, 2, 1e-9)
	near(t, "c", s.Service("c").Source(zoneA).Raw, 6, 1e-9)
}
