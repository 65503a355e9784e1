package load_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

func (w *world) expect(what string, f load.Deviations, wantBarred, wantUnreachable string) {
	w.t.Helper()
	if got := barred(f); got != wantBarred {
		w.t.Errorf("%s: barred %q, want %q", what, got, wantBarred)
	}
	if got := unreachable(f); got != wantUnreachable {
		w.t.Errorf("%s: unreachable %q, want %q", what, got, wantUnreachable)
	}
}

// A zone dies unannounced: every source observes no more requests there, whether its
// clients fail against it or don't even connect.
func TestDeadZoneIsFound(t *testing.T) {
	for name, how := range map[string]fate{"failing": failed, "unconnected": unconnected} {
		t.Run(name, func(t *testing.T) {
			a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.7, zoneB: 0.3}, backup: zoneC}
			b := &worldSource{at: zoneB, nodes: 3, rate: 100, shares: shares{zoneB: 1}, backup: zoneA}
			c := &worldSource{at: zoneC, nodes: 3, rate: 100, shares: shares{zoneC: 1}, backup: zoneA}
			w := newWorld(t, a, b, c)
			w.expect("all well", w.run(10), "", "")
			w.fate = dead(zoneB, how)
			if how == unconnected {
				w.expect("one window is no verdict", w.run(1), "", "")
			} else {
				w.expect("one window of failures is", w.run(1), "", "us-east/b")
			}
			const all = "us-east/a>us-east/b us-east/b>us-east/b"
			f := w.run(1)
			w.expect("two windows are", f, all, "us-east/b")
			if len(f.Unmanaged) > 0 {
				t.Errorf("failover counts as unmanaged load: %v", f.Unmanaged)
			}

			w.assign(a, shares{zoneA: 0.99, zoneB: 0.01})
			w.assign(b, shares{zoneA: 0.99, zoneB: 0.01})
			f = w.run(50)
			w.expect("the probe fails on", f, all, "us-east/b")
			if len(f.Unmanaged) > 0 {
				t.Errorf("what moved away counts as unmanaged load: %v", f.Unmanaged)
			}

			w.fate = nil
			w.expect("one window of the probe is not enough", w.run(1), all, "us-east/b")
			w.expect("two are", w.run(4), "", "")
		})
	}
}

// A source with too little traffic to probe by is let in with the others.
func TestReopenedLocalityIsOpenToAll(t *testing.T) {
	a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.7, zoneB: 0.3}}
	b := &worldSource{at: zoneB, nodes: 2, rate: 10, shares: shares{zoneB: 1}, backup: zoneA}
	w := newWorld(t, a, b)
	w.run(3)
	w.fate = dead(zoneB, failed)
	w.expect("dead", w.run(2), "us-east/a>us-east/b us-east/b>us-east/b", "us-east/b")
	w.assign(a, shares{zoneA: 0.99, zoneB: 0.01})
	w.assign(b, shares{zoneA: 0.99, zoneB: 0.01})
	w.run(5)
	w.fate = nil
	w.expect("back", w.run(3), "", "")
	w.fate = dead(zoneB, failed)
	w.assign(a, shares{zoneA: 0.7, zoneB: 0.3})
	w.assign(b, shares{zoneB: 1})
	w.expect("dead again", w.run(2), "us-east/a>us-east/b us-east/b>us-east/b", "us-east/b")
}

// One client that reports every minute does not hide what the others see.
func TestSlowReporterHidesNothing(t *testing.T) {
	tab, e := table(), load.NewAdherence(load.Settings{Interval: interval})
	slow := newClient(9, load.AgentEnvoy)
	planned := []load.PlannedSource{{Source: zoneA, Acked: start, Shares: []load.PlannedShare{{Locality: zoneB, Share: 0.5}, {Locality: zoneC, Share: 0.5}}}}
	var f load.Deviations
	for i := 1; i <= 30; i++ {
		now := at(float64(i))
		var w []load.StreamWindow
		for n := range 3 {
			w = append(w, newClient(load.StreamID(n+1), load.AgentGRPC).window(report(now, sent(interval, 500)))) // nothing to zone C
		}
		if i%12 == 0 {
			w = append(w, slow.window(report(now, sent(12*interval, 6000))))
		}
		tab.Merge(w)
		f = e.Observe(now, tab.Snapshot(now).Service("checkout"), planned)
		if i == 13 && len(f.Deviating) == 0 {
			t.Error("the deviation of the others is hidden")
		}
	}
	if got := barred(f); got != "us-east/a>eu-west/c" {
		t.Errorf("barred %q", got)
	}
}

func TestOnlyOneSourceIsCutOff(t *testing.T) {
	a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.7, zoneB: 0.3}}
	b := &worldSource{at: zoneB, nodes: 3, rate: 100, shares: shares{zoneB: 1}}
	w := newWorld(t, a, b)
	w.run(5)
	w.fate = func(from, to isobar.Locality) fate {
		if from == zoneA && to == zoneB {
			return failed
		}
		return served
	}
	w.expect("a path is down", w.run(10), "us-east/a>us-east/b", "")
}

// Two misconfigured clients never take a locality from others.
func TestMisconfiguredClients(t *testing.T) {
	t.Run("in a large source", func(t *testing.T) {
		astray := func(node int) map[isobar.Locality]float64 {
			if node < 2 {
				return shares{zoneA: 1}
			}
			return nil
		}
		a := &worldSource{at: zoneA, nodes: 10, rate: 20, shares: shares{zoneA: 0.5, zoneB: 0.5}, obey: astray}
		c := &worldSource{at: zoneC, nodes: 3, rate: 100, shares: shares{zoneB: 0.5, zoneC: 0.5}}
		w := newWorld(t, a, c)
		w.expect("they are few", w.run(20), "", "")
	})
	t.Run("as all of a source", func(t *testing.T) {
		a := &worldSource{at: zoneA, nodes: 2, rate: 100, shares: shares{zoneA: 0.5, zoneB: 0.5}, obey: func(int) map[isobar.Locality]float64 { return shares{zoneA: 1} }}
		c := &worldSource{at: zoneC, nodes: 3, rate: 100, shares: shares{zoneB: 0.5, zoneC: 0.5}}
		w := newWorld(t, a, c)
		w.expect("others land there", w.run(20), "us-east/a>us-east/b", "")
	})
	t.Run("as the only source with a stake", func(t *testing.T) {
		a := &worldSource{at: zoneA, nodes: 2, rate: 100, shares: shares{zoneA: 0.5, zoneB: 0.5}, obey: func(int) map[isobar.Locality]float64 { return shares{zoneA: 1} }}
		c := &worldSource{at: zoneC, nodes: 3, rate: 100, shares: shares{zoneC: 1}}
		w := newWorld(t, a, c)
		w.expect("others have not looked", w.run(20), "us-east/a>us-east/b", "")
	})
	t.Run("alone in a source", func(t *testing.T) {
		a := &worldSource{at: zoneA, nodes: 1, rate: 100, shares: shares{zoneA: 0.5, zoneB: 0.5}, obey: func(int) map[isobar.Locality]float64 { return shares{zoneA: 1} }}
		c := &worldSource{at: zoneC, nodes: 3, rate: 100, shares: shares{zoneC: 1}}
		w := newWorld(t, a, c)
		w.expect("one node is no witness", w.run(20), "", "")
	})
}

func TestBrokenServiceIsNoDeadZone(t *testing.T) {
	a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.7, zoneB: 0.3}}
	b := &worldSource{at: zoneB, nodes: 3, rate: 100, shares: shares{zoneB: 1}}
	w := newWorld(t, a, b)
	w.run(5)
	w.fate = func(_, _ isobar.Locality) fate { return failed }
	w.expect("everything fails everywhere", w.run(20), "", "")
	never := newWorld(t, &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 1}})
	never.fate = w.fate
	never.evidence.SetSites("checkout", []load.Site{{Locality: zoneA}, {Locality: zoneB}})
	never.expect("calls that always end in an error", never.run(20), "", "")
}

func TestTooLittleTrafficIsNoEvidence(t *testing.T) {
	a := &worldSource{at: zoneA, nodes: 2, rate: 2, shares: shares{zoneA: 0.5, zoneB: 0.5}}
	b := &worldSource{at: zoneB, nodes: 3, rate: 100, shares: shares{zoneA: 1}}
	w := newWorld(t, a, b)
	w.fate = dead(zoneB, unconnected)
	// 10 requests an interval are expected: 5 intervals make a window.
	w.expect("9 windows", w.run(9), "", "")
	w.expect("10 windows", w.run(1), "us-east/a>us-east/b", "")
	few := newWorld(t, &worldSource{at: zoneA, nodes: 2, rate: 0.8, shares: shares{zoneA: 0.5, zoneB: 0.5}}, b)
	few.fate = dead(zoneB, failed)
	few.expect("4 failures an interval", few.run(12), "", "") // nor what comes together in many of them
}

func TestReportsFromBeforeTheAckDoNotCount(t *testing.T) {
	for late := range 4 {
		a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 1}}
		w := newWorld(t, a, &worldSource{at: zoneC, nodes: 3, rate: 100, shares: shares{zoneC: 1}})
		w.lag = interval * time.Duration(late)
		for range 8 {
			w.run(2)
			w.assign(a, shares{zoneA: 0.2, zoneB: 0.8})
			f := w.run(2)
			w.expect("old windows are no evidence", f, "", "")
			if len(f.Unmanaged) > 0 || len(f.Deviating) > 0 {
				t.Fatalf("reports %d intervals late: old windows make deviations: %+v", late, f)
			}
			w.assign(a, shares{zoneA: 1})
		}
	}
}

func TestUnmanagedLoad(t *testing.T) {
	half := func(node int) map[isobar.Locality]float64 {
		if node < 5 {
			return shares{zoneA: 1}
		}
		return nil
	}
	a := &worldSource{at: zoneA, nodes: 10, rate: 100, shares: shares{zoneA: 0.5, zoneB: 0.5}, obey: half}
	w := newWorld(t, a)
	if f := w.run(1); len(f.Unmanaged) > 0 {
		t.Fatalf("one window makes unmanaged load: %v", f.Unmanaged)
	}
	f := w.run(3)
	if len(f.Unmanaged) != 1 || f.Unmanaged[0].Locality != zoneA || f.Unmanaged[0].Source != zoneA {
		t.Fatalf("unmanaged load is %+v, want one of us-east/a at us-east/a", f.Unmanaged)
	}
	near(t, "unmanaged load", f.Unmanaged[0].Rate, 500, 5) // all of those who do not obey
	w.assign(a, shares{zoneA: 0.1, zoneB: 0.9})
	f = w.run(10)
	if len(f.Unmanaged) != 1 {
		t.Fatalf("unmanaged load is %+v, want it to stay", f.Unmanaged)
	}
	near(t, "unmanaged load under other shares", f.Unmanaged[0].Rate, 500, 5)
	a.obey = nil
	if f := w.run(4); len(f.Unmanaged) > 0 {
		t.Fatalf("unmanaged load of clients that obey: %v", f.Unmanaged)
	}
}

// TestUnmanagedLoadElsewhere asserts that requests to a locality that is not of the service count as unmanaged
// load, and so not as demand that Isobar has to place.
func TestUnmanagedLoadElsewhere(t *testing.T) {
	elsewhere := isobar.MustLocality("eu-west/x")
	a := &worldSource{at: zoneA, nodes: 10, rate: 100, shares: shares{zoneA: 0.5, zoneB: 0.5}}
	a.obey = func(node int) map[isobar.Locality]float64 {
		if node < 5 {
			return shares{elsewhere: 1}
		}
		return nil
	}
	w := newWorld(t, a)
	w.evidence.SetSites("checkout", []load.Site{{Locality: zoneA, Endpoints: 10, Usable: 10}, {Locality: zoneB, Endpoints: 10, Usable: 10}})
	f := w.run(6)
	if len(f.Unmanaged) != 1 || f.Unmanaged[0].Locality != elsewhere {
		t.Fatalf("unmanaged load is %+v, want one of us-east/a at eu-west/x", f.Unmanaged)
	}
	near(t, "unmanaged load", f.Unmanaged[0].Rate, 500, 5)
}

func TestDeviationsAreNamed(t *testing.T) {
	sites := func(usableB int) []load.Site {
		return []load.Site{{Locality: zoneA, Endpoints: 10, Usable: 10}, {Locality: zoneB, Endpoints: 10, Usable: usableB}}
	}
	stray := func(s shares) func(int) map[isobar.Locality]float64 {
		return func(int) map[isobar.Locality]float64 { return s }
	}
	for _, tc := range []struct {
		name    string
		planned shares
		does    shares
		dead    isobar.Locality
		sites   []load.Site
		cause   string
		points  float64
	}{
		{"ignores weights", shares{zoneA: 0.8, zoneB: 0.2}, shares{zoneA: 0.5, zoneB: 0.5}, isobar.Locality{}, sites(10), load.CauseUnweighted, 30},
		{"panics", shares{zoneA: 1}, shares{zoneA: 0.5, zoneB: 0.5}, isobar.Locality{}, sites(0), load.CausePanic, 50},
		{"prefers its zone", shares{zoneA: 0.2, zoneB: 0.8}, shares{zoneA: 0.7, zoneB: 0.3}, isobar.Locality{}, sites(10), load.CauseZoneAware, 50},
		{"fails over", shares{zoneA: 0.5, zoneB: 0.5}, nil, zoneB, sites(10), load.CauseFailover, 50},
		{"for no known reason", shares{zoneA: 0.7, zoneB: 0.3}, shares{zoneA: 0.3, zoneB: 0.7}, isobar.Locality{}, sites(10), load.CauseUnknown, 40},
		{"not at all", shares{zoneA: 0.8, zoneB: 0.2}, shares{zoneA: 0.75, zoneB: 0.25}, isobar.Locality{}, sites(10), "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: tc.planned}
			if tc.does != nil {
				a.obey = stray(tc.does)
			}
			w := newWorld(t, a)
			w.fate = dead(tc.dead, unconnected)
			w.evidence.SetSites("checkout", tc.sites)
			if f := w.run(2); len(f.Deviating) > 0 {
				t.Fatalf("named after two reports: %v", f.Deviating)
			}
			f := w.run(1)
			if tc.cause == "" {
				if len(f.Deviating) > 0 {
					t.Fatalf("deviating = %v, want none", f.Deviating)
				}
				return
			}
			if len(f.Deviating) != 1 || f.Deviating[0].Cause != tc.cause || f.Deviating[0].Source != zoneA {
				t.Fatalf("deviating = %+v, want cause %q", f.Deviating, tc.cause)
			}
			near(t, "points", f.Deviating[0].Points, tc.points, 1)
		})
	}
}

// TestTheCauseStaysWhileItIsLikely: shares that come and go from a pattern that fits as well
// do not change the name; shares that fit another one alone do.
func TestTheCauseStaysWhileItIsLikely(t *testing.T) {
	does := shares{zoneA: 0.7, zoneB: 0.3}
	a := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 0.2, zoneB: 0.8}, obey: func(int) map[isobar.Locality]float64 { return does }}
	w := newWorld(t, a)
	w.evidence.SetSites("checkout", []load.Site{{Locality: zoneA, Endpoints: 10, Usable: 10}, {Locality: zoneB, Endpoints: 10, Usable: 10}})
	w.run(3)
	for _, step := range []struct {
		does  shares
		cause string
	}{
		{shares{zoneA: 0.7, zoneB: 0.3}, load.CauseZoneAware},
		{shares{zoneA: 0.5, zoneB: 0.5}, load.CauseZoneAware}, // also in proportion to the endpoints
		{shares{zoneA: 0.6, zoneB: 0.4}, load.CauseZoneAware},
	} {
		does = step.does
		if f := w.run(1); len(f.Deviating) != 1 || f.Deviating[0].Cause != step.cause {
			t.Fatalf("%v: %+v, want %q", step.does, f.Deviating, step.cause)
		}
	}
	a.shares, does = shares{zoneA: 0.8, zoneB: 0.2}, shares{zoneA: 0.5, zoneB: 0.5}
	w.assign(a, a.shares)
	if f := w.run(6); len(f.Deviating) != 1 || f.Deviating[0].Cause != load.CauseUnweighted {
		t.Fatalf("%+v, want %q", f.Deviating, load.CauseUnweighted)
	}
}

// TestIgnoringIsNoFailover: a client that sends everything to a locality of a lower tier
// reports as one whose localities fail. Those that others reach tell the difference.
func TestIgnoringIsNoFailover(t *testing.T) {
	both := shares{zoneA: 0.5, zoneB: 0.5}
	for _, tc := range []struct {
		name   string
		fate   func(from, to isobar.Locality) fate // of the other client locality
		usable int                                 // of 10 endpoints in zoneB
		cause  string
	}{
		{"others get through", nil, 10, load.CauseUnknown},
		{"nobody gets through", func(from, to isobar.Locality) fate {
			if from == zoneB && to == zoneB {
				return failed
			}
			return served
		}, 10, load.CauseFailover},
		{"some endpoints are unhealthy", nil, 9, load.CauseFailover},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ignores := &worldSource{at: zoneA, nodes: 1, rate: 100, shares: both, obey: func(int) map[isobar.Locality]float64 { return shares{zoneC: 1} }}
			obeys := &worldSource{at: zoneB, nodes: 1, rate: 100, shares: both}
			w := newWorld(t, ignores, obeys)
			w.fate = tc.fate
			w.edit = func(from, _ isobar.Locality, x *load.LocalityReport) {
				if from == zoneA {
					x.Priority = 1 // as the assignment has it
				}
			}
			w.evidence.SetSites("checkout", []load.Site{
				{Locality: zoneA, Endpoints: 10, Usable: 10}, {Locality: zoneB, Endpoints: 10, Usable: tc.usable}, {Locality: zoneC, Endpoints: 10, Usable: 10},
			})
			f := w.run(4)
			i := slices.IndexFunc(f.Deviating, func(d load.Deviation) bool { return d.Source == zoneA })
			if i < 0 || f.Deviating[i].Cause != tc.cause {
				t.Fatalf("deviating = %+v, want cause %q", f.Deviating, tc.cause)
			}
		})
	}
}

func TestUnreportedLoadIsSeenByUtilization(t *testing.T) {
	e := load.NewAdherence(load.Settings{Interval: interval})
	e.SetSites("checkout", []load.Site{{Locality: zoneA, Capacity: 1000}, {Locality: zoneB}})
	s := &load.ServiceLoad{Name: "checkout", Covered: true, Sites: []load.SiteLoad{
		{Locality: zoneB, Issued: 10, Metrics: []load.Metric{{Name: load.MetricApplication, Mean: 0.9}}},
		{Locality: zoneA, Issued: 300, Metrics: []load.Metric{{Name: load.MetricApplication, Mean: 0.7}}},
	}}
	s.Sites[0], s.Sites[1] = s.Sites[1], s.Sites[0]
	var f load.Deviations
	for i := range 3 {
		if len(f.Unreported) > 0 {
			t.Fatalf("after %d reports: %v", i, f.Unreported)
		}
		f = e.Observe(at(float64(i)), s, nil)
	}
	if len(f.Unreported) != 1 || f.Unreported[0].Locality != zoneA {
		t.Fatalf("unreported = %v, want one at us-east/a", f.Unreported)
	}
	near(t, "unreported", f.Unreported[0].Rate, 400, 1e-6)

	// It fades without a step, down to nothing: what is steered by it must not
	// come back all at once.
	s.Sites[0].Metrics[0].Mean = 0.3
	last := f.Unreported[0].Rate
	for i := 3; last > 0; i++ {
		now := 0.0
		if f = e.Observe(at(float64(i)), s, nil); len(f.Unreported) > 0 {
			now = f.Unreported[0].Rate
		}
		if step := last - now; step < 0 || step > 0.051*400 || (now == 0 && step > 4) || i > 60 {
			t.Fatalf("after %d reports it goes from %.1f to %.1f", i+1, last, now)
		}
		last = now
	}
}

// twinOff is half the distance between what landed and what was planned, less
// one standard deviation of each locality's observed requests, in requests.
func twinOff(landed map[isobar.Locality]float64, planned shares, total float64) float64 {
	off := 0.0
	for _, l := range []isobar.Locality{zoneA, zoneB, zoneC} {
		deviation := math.Sqrt(total * planned[l] * (1 - planned[l]))
		if d := math.Abs(landed[l]-planned[l]*total) - deviation; d > 0 {
			off += d
		}
	}
	return min(off/2, total)
}

func drawShares(t *rapid.T, name string) shares {
	weights := map[isobar.Locality]int{}
	sum := 0
	for _, l := range []isobar.Locality{zoneA, zoneB, zoneC} {
		weights[l] = rapid.IntRange(0, 10).Draw(t, name)
		sum += weights[l]
	}
	if sum == 0 {
		return shares{zoneA: 1}
	}
	out := shares{}
	for l, w := range weights {
		if w > 0 {
			out[l] = float64(w) / float64(sum)
		}
	}
	return out
}

// TestRoundsTellWhereRequestsLand: whatever a source is told and does, a round
// tells how many of its requests landed elsewhere, as a twin counts them.
func TestRoundsTellWhereRequestsLand(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		planned, does := drawShares(rt, "planned"), drawShares(rt, "does")
		src := &worldSource{at: zoneA, nodes: rapid.IntRange(1, 5).Draw(rt, "nodes"), rate: rapid.Float64Range(0, 200).Draw(rt, "rate"), shares: planned}
		src.obey = func(int) map[isobar.Locality]float64 { return does }
		w := newWorld(t, src)
		var f load.Deviations
		total := 0.0
		for range 10 {
			f = w.run(1)
			n := 0.0
			landed := map[isobar.Locality]float64{}
			for _, l := range src.landings(w, does).Localities {
				landed[*l.Locality] += float64(l.Issued) * float64(src.nodes)
				n += float64(l.Issued) * float64(src.nodes)
			}
			total += n
			if len(f.Rounds) == 0 {
				if n >= 50 && w.now.After(start.Add(2*interval)) {
					rt.Fatalf("%v requests of a window are not judged", n)
				}
				continue
			}
			r := f.Rounds[0]
			if r.Source != zoneA || r.Requests < 50 || r.Off < 0 || r.Off > r.Requests {
				rt.Fatalf("%+v", r)
			}
			if n < 50 {
				continue // several windows together
			}
			if want := twinOff(landed, planned, n); math.Abs(r.Off-want) > 1e-6*n {
				rt.Fatalf("planned %v, did %v: %v of %v requests are off plan, want %v", planned, does, r.Off, r.Requests, want)
			}
		}
		if n := len(f.Rounds); n > 1 {
			rt.Fatalf("%d rounds of one source", n)
		}
	})
}

// TestRoundsWaitForAcknowledgement: what lands before clients have accepted
// their shares is not held against these.
func TestRoundsWaitForAcknowledgement(t *testing.T) {
	src := &worldSource{at: zoneA, nodes: 3, rate: 100, shares: shares{zoneA: 1}}
	w := newWorld(t, src)
	if f := w.run(3); len(f.Rounds) != 1 || f.Rounds[0].Off != 0 {
		t.Fatalf("clients that obey: %+v", f.Rounds)
	}
	old := src.shares
	src.obey = func(int) map[isobar.Locality]float64 { return old }
	w.assign(src, shares{zoneB: 1})
	src.acked = time.Time{} // not yet
	for range 5 {
		for _, r := range w.run(1).Rounds {
			t.Fatalf("held against shares that nobody has: %+v", r)
		}
	}
	src.acked = w.now
	f := w.run(2)
	if len(f.Rounds) != 1 || f.Rounds[0].Off < 0.9*f.Rounds[0].Requests {
		t.Fatalf("clients that do not obey: %+v", f.Rounds)
	}
}
