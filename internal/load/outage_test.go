package load_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// outageWorld is a world whose zone B has a capacity and dies in the ways that
// real Envoys report; zone A and zone C serve everything.
func outageWorld(t *testing.T, capacity float64) *world {
	t.Helper()
	w := newWorld(t,
		&worldSource{at: zoneA, nodes: 2, rate: 20, shares: shares{zoneA: 1}, backup: zoneC},
		&worldSource{at: zoneB, nodes: 2, rate: 20, shares: shares{zoneB: 1}, backup: zoneC},
		&worldSource{at: zoneC, nodes: 2, rate: 20, shares: shares{zoneC: 0.9, zoneB: 0.1}, backup: zoneA},
	)
	w.evidence.SetSites("checkout", []load.Site{{Locality: zoneA, Capacity: 1000}, {Locality: zoneB, Capacity: capacity}, {Locality: zoneC, Capacity: 1000}})
	return w
}

// wayToFail is what an Envoy reports of n requests in an interval, by the requests
// in progress before.
type wayToFail func(x *load.LocalityReport, n uint64)

func refuses(x *load.LocalityReport, n uint64) {
	x.Issued, x.HasIssued, x.Succeeded, x.Errors = 0, false, 0, n
}

func hangs(x *load.LocalityReport, n uint64) {
	x.Succeeded, x.Errors, x.InProgress = 0, n-n/10, uint32(n/10)
}

func abandons(x *load.LocalityReport, _ uint64) { x.Succeeded, x.Errors = 0, 0 }

func answersErrors(x *load.LocalityReport, n uint64) { x.Errors, x.Succeeded = n-n/10, n/10 }

func isOverloaded(x *load.LocalityReport, n uint64) {
	x.Succeeded, x.Errors, x.InProgress = n/10, n-n/10, uint32(n)
}

func (w *world) fails(how wayToFail) {
	w.edit = nil
	if how != nil {
		w.edit = func(_, to isobar.Locality, x *load.LocalityReport) {
			if to == zoneB {
				how(x, x.Issued)
			}
		}
	}
}

func opening(f load.Deviations, source isobar.Locality) float64 {
	for _, o := range f.Opening {
		if o.Source == source && o.Locality == zoneB {
			return o.Open
		}
	}
	return 0
}

// A zone that refuses, hangs or answers errors is dead for all sources at the
// second report at the latest, and comes back by parts after two good reports of
// the probe.
func TestOutageIsFoundAndEnds(t *testing.T) {
	for name, how := range map[string]wayToFail{"refuses": refuses, "hangs": hangs, "abandons": abandons, "answers 500 to 90%": answersErrors} {
		t.Run(name, func(t *testing.T) {
			w := outageWorld(t, 1000)
			w.expect("well", w.run(10), "", "")
			w.fails(how)
			f := w.run(2)
			if unreachable(f) != "us-east/b" {
				t.Fatalf("after two reports: %+v", f)
			}
			if o := f.Outages[0]; o.Attempts < 100 || o.Succeeded > 0.2*o.Attempts || o.Open != 0 || o.Since.IsZero() {
				t.Errorf("its evidence is %+v", o)
			}
			w.assign(w.sources[1], shares{zoneB: 0.01, zoneC: 0.99})
			w.assign(w.sources[2], shares{zoneB: 0.01, zoneC: 0.99})
			for range 20 {
				if f = w.run(1); unreachable(f) != "us-east/b" || len(f.Deviating)+len(f.Unmanaged) > 0 {
					t.Fatalf("while the probe fails: %+v", f)
				}
			}
			w.fails(nil)
			if f = w.run(1); unreachable(f) != "us-east/b" {
				t.Fatalf("one good report opens it: %+v", f.Outages)
			}
			for i, want := range []float64{0.25, 0.5, 1} {
				if f = w.run(1); unreachable(f) != "" || opening(f, zoneB) != want || opening(f, zoneA) != want {
					t.Fatalf("report %d: %v of its share, want %v for all sources", i+2, f.Opening, want)
				}
			}
			if f = w.run(30); len(f.Outages)+len(f.Opening) > 0 {
				t.Errorf("long after: %+v", f)
			}
		})
	}
}

// A locality that fails as soon as it gets more than the probe is left at the next
// report, and has to show more the next time.
func TestOutageThatComesBackIsTrustedLess(t *testing.T) {
	w := outageWorld(t, 1000)
	w.run(10)
	w.fails(refuses)
	w.run(2)
	w.fails(nil)
	w.expect("opens", w.run(2), "", "")
	w.fails(refuses)
	w.expect("fails again", w.run(1), "", "us-east/b")
	w.fails(nil)
	w.expect("two reports are not enough now", w.run(2), "", "us-east/b")
	w.expect("four are", w.run(2), "", "")
}

// One client whose outlier detection ejects the zone after two reports is no less a
// witness for that: before the ejection ends, the zone is dead for all sources.
func TestOutageThatClientsLeave(t *testing.T) {
	w := outageWorld(t, 1000)
	for _, s := range w.sources {
		s.nodes = 1
	}
	w.assign(w.sources[2], shares{zoneC: 1})
	w.run(10)
	w.fails(refuses)
	w.expect("one witness", w.run(2), "", "")
	w.fate = dead(zoneB, unconnected)
	w.expect("it has left for one report", w.run(1), "", "")
	w.expect("it stays away", w.run(1), "", "us-east/b")

	// Who leaves a locality that worked says nothing about it.
	moved := outageWorld(t, 1000)
	moved.run(10)
	moved.fate = dead(zoneB, unconnected)
	moved.expect("no failure was seen", moved.run(1), "", "")
	f := moved.run(8)
	moved.expect("nobody gets there", f, "eu-west/c>us-east/b us-east/b>us-east/b", "us-east/b")
	if o := f.Outages[0]; o.Attempts != 0 || o.Succeeded != 0 {
		t.Errorf("what succeeded before is no evidence: %+v", o)
	}
}

// A fault that begins within a report is no less a fault where the clients leave at once: the
// few requests that still go there tell, and until they do nobody else's share rises.
func TestOutageThatBeginsWithinAReport(t *testing.T) {
	begins := func(x *load.LocalityReport, n uint64) { x.Errors, x.Succeeded = n*2/3, n-n*2/3 }
	for name, c := range map[string]struct {
		capacity float64
		then     wayToFail
		dead     string
	}{
		"the few fail": {1000, refuses, "us-east/b"},
		"they succeed": {1000, nil, ""},
		"it is full":   {40, refuses, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := outageWorld(t, c.capacity)
			ofC, ofB := w.sources[0], w.sources[2]
			w.assign(ofC, shares{zoneC: 1})
			w.run(10)
			w.fails(begins)
			if f := w.run(1); unreachable(f) != "" || len(f.Rising) != 1 {
				t.Fatalf("as it begins: unreachable %q, rising %v", unreachable(f), f.Rising)
			}
			w.fails(c.then)
			ofB.obey = func(int) map[isobar.Locality]float64 { return shares{zoneB: 0.005, zoneC: 0.995} }
			if f := w.run(1); unreachable(f) != c.dead {
				t.Errorf("as the clients leave: unreachable %q, want %q: %+v", unreachable(f), c.dead, f.Outages)
			}
			if f := w.run(3); c.dead == "" && len(f.Rising) != 1 {
				t.Errorf("while they stay away: rising %v, want us-east/b", f.Rising)
			}
		})
	}
}

// What is full goes on to serve: it is neither dead nor cut off, whatever fails.
func TestOutageIsNoOverload(t *testing.T) {
	w := outageWorld(t, 45) // gets 44
	w.run(10)
	w.fails(isOverloaded)
	for range 30 {
		f := w.run(1)
		w.expect("full", f, "", "")
	}
	// The same failures far below the capacity are those of something broken.
	broken := outageWorld(t, 450)
	broken.run(10)
	broken.fails(isOverloaded)
	if f := broken.run(2); unreachable(f) != "us-east/b" {
		t.Errorf("broken: %+v", f)
	}
	// Where nothing succeeds for long, not even a full locality is alive.
	hung := outageWorld(t, 45)
	hung.run(10)
	hung.fails(refuses)
	hung.expect("for a moment", hung.run(3), "", "")
	if f := hung.run(2); unreachable(f) != "us-east/b" {
		t.Errorf("full and dead: %+v", f)
	}
}

// Where a larger part of the requests fails than before, that is told, until it is
// the usual part.
func TestOutageThatRisesIsTold(t *testing.T) {
	w := outageWorld(t, 1000)
	if f := w.run(10); len(f.Rising) > 0 {
		t.Fatalf("well: %v", f.Rising)
	}
	w.fails(func(x *load.LocalityReport, n uint64) { x.Errors, x.Succeeded = n/4, n-n/4 })
	if f := w.run(1); len(f.Rising) != 1 || f.Rising[0] != zoneB {
		t.Fatalf("a quarter fails: %v", f.Rising)
	}
	if f := w.run(20); len(f.Rising) > 0 {
		t.Errorf("a quarter fails since long: %v", f.Rising)
	}
}

// Whatever clients report, at most all but one locality is unreachable, shares
// come back by parts, and all evidence is finite.
func TestOutageProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := outageWorld(t, rapid.SampledFrom([]float64{0, 45, 1000}).Draw(rt, "capacity"))
		ways := []wayToFail{nil, refuses, hangs, abandons, answersErrors, isOverloaded}
		open := map[isobar.Locality]float64{}
		for range rapid.IntRange(1, 40).Draw(rt, "reports") {
			at := rapid.SampledFrom([]isobar.Locality{zoneA, zoneB, zoneC}).Draw(rt, "where")
			how := rapid.SampledFrom(ways).Draw(rt, "how")
			w.edit = func(_, to isobar.Locality, x *load.LocalityReport) {
				if to == at && how != nil {
					how(x, x.Issued)
				}
			}
			f := w.run(1)
			if len(f.Unreachable) >= 3 {
				rt.Fatalf("everything is unreachable: %v", f.Unreachable)
			}
			for _, o := range f.Outages {
				if was := open[o.Locality]; o.Open > max(0.25, 2*was) && was < 1 {
					if _, known := open[o.Locality]; known {
						rt.Fatalf("%s goes from %v to %v of its share", o.Locality, was, o.Open)
					}
				}
				if !(o.Attempts >= 0 && o.Succeeded >= 0 && o.Succeeded <= o.Attempts+1e-6) {
					rt.Fatalf("evidence %+v", o)
				}
			}
			clear(open)
			for _, o := range f.Outages {
				open[o.Locality] = o.Open
			}
		}
	})
}

// Demand is what clients attempt, however much of it fails: it neither sinks while
// failures grow, nor vanishes when Envoy has no healthy host and counts nothing.
func TestDemandOutlivesFailures(t *testing.T) {
	w := newWorld(t, &worldSource{at: zoneA, nodes: 2, rate: 40, shares: shares{zoneB: 1}})
	w.run(10)
	w.sources[0].rate = 60
	last := 80.0
	for part := uint64(1); part <= 9; part++ {
		w.edit = func(_, _ isobar.Locality, x *load.LocalityReport) {
			x.Errors, x.Succeeded = x.Issued*part/10, x.Issued-x.Issued*part/10
		}
		w.run(1)
		now := demand(w.tab.Snapshot(w.now))
		if now < last-1e-6 {
			t.Errorf("%d0%% fail: demand falls from %.1f to %.1f", part, last, now)
		}
		last = now
	}
	near(t, "demand while 90% fail", last, 120, 6)
	w.edit = func(_, _ isobar.Locality, x *load.LocalityReport) { *x = load.LocalityReport{Locality: x.Locality} }
	w.run(3)
	if now := demand(w.tab.Snapshot(w.now)); now < 0.7*last || now > last {
		t.Errorf("demand without any host is %.1f after three reports, was %.1f", now, last)
	}
	w.run(60)
	if now := demand(w.tab.Snapshot(w.now)); now > 0.1*last {
		t.Errorf("and %.1f after a long time", now)
	}
}

// Clients that drop a part of their requests and issue the rest count all that they
// want. When an overload ends, their demand falls within three reports, though much
// failed just before. When they only drop, no host may be left: their demand stays.
func TestDemandOfClientsThatDrop(t *testing.T) {
	for _, row := range []struct {
		name            string
		issued, dropped uint64 // in the reports after the overload
		atLeast, atMost float64
	}{
		{"the overload is over", 60, 140, 40, 60},
		{"no host is left, and nothing is issued", 0, 60, 220, 280},
		{"no host is left, and nothing is dropped either", 0, 0, 210, 280},
	} {
		t.Run(row.name, func(t *testing.T) {
			tab, c := table(), newClient(1, load.AgentEnvoy)
			for i := 1; i <= 23; i++ {
				r := sent(interval, 400)
				r.Dropped = 1000
				if i > 10 { // so much of the rest fails
					r.Localities[0].Succeeded, r.Localities[0].Errors = 100, 300
				}
				if i > 20 {
					r = sent(interval, row.issued)
					r.Dropped = row.dropped
				}
				tab.Merge([]load.StreamWindow{c.window(report(at(float64(i)), r))})
				tab.Snapshot(at(float64(i)))
			}
			if got := demand(tab.Snapshot(at(23))); got < row.atLeast || got > row.atMost {
				t.Errorf("demand %.1f, want %v to %v", got, row.atLeast, row.atMost)
			}
		})
	}
}
