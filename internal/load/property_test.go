package load_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// reporter is a client that counts a fluid of requests and reports whole ones,
// at a phase and a period of its own: the dumb twin knows only its true rate.
type reporter struct {
	client

	rate    float64 // requests/s, of which dropped are dropped
	dropped float64
	tells   bool          // requests issued
	timed   bool          // its own interval
	next    time.Time     // when it reports
	period  time.Duration // between reports
	last    time.Time
	carry   float64
	carryD  float64
}

func drawReporter(rt *rapid.T, id load.StreamID) *reporter {
	r := &reporter{client: newClient(id, load.Agent(rapid.IntRange(0, 2).Draw(rt, "agent")))}
	r.node.ID = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "node id")
	r.rate = rapid.Float64Range(1, 1000).Draw(rt, "rate")
	r.dropped = rapid.Float64Range(0, 0.3).Draw(rt, "dropped")
	r.tells = rapid.Bool().Draw(rt, "tells issued")
	r.timed = rapid.Bool().Draw(rt, "tells its interval")
	r.period = time.Duration(rapid.Float64Range(0.7, 1.3).Draw(rt, "period") * float64(interval))
	r.next = start.Add(time.Duration(rapid.Float64Range(0.1, 1).Draw(rt, "phase") * float64(r.period)))
	r.last = start
	return r
}

// due makes the reports that are due until now.
func (r *reporter) due(now time.Time) []load.Report {
	var out []load.Report
	for !r.next.After(now) {
		length := r.next.Sub(r.last)
		r.carry += r.rate * (1 - r.dropped) * length.Seconds()
		r.carryD += r.rate * r.dropped * length.Seconds()
		issued, dropped := math.Floor(r.carry), math.Floor(r.carryD)
		r.carry -= issued
		r.carryD -= dropped
		l := load.LocalityReport{Locality: &zoneB, Succeeded: uint64(issued)}
		if r.tells {
			l.Issued, l.HasIssued = uint64(issued), issued > 0
		}
		s := load.ServiceReport{Service: "checkout", Dropped: uint64(dropped), Localities: []load.LocalityReport{l}}
		if r.timed {
			s.Interval = length
		}
		out = append(out, report(r.next, s))
		r.last, r.next = r.next, r.next.Add(r.period)
	}
	return out
}

func TestDemandIsTheSumOfTrueRates(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tab := table()
		var fleet []*reporter
		truth := 0.0
		for i := range rapid.IntRange(1, 12).Draw(rt, "clients") {
			r := drawReporter(rt, load.StreamID(i+1))
			fleet = append(fleet, r)
			truth += r.rate
		}
		tick := time.Duration(rapid.Float64Range(0.2, 2).Draw(rt, "tick") * float64(interval))
		var s *load.Snapshot
		for now := start.Add(tick); now.Before(at(40)); now = now.Add(tick) {
			var w []load.StreamWindow
			for _, r := range fleet {
				w = append(w, r.window(r.due(now)...))
			}
			tab.Merge(w)
			s = tab.Snapshot(now)
			if now.After(at(10)) {
				// A report of whole requests is off by one at most, over its period.
				tolerance := 0.02*truth + 3*float64(len(fleet))/interval.Seconds()
				if got := demand(s); math.Abs(got-truth) > tolerance {
					rt.Fatalf("demand %v at %v, true rate %v", got, now.Sub(start), truth)
				}
			}
		}
		src := s.Service("checkout").Source(zoneA)
		if src.Nodes+src.Held != len(fleet) {
			rt.Fatalf("%d fresh and %d held streams, want %d in all", src.Nodes, src.Held, len(fleet))
		}
	})
}

// Whatever comes, nothing that leaves the table is negative, NaN or infinite,
// and demand never exceeds what was reported or remembered.
func TestTableSurvivesAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tab := table(load.Saved{Service: "checkout", Source: zoneB, Rate: 10})
		now := start
		highest := 10.0
		open := map[load.StreamID]client{}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*interval)).Draw(rt, "step")))
			id := load.StreamID(rapid.IntRange(1, 6).Draw(rt, "stream"))
			c, known := open[id]
			if !known {
				c = newClient(id, load.Agent(rapid.IntRange(0, 2).Draw(rt, "agent")))
				c.open = now
				open[id] = c
			}
			issued := rapid.Uint64Range(0, 1e6).Draw(rt, "issued")
			length := time.Duration(rapid.Int64Range(0, int64(20*interval)).Draw(rt, "length"))
			w := c.window(report(now, sent(length, issued)))
			if rapid.IntRange(0, 9).Draw(rt, "closes") == 0 {
				w.Closed = now
			}
			tab.Merge([]load.StreamWindow{w})
			highest = max(highest, float64(issued)/time.Millisecond.Seconds())
			s := tab.Snapshot(now)
			for i := range s.Services {
				svc := &s.Services[i]
				ok := svc.Coverage >= 0 && svc.Coverage <= 1
				for j := range svc.Sources {
					src := &svc.Sources[j]
					ok = ok && src.Demand >= 0 && src.Demand <= 6*highest && src.Raw >= 0 && src.Raw <= 6*highest
				}
				if !ok {
					rt.Fatalf("snapshot %+v", svc)
				}
			}
		}
	})
}

// Clients that obey make no deviations, whatever chance does to their counts.
func TestObedientClientsMakeNoDeviations(t *testing.T) {
	zones := []isobar.Locality{zoneC, zoneA, zoneB} // sorted
	rapid.Check(t, func(rt *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		rate := rapid.Float64Range(5, 500).Draw(rt, "rate")
		nodes := rapid.IntRange(1, 6).Draw(rt, "nodes")
		a := rapid.Float64Range(0, 1).Draw(rt, "first share")
		b := rapid.Float64Range(0, 1-a).Draw(rt, "second share")
		shares := []float64{a, b, 1 - a - b}
		planned := load.PlannedSource{Source: zoneA, Acked: start}
		for i, l := range zones {
			planned.Shares = append(planned.Shares, load.PlannedShare{Locality: l, Share: shares[i]})
		}
		tab, evidence := table(), load.NewAdherence(load.Settings{Interval: interval})
		for i := 1; i <= 40; i++ {
			var w []load.StreamWindow
			for n := range nodes {
				r := load.ServiceReport{Service: "checkout", Interval: interval}
				counts := make([]uint64, len(zones))
				for range int(rate * interval.Seconds()) {
					x := random.Float64()
					switch {
					case x < a:
						counts[0]++
					case x < a+b:
						counts[1]++
					default:
						counts[2]++
					}
				}
				for z, c := range counts {
					r.Localities = append(r.Localities, load.LocalityReport{Locality: &zones[z], Issued: c, HasIssued: c > 0, Succeeded: c})
				}
				w = append(w, newClient(load.StreamID(n+1), load.AgentGRPC).window(report(at(float64(i)), r)))
			}
			tab.Merge(w)
			f := evidence.Observe(at(float64(i)), tab.Snapshot(at(float64(i))).Service("checkout"), []load.PlannedSource{planned})
			if len(f.Unmanaged)+len(f.Barred)+len(f.Unreachable)+len(f.Deviating) > 0 {
				rt.Fatalf("interval %d: deviations %+v", i, f)
			}
		}
	})
}
