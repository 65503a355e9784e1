package load_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

func nodesOf(deviations []load.Deviation) (out []string) {
	for i := range deviations {
		for _, c := range deviations[i].Clients {
			out = append(out, c.Node)
		}
	}
	return out
}

// TestDeviatingClientsAreNamed: of a source that deviates, the clients whose own reports
// are off are named, the largest first; where all are a little off, nobody is.
func TestDeviatingClientsAreNamed(t *testing.T) {
	planned := shares{zoneA: 0.8, zoneB: 0.2}
	for _, tc := range []struct {
		name   string
		nodes  int
		obey   func(node int) map[isobar.Locality]float64
		want   []string
		others int
		points float64
		to     isobar.Locality
		share  float64
	}{
		{"one of four", 4, func(n int) map[isobar.Locality]float64 {
			if n == 2 {
				return shares{zoneB: 1}
			}
			return nil
		}, []string{"n2"}, 0, 80, zoneB, 1},
		{"more than are named", 8, func(int) map[isobar.Locality]float64 { return shares{zoneB: 1} }, []string{"n0", "n1", "n2", "n3", "n4"}, 3, 80, zoneB, 1},
		{"to where nothing is planned", 2, func(int) map[isobar.Locality]float64 { return shares{zoneC: 1} }, []string{"n0", "n1"}, 0, 100, zoneC, 1},
		{"all a little", 4, func(int) map[isobar.Locality]float64 { return shares{zoneA: 0.67, zoneB: 0.33} }, nil, 0, 0, zoneA, 0},
		{"the only one a little", 1, func(int) map[isobar.Locality]float64 { return shares{zoneA: 0.67, zoneB: 0.33} }, []string{"n0"}, 0, 13, zoneA, 0.67},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, &worldSource{at: zoneA, nodes: tc.nodes, rate: 200, shares: planned, named: true, obey: tc.obey})
			f := w.run(3)
			if len(f.Deviating) != 1 {
				t.Fatalf("deviating = %+v", f.Deviating)
			}
			d := f.Deviating[0]
			for _, c := range d.Clients {
				near(t, "points of "+c.Node, c.Points, tc.points, 1)
				near(t, "rate of "+c.Node, c.Rate, 200, 1)
				near(t, "share of "+c.To.String(), c.ToShare, tc.share, 0.02)
				if c.To != tc.to {
					t.Errorf("%s sends most to %s, want %s", c.Node, c.To, tc.to)
				}
			}
			if names := nodesOf(f.Deviating); !slices.Equal(names, tc.want) || d.Others != tc.others {
				t.Errorf("named %v and %d more, want %v and %d", names, d.Others, tc.want, tc.others)
			}
			if len(f.Individual) > 0 {
				t.Errorf("named twice: %+v", f.Individual)
			}
		})
	}
}

// only returns what obey of a source is where one node has shares of its own.
func only(node int, s shares) func(int) map[isobar.Locality]float64 {
	return func(n int) map[isobar.Locality]float64 {
		if n == node {
			return s
		}
		return nil
	}
}

// TestSingleClientsAreNamed: a client that ignores its weights is named although its
// locality as a whole follows, or its shares change all the time.
func TestSingleClientsAreNamed(t *testing.T) {
	elsewhere := shares{zoneC: 1}
	for _, tc := range []struct {
		name    string
		nodes   int
		rate    float64
		obey    func(int) map[isobar.Locality]float64
		changes float64 // of the share of us-east/a, up and down with each interval
		edit    func(from, to isobar.Locality, x *load.LocalityReport)
		want    []string
		points  float64
	}{
		{name: "one of 20", nodes: 20, rate: 200, obey: only(3, elsewhere), want: []string{"n3"}, points: 100},
		{name: "one of 20 while shares change", nodes: 20, rate: 200, obey: only(3, elsewhere), changes: 0.1, want: []string{"n3"}, points: 100},
		{name: "all weight where a part belongs", nodes: 20, rate: 200, obey: only(3, shares{zoneB: 1}), changes: 0.1, want: []string{"n3"}, points: 50},
		{name: "few requests", nodes: 20, rate: 3, obey: only(3, elsewhere), want: []string{"n3"}, points: 100},
		{name: "too few requests", nodes: 20, rate: 1.8, obey: only(3, elsewhere)},
		{name: "within what its shares were", nodes: 20, rate: 200, obey: only(3, shares{zoneA: 0.55, zoneB: 0.45}), changes: 0.1},
		{name: "a little off", nodes: 20, rate: 200, obey: only(3, shares{zoneA: 0.46, zoneB: 0.54})},
		{name: "its requests fail", nodes: 20, rate: 200, obey: only(3, elsewhere), edit: func(_, to isobar.Locality, x *load.LocalityReport) {
			if to == zoneC {
				x.Errors = x.Issued / 10
				x.Succeeded = x.Issued - x.Errors
			}
		}},
		{name: "through a lower tier", nodes: 20, rate: 200, obey: only(3, elsewhere), edit: func(_, to isobar.Locality, x *load.LocalityReport) {
			if to == zoneC {
				x.Priority = 1
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &worldSource{at: zoneA, nodes: tc.nodes, rate: tc.rate, shares: shares{zoneA: 0.6, zoneB: 0.4}, named: true, obey: tc.obey}
			w := newWorld(t, a)
			w.edit = tc.edit
			for k := range 8 {
				if f := w.run(1); len(f.Deviating) > 0 || k < 2 && len(f.Individual) > 0 {
					t.Fatalf("after %d windows: %+v", k+1, f)
				}
				if names := nodesOf(w.deviations.Individual); k > 3 && !slices.Equal(names, tc.want) {
					t.Fatalf("after %d windows named %v, want %v", k+1, names, tc.want)
				}
				if tc.changes > 0 { // some clients use them within the window, others had the ones before
					w.assign(a, shares{zoneA: 0.6 - tc.changes*float64(k%2), zoneB: 0.4 + tc.changes*float64(k%2)})
					a.acked = w.now.Add(interval / 2)
				}
			}
			for _, d := range w.deviations.Individual {
				near(t, "points", d.Clients[0].Points, tc.points, 1)
			}
		})
	}
}

// TestSingleClientIsNoLongerNamed: the name goes with the first window that is as planned.
func TestSingleClientIsNoLongerNamed(t *testing.T) {
	a := &worldSource{at: zoneA, nodes: 20, rate: 200, shares: shares{zoneA: 0.6, zoneB: 0.4}, named: true, obey: only(3, shares{zoneC: 1})}
	w := newWorld(t, a)
	if f := w.run(3); len(f.Individual) != 1 {
		t.Fatalf("named %+v", f.Individual)
	}
	a.obey = nil
	if f := w.run(1); len(f.Individual) > 0 {
		t.Fatalf("still named: %+v", f.Individual)
	}
}

// TestSilentClientIsNotNamed: what a client told long ago says nothing of now.
func TestSilentClientIsNotNamed(t *testing.T) {
	w := newWorld(t,
		&worldSource{at: zoneA, nodes: 20, rate: 200, shares: shares{zoneA: 0.6, zoneB: 0.4}, named: true, obey: only(3, shares{zoneC: 1})},
		&worldSource{at: zoneC, nodes: 1, rate: 200, shares: shares{zoneC: 1}})
	if f := w.run(3); len(f.Individual) != 1 {
		t.Fatalf("named %+v", f.Individual)
	}
	w.sources = w.sources[:0]
	w.now = w.now.Add(10 * interval)
	svc := w.tab.Snapshot(w.now).Service("checkout")
	f := w.evidence.Observe(w.now, svc, []load.PlannedSource{{Source: zoneA, Acked: start, Streams: 20, Shares: []load.PlannedShare{{Locality: zoneA, Share: 1}}}})
	if w.evidence.Name(&f, w.tab); len(f.Individual) > 0 {
		t.Fatalf("named after ten intervals without a report: %+v", f.Individual)
	}
}

// Clients that choose a locality at random for each request, by the shares that are in
// force, are never named, whatever the shares, their changes and the number of requests.
func TestChanceNamesNobody(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const clients = 8
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		perWindow := rapid.IntRange(1, 400).Draw(rt, "requests")
		pushes := rapid.IntRange(0, 10).Draw(rt, "pushes") // in ten intervals
		tab, e := table(), load.NewAdherence(load.Settings{Interval: interval})
		current := drawOrder(rt, start.Add(-10*interval), nil, clients)
		for k := range 30 {
			now := at(float64(k + 1))
			var w []load.StreamWindow
			for i := range clients {
				c := newClient(load.StreamID(i+1), load.AgentGRPC)
				c.open = start
				w = append(w, c.window(report(now, chosen(random, current.shares, perWindow))))
			}
			tab.Merge(w)
			s := tab.Snapshot(now).Service("checkout")
			f := e.Observe(now, s, []load.PlannedSource{{Source: zoneA, Shares: current.shares, Acked: now.Add(-interval), Streams: clients}})
			if e.Name(&f, tab); len(f.Individual) > 0 {
				rt.Fatalf("after %d intervals with %d requests each: %+v", k+1, perWindow, f.Individual)
			}
			if rapid.IntRange(0, 10).Draw(rt, "push") < pushes {
				current = drawOrder(rt, now, nil, clients)
			}
		}
	})
}

// chosen is what a client reports that chooses a locality for each request.
func chosen(random *rand.Rand, planned []load.PlannedShare, requests int) load.ServiceReport {
	counts := make([]uint64, len(planned))
	for range requests {
		x := random.Float64()
		for i := range planned {
			if x -= planned[i].Share; x < 0 || i == len(planned)-1 {
				counts[i]++
				break
			}
		}
	}
	r := load.ServiceReport{Service: "checkout", Interval: interval}
	for i, n := range counts {
		r.Localities = append(r.Localities, load.LocalityReport{Locality: &planned[i].Locality, Issued: n, HasIssued: true, Succeeded: n})
	}
	return r
}

// BenchmarkName judges the clients of a service, 2,000 in each of 10 localities, whose
// shares over 30 localities change with each tick. A tenth of them reports in a tick.
func BenchmarkName(b *testing.B) {
	const clients, sources, sites, ticks = 2_000, 10, 30, 10
	places := make([]isobar.Locality, sites)
	for i := range places {
		places[i] = isobar.Locality{Region: "r", Zone: string(rune('A' + i))}
	}
	tab, e := table(), load.NewAdherence(load.Settings{Interval: interval})
	planned := func(tick int, acked time.Time) (out []load.PlannedSource) {
		for s := range sources {
			p := load.PlannedSource{Source: places[s], Acked: acked, Streams: clients}
			for i := range places {
				p.Shares = append(p.Shares, load.PlannedShare{Locality: places[i], Share: (1 + 0.01*float64((i+tick)%2)) / sites})
			}
			out = append(out, p)
		}
		return out
	}
	windows := make([]load.StreamWindow, 0, clients*sources/ticks)
	b.ReportAllocs()
	now, tick := start, 0
	step := func() *load.ServiceLoad {
		now, tick = now.Add(interval/ticks), tick+1
		windows = windows[:0]
		for c := tick % ticks; c < clients*sources; c += ticks {
			r := load.ServiceReport{Service: "checkout", Interval: interval}
			for i := range places {
				r.Localities = append(r.Localities, load.LocalityReport{Locality: &places[i], Issued: 10, HasIssued: true, Succeeded: 10})
			}
			windows = append(windows, load.StreamWindow{
				Stream: load.StreamID(c + 1), Opened: start, Reports: []load.Report{report(now, r)},
				Node: load.Node{ID: "n", Cluster: "web", Locality: places[c%sources], Agent: load.AgentGRPC},
			})
		}
		tab.Merge(windows)
		return tab.Snapshot(now).Service("checkout")
	}
	for range 4 * ticks {
		e.Observe(now, step(), planned(tick, now.Add(-interval/ticks)))
	}
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		f := e.Observe(now, step(), planned(tick, now.Add(-interval/ticks)))
		b.StartTimer()
		e.Name(&f, tab)
	}
}
