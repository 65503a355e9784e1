package server_test

import (
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/plan"
)

// everywhere makes five clients in each of the four zones.
func everywhere(rate float64, change ...func(*fleet.AgentOptions)) []fleet.AgentOptions {
	var out []fleet.AgentOptions
	for _, z := range []string{"eu/a", "eu/b", "us/a", "us/b"} {
		out = append(out, clients(z, 5, constant(rate), change...)...)
	}
	return out
}

func site(t *testing.T, p *plan.Plan, name string) int {
	t.Helper()
	s, _ := p.Service("checkout")
	for i := range s.Sites {
		if s.Sites[i].Group.Locality == loc(name) {
			return i
		}
	}
	t.Fatalf("no site %s", name)
	return -1
}

// fates are the ways in which requests to a dead zone fail.
var fates = map[string]fleet.Fate{
	"requests fail": fleet.Failed, "no connection is open": fleet.Unconnected, "connections are refused": fleet.Refused,
}

// TestDeadZoneIsFoundByMissingLandings: nobody tells that us/b is dead, all
// requests to it just fail. It is found, avoided but for a probe, and taken
// back when it lives again.
func TestDeadZoneIsFoundByMissingLandings(t *testing.T) {
	for name, fate := range fates {
		t.Run(name, func(t *testing.T) {
			inWorld(t, configuration(t), func(w *world) {
				var dead atomic.Bool
				w.start(everywhere(400, func(o *fleet.AgentOptions) {
					o.Landing = func(_ string, l isobar.Locality) fleet.Fate {
						if dead.Load() && l == loc("us/b") {
							return fate
						}
						return fleet.Served
					}
				})...)
				for range 10 {
					noViolations(t, w.tick())
				}
				dead.Store(true)
				found := waitFor(w, 20, func(p *plan.Plan) bool {
					return worstShare(p, "us/b") <= 0.011
				})
				if !found {
					s, _ := w.server.Plan().Service("checkout")
					t.Fatalf("us/b still gets %.3f of a source; deviations %+v", worstShare(w.server.Plan(), "us/b"), s.Deviations)
				}
				dead.Store(false)
				if !waitFor(w, 40, func(p *plan.Plan) bool { return p.Assignment("checkout", loc("us/b")).Share(loc("us/b")) > 0.95 }) {
					s, _ := w.server.Plan().Service("checkout")
					t.Errorf("us/b lives again and its own source sends %.3f there; deviations %+v",
						w.server.Plan().Assignment("checkout", loc("us/b")).Share(loc("us/b")), s.Deviations)
				}
			})
		})
	}
}

// noisy is a rate that is up to 5% off, by another amount in each interval.
func noisy(source string, rate float64) func(time.Time) float64 {
	return func(now time.Time) float64 {
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%s %d", source, now.Unix()/int64(interval/time.Second))
		return rate * (1 + 0.05*(2*float64(h.Sum64()%1000)/1000-1))
	}
}

// TestDeadZoneStaysFound: a dead zone gets no more than probes for as long as
// it is dead, and is taken back when it lives again, though demand is noisy and
// pushes take half an interval.
func TestDeadZoneStaysFound(t *testing.T) {
	for name, fate := range fates {
		t.Run(name, func(t *testing.T) {
			inWorld(t, configuration(t), func(w *world) {
				var dead atomic.Bool
				var agents []fleet.AgentOptions
				for i, z := range []string{"eu/a", "eu/b", "us/a", "us/b"} {
					agents = append(agents, clients(z, 5, noisy(z, 400+100*float64(i)), func(o *fleet.AgentOptions) {
						o.PushDelay = interval / 2
						o.Landing = func(_ string, l isobar.Locality) fleet.Fate {
							if dead.Load() && l == loc("us/b") {
								return fate
							}
							return fleet.Served
						}
					})...)
				}
				w.start(agents...)
				for range 20 {
					noViolations(t, w.tick())
				}
				dead.Store(true)
				if !waitFor(w, 12, func(p *plan.Plan) bool { return worstShare(p, "us/b") <= 0.011 }) {
					s, _ := w.server.Plan().Service("checkout")
					w.t.Fatalf("us/b still gets %.3f of a source; deviations %+v", worstShare(w.server.Plan(), "us/b"), s.Deviations)
				}
				for n := range int(15 * time.Minute / interval) {
					p := w.tick()
					noViolations(t, p)
					if got := worstShare(p, "us/b"); got > 0.011 {
						s, _ := p.Service("checkout")
						w.t.Fatalf("%d ticks after it was found dead us/b gets %.3f of a source; deviations %+v", n+1, got, s.Deviations)
					}
				}
				dead.Store(false)
				if !waitFor(w, 40, func(p *plan.Plan) bool { return p.Assignment("checkout", loc("us/b")).Share(loc("us/b")) > 0.9 }) {
					s, _ := w.server.Plan().Service("checkout")
					w.t.Errorf("us/b lives again and its own source sends %.3f there; deviations %+v",
						w.server.Plan().Assignment("checkout", loc("us/b")).Share(loc("us/b")), s.Deviations)
				}
			})
		})
	}
}

// waitFor lets the loop turn until something holds, at most n ticks.
func waitFor(w *world, n int, holds func(*plan.Plan) bool) bool {
	for range n {
		p := w.tick()
		noViolations(w.t, p)
		if holds(p) {
			return true
		}
	}
	return false
}

// worstShare is the largest share that any source sends to a locality.
func worstShare(p *plan.Plan, to string) float64 {
	worst := 0.0
	for _, z := range []string{"eu/a", "eu/b", "us/a", "us/b"} {
		worst = max(worst, p.Assignment("checkout", loc(z)).Share(loc(to)))
	}
	return worst
}

// TestMisconfiguredClientsCannotDrainAZoneForOthers: two clients of a source
// can't reach a zone, and two of another send all they have to one zone
// whatever they are told. Neither takes the zone away from anybody else.
func TestMisconfiguredClientsCannotDrainAZoneForOthers(t *testing.T) {
	inWorld(t, configuration(t), func(w *world) {
		agents := everywhere(400)
		for i := range agents {
			switch agents[i].ID {
			case "us/a-0", "us/a-1":
				agents[i].Landing = func(_ string, l isobar.Locality) fleet.Fate {
					if l == loc("us/a") {
						return fleet.Failed
					}
					return fleet.Served
				}
			case "eu/a-0", "eu/a-1":
				agents[i].Split = fleet.OwnLocality(loc("us/b"))
			}
		}
		w.start(agents...)
		// The first report comes at the same moment as the first decision. If it
		// comes before, those who have not reported yet are spread over their region,
		// and return at the usual pace.
		if !waitFor(w, 8, func(p *plan.Plan) bool {
			return min(p.Assignment("checkout", loc("us/a")).Share(loc("us/a")), p.Assignment("checkout", loc("us/b")).Share(loc("us/b"))) > 0.8
		}) {
			t.Fatal("us/a and us/b never kept their own traffic")
		}
		for range 40 {
			p := w.tick()
			noViolations(t, p)
			s, _ := p.Service("checkout")
			for _, z := range []string{"us/a", "us/b"} {
				if i := site(t, p, z); s.Sites[i].Unreachable || s.Sites[i].Capacity < 1000 {
					t.Fatalf("%s lost its capacity: %+v", z, s.Sites[i])
				}
				if got := p.Assignment("checkout", loc(z)).Share(loc(z)); got < 0.8 {
					t.Fatalf("%s keeps %.3f of its own traffic, want nearly all: what the disobedient add leaves room for it", z, got)
				}
			}
		}
		e, err := w.server.Plan().Explain("checkout", loc("eu/a"))
		if err != nil {
			t.Fatal(err)
		}
		if e.Deviation == nil {
			t.Error("explain does not name eu/a, of which two in five clients do what they like")
		}
	})
}

// TestUnmanagedLoadHasItsHeadroom: load beyond plan
// counts as unmanaged load where it lands, so that other load keeps away.
func TestUnmanagedLoadHasItsHeadroom(t *testing.T) {
	inWorld(t, configuration(t), func(w *world) {
		agents := everywhere(300)
		rogues := clients("eu/a", 3, constant(600), func(o *fleet.AgentOptions) {
			o.Split = fleet.OwnLocality(loc("us/b"))
			o.ID = "rogue-" + o.ID
		})
		w.start(append(agents, rogues...)...)
		ok := waitFor(w, 40, func(p *plan.Plan) bool {
			s, _ := p.Service("checkout")
			i := site(t, p, "us/b")
			landing := s.Result.Load[i] + s.Sites[i].Unmanaged
			return s.Sites[i].Unmanaged > 450 && landing <= 805
		})
		if !ok {
			s, _ := w.server.Plan().Service("checkout")
			i := site(t, w.server.Plan(), "us/b")
			t.Errorf("us/b: unmanaged load %.0f, load %.0f; deviations %+v", s.Sites[i].Unmanaged, s.Result.Load[i], s.Deviations)
		}
	})
}
