package load_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// push assigns shares that are acknowledged a second later: too late for any
// window of the coming interval to begin after it.
func (w *world) push(s *worldSource, shares map[isobar.Locality]float64) {
	w.assign(s, shares)
	s.acked = w.now.Add(time.Second)
}

// Pushes at every tick that leave the shares alone, of lower tiers say, hide
// nothing.
func TestPushesOfTheSameSharesHideNothing(t *testing.T) {
	a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.7, zoneB: 0.3}}
	c := &worldSource{at: zoneC, nodes: 3, rate: 100, shares: shares{zoneB: 0.5, zoneC: 0.5}}
	w := newWorld(t, a, c)
	turn := func(n int) (f load.Deviations) {
		for range n {
			w.push(a, a.shares)
			w.push(c, c.shares)
			f = w.run(1)
		}
		return f
	}
	w.expect("all well", turn(10), "", "")
	w.fate = dead(zoneB, failed)
	w.expect("dead", turn(2), "eu-west/c>us-east/b us-east/a>us-east/b", "us-east/b")
}

// Nor do shares that move at every tick, whichever way they go.
func TestPacingHidesNoDeadZone(t *testing.T) {
	for _, tc := range []struct {
		name       string
		from, step float64 // share of zone B, and its change in an interval
	}{{"growing", 0.1, 0.1}, {"shrinking", 0.8, -0.1}, {"to and fro", 0.4, 0}} {
		t.Run(tc.name, func(t *testing.T) {
			a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.3, zoneB: 0.3, zoneC: 0.4}}
			w := newWorld(t, a)
			w.run(5)
			w.fate = dead(zoneB, failed)
			b := tc.from
			for k := range 4 {
				if tc.step == 0 {
					b = 0.4 + 0.05*float64(k%2)
				}
				w.push(a, shares{zoneA: 0.9 - b, zoneB: b, zoneC: 0.1})
				w.run(1)
				b += tc.step
			}
			w.expect("dead for four intervals", w.deviations, "us-east/a>us-east/b", "us-east/b")
		})
	}
}

// While shares move, what lands by the old ones is not held against the new
// ones.
func TestMovingSharesMakeNoDeviations(t *testing.T) {
	for late := range 3 {
		a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 1}}
		c := &worldSource{at: zoneC, nodes: 3, rate: 100, shares: shares{zoneC: 1}}
		w := newWorld(t, a, c)
		w.lag = interval * time.Duration(late)
		w.run(late + 2)
		for k := range 40 {
			b := 0.1 * float64(min(k%20, 20-k%20)) // 0 to 1 and back
			next := shares{}
			if b < 1 {
				next[zoneA] = 1 - b
			}
			if b > 0 {
				next[zoneB] = b
			}
			w.assign(a, next)
			f := w.run(1)
			w.expect("on the move", f, "", "")
			if len(f.Unmanaged) > 0 || len(f.Deviating) > 0 {
				t.Fatalf("reports %d intervals late, after %d moves: %+v", late, k+1, f)
			}
		}
	}
}

// Shares that stood only between two ticks are known when they were noted, and
// nobody is blamed for having followed them.
func TestSharesBetweenTicksAreNoted(t *testing.T) {
	a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.5, zoneB: 0.5}}
	w := newWorld(t, a)
	w.run(5)
	for range 10 {
		// For the whole interval nothing goes to B; at its end the old shares are back.
		before := w.planned()
		w.evidence.Note(w.now, "checkout", before)
		w.push(a, shares{zoneA: 1})
		between := w.planned()
		w.now = w.now.Add(interval)
		windows := a.report(w, 1000)
		w.evidence.Note(w.now, "checkout", between)
		w.push(a, shares{zoneA: 0.5, zoneB: 0.5})
		a.acked = time.Time{} // nobody uses them yet
		w.tab.Merge(windows)
		f := w.evidence.Observe(w.now, w.tab.Snapshot(w.now).Service("checkout"), w.planned())
		w.expect("between ticks", f, "", "")
		if len(f.Unmanaged) > 0 || len(f.Deviating) > 0 {
			t.Fatalf("deviations %+v", f)
		}
		w.evidence.Note(w.now, "nobody", before)
	}
	if got := w.evidence.Services(); len(got) != 1 || got[0] != "checkout" {
		t.Errorf("evidence is kept about %v", got)
	}
}

// A source whose clients never acknowledge is not judged, however many shares
// it is told.
func TestSharesNobodyAcknowledged(t *testing.T) {
	a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneC: 1}}
	w := newWorld(t, a)
	told := shares{zoneA: 0.5, zoneB: 0.5}
	a.obey = func(int) map[isobar.Locality]float64 { return shares{zoneC: 1} }
	for k := range 100 {
		a.shares = shares{zoneA: told[zoneA] + 0.001*float64(k%7), zoneB: told[zoneB] - 0.001*float64(k%7)}
		a.acked = time.Time{}
		f := w.run(1)
		w.expect("never acknowledged", f, "", "")
		if len(f.Unmanaged) > 0 || len(f.Deviating) > 0 {
			t.Fatalf("deviations %+v", f)
		}
	}
}

// A bar stands as long as its probe fails; it falls when nothing can lift it.
func TestBarsThatNothingCanLift(t *testing.T) {
	prepare := func(t *testing.T) (*world, *worldSource) {
		t.Helper()
		a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.7, zoneB: 0.3}}
		w := newWorld(t, a)
		w.evidence.SetSites("checkout", []load.Site{{Locality: zoneA}, {Locality: zoneB}})
		w.run(5)
		w.fate = dead(zoneB, failed)
		w.expect("dead", w.run(2), "us-east/a>us-east/b", "us-east/b")
		w.assign(a, shares{zoneA: 0.99, zoneB: 0.01})
		w.expect("the probe fails", w.run(200), "us-east/a>us-east/b", "us-east/b")
		return w, a
	}
	t.Run("the locality left the service", func(t *testing.T) {
		w, a := prepare(t)
		w.evidence.SetSites("checkout", []load.Site{{Locality: zoneA}})
		w.assign(a, shares{zoneA: 1})
		w.expect("it is gone", w.run(1), "", "")
	})
	t.Run("the source fell silent", func(t *testing.T) {
		w, a := prepare(t)
		a.rate = 0
		w.expect("a moment of silence", w.run(20), "us-east/a>us-east/b", "us-east/b")
		w.expect("two minutes", w.run(20), "", "")
	})
	t.Run("no share goes there", func(t *testing.T) {
		w, a := prepare(t)
		w.assign(a, shares{zoneA: 1})
		w.expect("a moment", w.run(20), "us-east/a>us-east/b", "us-east/b")
		w.expect("two minutes", w.run(20), "", "")
	})
}

// A source with a small share fills its windows slowly. What it landed before
// a locality died does not speak for the locality.
func TestSmallShareDoesNotReviveADeadLocality(t *testing.T) {
	for lead := range 8 {
		a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.7, zoneB: 0.3}}
		c := &worldSource{at: zoneC, nodes: 3, rate: 100, shares: shares{zoneB: 0.0075, zoneC: 0.9925}}
		w := newWorld(t, a, c)
		w.run(8 + lead)
		w.fate = dead(zoneB, failed)
		w.run(2)
		w.assign(a, shares{zoneA: 0.99, zoneB: 0.01})
		for range 10 {
			w.expect("dead", w.run(1), "us-east/a>us-east/b", "us-east/b")
		}
	}
}

// shareChange is a push and when each client began to use it.
type shareChange struct {
	shares []load.PlannedShare // sorted
	used   []time.Time
}

func (o *shareChange) acked(now time.Time) time.Time {
	last := slices.MaxFunc(o.used, time.Time.Compare)
	if last.After(now) {
		return time.Time{}
	}
	return last
}

// drawOrder draws shares over up to three zones, and when the clients get them.
func drawOrder(rt *rapid.T, now time.Time, before *shareChange, clients int) shareChange {
	var o shareChange
	left := 1.0
	for i, l := range []isobar.Locality{zoneC, zoneA, zoneB} { // sorted
		share := left
		if i < 2 {
			share = min(left, float64(rapid.IntRange(0, 100).Draw(rt, "points"))/100)
		}
		if left -= share; share > 0 {
			o.shares = append(o.shares, load.PlannedShare{Locality: l, Share: share})
		}
	}
	for c := range clients {
		at := now.Add(time.Duration(rapid.Float64Range(0, 3).Draw(rt, "delay") * float64(interval)))
		if before != nil && at.Before(before.used[c]) {
			at = before.used[c]
		}
		o.used = append(o.used, at)
	}
	return o
}

// landed counts what a client sends where from one time to another.
func landed(changes []shareChange, client int, rate float64, from, to time.Time) load.ServiceReport {
	r := load.ServiceReport{Service: "checkout", Interval: to.Sub(from)}
	issued := map[isobar.Locality]float64{}
	for k := range changes {
		begin, end := changes[k].used[client], to
		if k == 0 || begin.Before(from) {
			begin = from
		}
		if k+1 < len(changes) && changes[k+1].used[client].Before(end) {
			end = changes[k+1].used[client]
		}
		for _, sh := range changes[k].shares {
			issued[sh.Locality] += rate * sh.Share * max(0, end.Sub(begin).Seconds())
		}
	}
	for _, l := range []isobar.Locality{zoneA, zoneB, zoneC} {
		if n := uint64(issued[l] + 0.5); n > 0 {
			r.Localities = append(r.Localities, load.LocalityReport{Locality: &l, Issued: n, HasIssued: true, Succeeded: n})
		}
	}
	return r
}

// obedient is a client that does what it is told, at a phase of its own, and
// whose reports travel for a while.
type obedient struct {
	client

	index int
	next  time.Time // end of the window that it counts now
	lag   time.Duration
}

// due makes the reports that have arrived by now.
func (o *obedient) due(changes []shareChange, now time.Time) []load.Report {
	const rate = 400.0
	var out []load.Report
	for ; !o.next.Add(o.lag).After(now); o.next = o.next.Add(interval) {
		out = append(out, report(o.next.Add(o.lag), landed(changes, o.index, rate, o.next.Add(-interval), o.next)))
	}
	return out
}

// Clients that do what they are told are never accused of anything, however
// often and however much their shares change, however late they hear of it and
// however late their reports come.
func TestObedientClientsAreNeverAccused(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const clients = 3
		tab, e := table(), load.NewAdherence(load.Settings{Interval: interval})
		changes := []shareChange{drawOrder(rt, start.Add(-10*interval), nil, clients)}
		fleet := make([]*obedient, clients)
		for i := range fleet {
			o := &obedient{client: newClient(load.StreamID(i+1), load.AgentGRPC), index: i}
			o.open = start.Add(time.Duration(rapid.Float64Range(-1, 0).Draw(rt, "phase") * float64(interval)))
			o.lag = time.Duration(rapid.Float64Range(0, 3).Draw(rt, "lag") * float64(interval))
			o.next = o.open.Add(interval)
			fleet[i] = o
		}
		for k := range 40 {
			now := at(float64(k + 1))
			var w []load.StreamWindow
			for _, o := range fleet {
				w = append(w, o.window(o.due(changes, now)...))
			}
			tab.Merge(w)
			current := &changes[len(changes)-1]
			if s := tab.Snapshot(now).Service("checkout"); s != nil {
				f := e.Observe(now, s, []load.PlannedSource{{
					Source: zoneA, Shares: current.shares, Acked: current.acked(now), Streams: clients,
				}})
				e.Name(&f, tab)
				if len(f.Barred)+len(f.Unreachable)+len(f.Unmanaged)+len(f.Deviating)+len(f.Individual) > 0 {
					rt.Fatalf("after %d intervals: %+v", k+1, f)
				}
			}
			if rapid.IntRange(0, 2).Draw(rt, "pushes") > 0 {
				changes = append(changes, drawOrder(rt, now, current, clients))
			}
		}
	})
}
