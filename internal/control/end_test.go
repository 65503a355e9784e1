package control_test

import (
	"errors"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// dropping returns parts with a service whose clients drop a fifth of their requests by the
// plan that was saved.
func dropping() (p *parts, saved plan.Saved) {
	p, east := newParts(), isobar.MustLocality("east/a")
	service := web("web", 1)
	service.MaxShed = 0.5
	p.topology.Services = []isobar.Service{service}
	return p, plan.Saved{Version: 41, Services: []plan.SavedService{{
		Name: "web", Drop: 0.2, Sites: []isobar.Locality{east, isobar.MustLocality("east/b")},
		Sources: []plan.SavedSource{{Source: east, Demand: 3000, Shares: []float64{0.5, 0.5}}},
	}}}
}

// TestLastOfAGroup asserts that clients drop nothing once the last replica of a group has
// ended, and that a leader that leaves others behind changes nothing.
func TestLastOfAGroup(t *testing.T) {
	for _, last := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			p, saved := dropping()
			g := &leader{epoch: 2, version: 1_000_000, last: last, unserved: gone(), base: &plan.Opened{Plan: &plan.Plan{Version: 41}, Saved: saved}}
			l, stop := start(t, p, slowTicks, func(o *control.Options) { o.Group = g })
			before := l.Current()
			if s, _ := before.Service("web"); s.Result.Drop != 0.2 {
				t.Fatalf("version %d drops %v", before.Version, s.Result.Drop)
			}
			stop()
			after := l.Current()
			if s, _ := after.Service("web"); (s.Result.Drop == 0) != last || (after.Version > before.Version) != last {
				t.Errorf("the last one: %t; version %d drops %v after %d", last, after.Version, s.Result.Drop, before.Version)
			}
			shared := g.shared[len(g.shared)-1]
			if s, _ := shared.Service("web"); s.Result.Drop != 0.2 || shared.Final != last || shared.Version != after.Version {
				t.Errorf("the last one: %t; the group got version %d, parting %t, drop %v: who leads next goes on from that",
					last, shared.Version, shared.Final, s.Result.Drop)
			}
			if drop := p.saved[len(p.saved)-1].Services[0].Drop; drop != 0.2 {
				t.Errorf("it saved a drop of %v", drop)
			}
		})
	}
}

// TestFollowersOfTheLastLeader asserts that a follower which ends with all others shows its
// clients the leader's plan without drops, and that one which leaves others behind does not wait
// for such a plan.
func TestFollowersOfTheLastLeader(t *testing.T) {
	for _, parts := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			p, saved := dropping()
			made, err := plan.Restore(&saved, p.topology, health.Table{}, time.Now(), 1_000_001)
			if err != nil {
				t.Fatal(err)
			}
			g := &follower{leader: leader{epoch: 2, unserved: gone()}, changed: make(chan struct{}, 1), received: opened(t, made)}
			l, stop := start(t, p, func(o *control.Options) { o.Group = g })
			if !l.Current().Drops() {
				t.Fatalf("version %d drops nothing", l.Current().Version)
			}
			if parts {
				time.AfterFunc(300*time.Millisecond, func() { g.tell(opened(t, made.FinalPlan(time.Now(), 1_000_002))) })
			}
			began := time.Now()
			stop()
			if took := time.Since(began); took > time.Second || parts && took > 400*time.Millisecond {
				t.Errorf("parts %t: the end took %v", parts, took)
			}
			if last := l.Current(); last.Drops() == parts || l.Undropped() != parts {
				t.Errorf("parts %t: version %d drops: %t", parts, last.Version, last.Drops())
			}
			if drop := p.saved[len(p.saved)-1].Services[0].Drop; drop != 0.2 {
				t.Errorf("parts %t: it saved a drop of %v", parts, drop)
			}
		})
	}
}

// gone is what Unserved returns for a replica without clients.
func gone() chan struct{} {
	unserved := make(chan struct{})
	close(unserved)
	return unserved
}

// dropper returns a follower that the leader before told to drop requests, with that plan. Where
// it leads later, its plans are those above version 2,000,000.
func dropper(t *testing.T, p *parts, saved *plan.Saved) (*follower, *plan.Plan) {
	t.Helper()
	made, err := plan.Restore(saved, p.topology, health.Table{}, time.Now(), 1_000_001)
	if err != nil {
		t.Fatal(err)
	}
	g := &follower{leader: leader{epoch: 2, version: 2_000_000, unserved: gone()}, changed: make(chan struct{}, 1), received: opened(t, made)}
	g.base = g.received
	return g, made
}

// winner starts such a follower, which becomes the leader as it ends.
func winner(t *testing.T, p *parts, saved *plan.Saved) (g *follower, l *control.Loop, stop func()) {
	t.Helper()
	g, _ = dropper(t, p, saved)
	l, stop = start(t, p, func(o *control.Options) { o.Group = g })
	g.becomes(control.Leads, 3)
	return g, l, stop
}

// TestFollowerThatWinsAsItEnds asserts that clients drop nothing more where the leader has left
// a moment before all others end: the one that wins the election meanwhile takes the drops back,
// also if that takes longer than a follower waits for its leader.
func TestFollowerThatWinsAsItEnds(t *testing.T) {
	for _, claims := range []time.Duration{0, 300 * time.Millisecond, 1500 * time.Millisecond, 4 * time.Second} {
		bubble.Test(t, func(t *testing.T) {
			p, saved := dropping()
			g, _ := dropper(t, p, &saved)
			l, stop := start(t, p, func(o *control.Options) { o.Group = g })
			g.becomes(control.Claims, 0)
			time.AfterFunc(claims, func() { g.becomes(control.Leads, 3) })
			began := time.Now()
			stop()
			if took := time.Since(began); took > claims+100*time.Millisecond || took > 3100*time.Millisecond {
				t.Errorf("it claims for %v: the end took %v", claims, took)
			}
			leads := claims <= 3*time.Second // else the claim takes longer than a replica that ends waits
			if last := l.Current(); last.Drops() == leads || (last.Version > 2_000_000) != leads || l.Undropped() != leads {
				t.Errorf("it claims for %v: version %d drops: %t, undropped: %t", claims, last.Version, last.Drops(), l.Undropped())
			}
			if n := len(g.shared); leads && (n == 0 || !g.shared[n-1].Final) {
				t.Errorf("it claims for %v: the other replicas don't know that drops were taken back", claims)
			}
		})
	}
}

// TestFollowersOfAKilledLeader asserts that clients drop nothing more where the leader was killed
// a moment before all others end: the one that wins the election once the lease has run out takes
// the drops back. A replica that hears one that stays, or that never wins, ends.
func TestFollowersOfAKilledLeader(t *testing.T) {
	const never = time.Hour
	for _, c := range []struct {
		name            string
		wins, hears     time.Duration // when it wins, and when it hears a replica that stays
		atLeast, atMost time.Duration // that the end takes
		leads           bool
	}{
		{"of an election by etcd", 11 * time.Second, never, 12 * time.Second, 12100 * time.Millisecond, true},
		{"of an election by Kubernetes", 15 * time.Second, never, 16 * time.Second, 16100 * time.Millisecond, true},
		{"whose lease was seen late", 16500 * time.Millisecond, never, 17500 * time.Millisecond, 17600 * time.Millisecond, true},
		{"that is only slow", never, 300 * time.Millisecond, time.Second, 1100 * time.Millisecond, false},
		{"that comes back late", never, 5 * time.Second, 5 * time.Second, 5100 * time.Millisecond, false},
		{"whose last renewal was seen late", 18500 * time.Millisecond, never, 19500 * time.Millisecond, 19600 * time.Millisecond, true},
		{"that holds its lease", never, never, 19 * time.Second, 19100 * time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p, saved := dropping()
				g, _ := dropper(t, p, &saved)
				l, stop := start(t, p, func(o *control.Options) { o.Group = g })
				g.closes(true)
				for _, after := range []struct {
					time time.Duration
					do   func()
				}{
					{c.wins, func() { g.becomes(control.Claims, 0) }},
					{c.wins + time.Second, func() { g.becomes(control.Leads, 3) }},
					{c.hears, func() { g.closes(false) }},
				} {
					if after.time < never {
						time.AfterFunc(after.time, after.do)
					}
				}
				began := time.Now()
				stop()
				if took := time.Since(began); took < c.atLeast || took > c.atMost {
					t.Errorf("the end took %v", took)
				}
				if last := l.Current(); last.Drops() == c.leads || l.Undropped() != c.leads {
					t.Errorf("version %d drops: %t, undropped: %t", last.Version, last.Drops(), l.Undropped())
				}
			})
		})
	}
}

// TestLeaderOfKilledFollowers asserts that a leader which ends a moment after its followers were killed
// waits until they count as dead, and takes drops back; not for ones that answer, and not for longer.
func TestLeaderOfKilledFollowers(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		answer, dead time.Duration // when the followers answer, and when they count as dead
		took         time.Duration
		last         bool
	}{
		"killed":               {answer: never, dead: 2400 * time.Millisecond, took: 2400 * time.Millisecond, last: true},
		"alive":                {answer: 10 * time.Millisecond, dead: never, took: 500 * time.Millisecond},
		"slow":                 {answer: 800 * time.Millisecond, dead: never, took: 800 * time.Millisecond},
		"that leave no traces": {answer: never, dead: never, took: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p, saved := dropping()
				g := &follower{leader: leader{epoch: 2, version: 1_000_000, unserved: gone()}, changed: make(chan struct{}, 1), role: control.Leads}
				g.base = &plan.Opened{Plan: &plan.Plan{Version: 41}, Saved: saved}
				l, stop := start(t, p, slowTicks, func(o *control.Options) { o.Group = g })
				g.closes(true)
				time.AfterFunc(c.answer, func() { g.closes(false) })
				time.AfterFunc(c.dead, func() { g.becomes(control.Leads, 2) })
				began := time.Now()
				stop()
				if took := time.Since(began); took < c.took || took > c.took+100*time.Millisecond {
					t.Errorf("the end took %v, want %v", took, c.took)
				}
				if l.Current().Drops() == c.last || l.Undropped() != c.last {
					t.Errorf("version %d drops: %t, undropped: %t", l.Current().Version, l.Current().Drops(), l.Undropped())
				}
			})
		})
	}
}

// TestSavedAsAllEnd asserts that a replica saves the newest plan with its drops as it ends, however
// these were taken back: a server that goes on from its state begins with that.
func TestSavedAsAllEnd(t *testing.T) {
	for name, c := range map[string]struct {
		ends    func(g *follower, newer, parting *plan.Opened)
		version uint64
	}{
		"the leader takes them back before": {
			func(g *follower, _, parting *plan.Opened) {
				g.tell(parting)
				g.changed <- struct{}{}
				pass(time.Millisecond)
			}, 1_000_003,
		},
		"the leader takes them back meanwhile": {
			func(g *follower, _, parting *plan.Opened) {
				time.AfterFunc(300*time.Millisecond, func() { g.tell(parting) })
			}, 1_000_003,
		},
		"the leader decides meanwhile, and leaves": {
			func(g *follower, newer, _ *plan.Opened) {
				time.AfterFunc(300*time.Millisecond, func() { g.tell(newer) })
			}, 1_000_002,
		},
		"it leads, and takes them back": {
			func(g *follower, newer, _ *plan.Opened) {
				g.base = newer
				g.becomes(control.Leads, 3)
			}, 2_000_002,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p, saved := dropping()
				g, _ := dropper(t, p, &saved)
				saved.Services[0].Drop = 0.3
				next, err := plan.Restore(&saved, p.topology, health.Table{}, time.Now(), 1_000_002)
				if err != nil {
					t.Fatal(err)
				}
				_, stop := start(t, p, func(o *control.Options) { o.Group = g })
				c.ends(g, opened(t, next), opened(t, next.FinalPlan(time.Now(), 1_000_003)))
				stop()
				if got := p.saved[len(p.saved)-1]; got.Version != c.version || got.Services[0].Drop != 0.3 {
					t.Errorf("it saved version %d with a drop of %v, want %d with 0.3", got.Version, got.Services[0].Drop, c.version)
				}
			})
		})
	}
}

// TestWinnerThatCannotReadAtFirst asserts that a replica which wins the election as it ends
// tries again to take drops back where it can't read what operators wrote, for a bounded time.
func TestWinnerThatCannotReadAtFirst(t *testing.T) {
	for failing, most := range map[int]time.Duration{1: 100 * time.Millisecond, 150: 2 * time.Second, 1_000_000: 3100 * time.Millisecond} {
		bubble.Test(t, func(t *testing.T) {
			p, saved := dropping()
			g, l, stop := winner(t, p, &saved)
			g.failing = failing
			began := time.Now()
			stop()
			if took := time.Since(began); took > most {
				t.Errorf("%d reads fail: the end took %v", failing, took)
			}
			if last, ends := l.Current(), failing < 1000; last.Drops() == ends || l.Undropped() != ends {
				t.Errorf("%d reads fail: version %d drops: %t, undropped: %t", failing, last.Version, last.Drops(), l.Undropped())
			}
		})
	}
}

// TestLateWinnerThatCannotReadAtFirst asserts that a replica which wins the election late tries for
// just as long to take drops back.
func TestLateWinnerThatCannotReadAtFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, saved := dropping()
		g, _ := dropper(t, p, &saved)
		l, stop := start(t, p, func(o *control.Options) { o.Group = g })
		g.closes(true)
		g.failing = 150 // of a hundred attempts a second
		time.AfterFunc(16500*time.Millisecond, func() { g.becomes(control.Leads, 3) })
		began := time.Now()
		stop()
		if took := time.Since(began); l.Current().Drops() || !l.Undropped() || took > 18500*time.Millisecond {
			t.Errorf("after %v version %d drops: %t, undropped: %t", took, l.Current().Version, l.Current().Drops(), l.Undropped())
		}
	})
}

// TestWinnerThatFollowsAgain asserts that a replica which could not take drops back, and then lost
// leadership, still ends.
func TestWinnerThatFollowsAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, saved := dropping()
		g, _, stop := winner(t, p, &saved)
		g.failing = 1_000_000
		time.AfterFunc(time.Second, func() { g.becomes(control.Follows, 0) })
		time.AfterFunc(time.Minute, func() { g.becomes(control.Leads, 4); g.failing = 0 }) // so that the test ends in any case
		began := time.Now()
		stop()
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the end took %v", took)
		}
	})
}

// TestWinnerReservesItsVersions asserts that what a replica saves at its end reserves the
// versions of the claim in which it took drops back, also where the disk is slow.
func TestWinnerReservesItsVersions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, saved := dropping()
		p.slow = 10 * time.Second
		_, l, stop := winner(t, p, &saved)
		stop()
		if version, reserved := l.Current().Version, p.saved[len(p.saved)-1].Reserved; version <= 2_000_000 || reserved != 3_000_000 {
			t.Errorf("version %d is in force, %d are reserved", version, reserved)
		}
	})
}

// without returns a plan of another replica with a version, in which clients drop nothing.
func without(t *testing.T, p *plan.Plan, version uint64) *plan.Opened {
	t.Helper()
	return opened(t, p.WithoutDrops(time.Now(), version))
}

// TestWinnerOfAPlanWithoutDrops asserts that a replica which wins the election as it ends shows
// its clients the newest plan of the group, where that drops nothing any more.
func TestWinnerOfAPlanWithoutDrops(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, saved := dropping()
		g, made := dropper(t, p, &saved)
		g.base = without(t, made, 1_000_002)
		l, stop := start(t, p, func(o *control.Options) { o.Group = g })
		if !l.Current().Drops() {
			t.Fatalf("version %d drops nothing", l.Current().Version)
		}
		g.becomes(control.Leads, 3)
		stop()
		if last := l.Current(); last.Drops() || last.Version != 2_000_001 || !l.Undropped() {
			t.Errorf("version %d drops: %t, undropped: %t", last.Version, last.Drops(), l.Undropped())
		}
	})
}

// TestPlanWithoutDropsAsItEnds asserts that a replica which ends is done once the group has a
// plan that drops nothing, whether it then is the last one or not.
func TestPlanWithoutDropsAsItEnds(t *testing.T) {
	for _, last := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			p, saved := dropping()
			g := &follower{leader: leader{epoch: 2, version: 1_000_000, unserved: gone()}, changed: make(chan struct{}, 1), role: control.Leads}
			g.base = &plan.Opened{Plan: &plan.Plan{Version: 41}, Saved: saved}
			l, stop := start(t, p, slowTicks, func(o *control.Options) { o.Group = g })
			time.AfterFunc(95*time.Millisecond, func() { g.tell(without(t, l.Current(), 2_000_002)) })
			if last {
				time.AfterFunc(105*time.Millisecond, func() { g.becomes(control.Leads, 2) })
			}
			began := time.Now()
			stop()
			if took := time.Since(began); took > 200*time.Millisecond {
				t.Errorf("the last one: %t; the end took %v", last, took)
			}
			if p := l.Current(); p.Drops() || p.Version != 2_000_002 || !l.Undropped() {
				t.Errorf("the last one: %t; version %d drops: %t, undropped: %t", last, p.Version, p.Drops(), l.Undropped())
			}
		})
	}
}

// TestLeaderThatLeftShowsTheLastPlan asserts that clients which a replica has not yet sent away
// drop nothing more once the replicas that it left behind end, too.
func TestLeaderThatLeftShowsTheLastPlan(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, saved := dropping()
		g := &follower{leader: leader{epoch: 2, version: 1_000_000, unserved: make(chan struct{})}, changed: make(chan struct{}, 1), role: control.Leads}
		g.base = &plan.Opened{Plan: &plan.Plan{Version: 41}, Saved: saved}
		l, stop := start(t, p, slowTicks, func(o *control.Options) { o.Group = g })
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stop()
		}()
		pass(time.Second)
		select {
		case <-l.Left():
		default:
			t.Fatal("after 1 s the leader has not left")
		}
		g.tell(opened(t, l.Current().FinalPlan(time.Now(), 2_000_002)))
		g.changed <- struct{}{}
		pass(time.Second)
		if last := l.Current(); last.Drops() || !l.Undropped() || last.Version != 2_000_002 {
			t.Errorf("version %d drops: %t, undropped: %t", last.Version, last.Drops(), l.Undropped())
		}
		close(g.unserved)
		<-stopped
		if drop := p.saved[len(p.saved)-1].Services[0].Drop; drop != 0.2 {
			t.Errorf("it saved a drop of %v", drop)
		}
	})
}

// TestTheLastPlanHasAVersionOfItsOwn: the plan that takes drops back has a
// version that no successor uses again, also where it is the first one beyond
// those that were reserved.
func TestTheLastPlanHasAVersionOfItsOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		service, east := web("web", 1), isobar.MustLocality("east/a")
		service.MaxShed = 0.5
		p.topology.Services = []isobar.Service{service}
		p.stored = &plan.Saved{Version: 41, Reserved: 50, Services: []plan.SavedService{{
			Name: "web", Drop: 0.2, Sites: []isobar.Locality{east, isobar.MustLocality("east/b")},
			Sources: []plan.SavedSource{{Source: east, Demand: 3000, Shares: []float64{0.5, 0.5}}},
		}}}
		l, stop := start(t, p, slowTicks)
		p.mu.Lock()
		reserved := p.saved[len(p.saved)-1].Reserved
		p.saveErr = errors.New("write: no space left on device") // so that no more are reserved ahead
		p.mu.Unlock()
		for l.Current().Version < reserved {
			p.change()
			pass(control.DefaultHoldOff)
		}
		if s, _ := l.Current().Service("web"); s.Result.Drop != 0.2 {
			t.Fatalf("version %d drops %v", l.Current().Version, s.Result.Drop)
		}
		p.mu.Lock()
		p.saveErr = nil
		p.mu.Unlock()
		stop()
		last := l.Current()
		if s, _ := last.Service("web"); s.Result.Drop != 0 || last.Version != reserved+1 {
			t.Errorf("the last version is %d and drops %v; %d were reserved", last.Version, s.Result.Drop, reserved)
		}
		p.stored = &p.saved[len(p.saved)-1]
		l, stop = start(t, p, slowTicks)
		if first := l.Current().Version; first <= last.Version {
			t.Errorf("version %d follows %d", first, last.Version)
		}
		stop()
	})
}
