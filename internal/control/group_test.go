package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// leader is a group that this replica leads.
type leader struct {
	epoch, version uint64
	base           *plan.Opened
	shared         []*plan.Plan // what followers got
	assumed        []error      // how attempts to take over ended
	last           bool         // no other replica stays
	closing        bool         // nor is any heard that does
	unserved       chan struct{}
}

func (g *leader) Changed() <-chan struct{}                   { return nil }
func (g *leader) Role() (control.GroupRole, uint64)          { return control.Leads, g.epoch }
func (g *leader) Received() *plan.Opened                     { return nil }
func (g *leader) Assume() (*plan.Opened, plan.Pauses, error) { return g.base, nil, nil }
func (g *leader) Assumed(_ uint64, err error)                { g.assumed = append(g.assumed, err) }
func (g *leader) Paused(context.Context) error               { return nil }
func (g *leader) Reserved() uint64                           { return 9_000_000 }
func (g *leader) Report(time.Time, bool)                     {}
func (g *leader) Last() bool                                 { return g.last }
func (g *leader) Closing() bool                              { return g.closing }
func (g *leader) Unserved() <-chan struct{}                  { return g.unserved }
func (g *leader) Designate(*plan.Opened)                     {}
func (g *leader) Next(bool) (uint64, error)                  { g.version++; return g.version, nil }
func (g *leader) Publish(p *plan.Plan, _ plan.Origin, _ *health.SavedMonitor, _ bool) error {
	g.shared = append(g.shared, p)
	return nil
}

// follower is a group that another replica leads.
type follower struct {
	leader

	changed  chan struct{}
	role     control.GroupRole
	failing  int // so often what operators wrote can't be read
	mu       sync.Mutex
	received *plan.Opened
}

func (g *follower) Changed() <-chan struct{} { return g.changed }

func (g *follower) Role() (control.GroupRole, uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.role, g.epoch
}

func (g *follower) Received() *plan.Opened {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.received
}

// tell has a plan of the leader come.
func (g *follower) tell(o *plan.Opened) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.received = o
}

// Assume implements [control.Group]. It fails for a while.
func (g *follower) Assume() (*plan.Opened, plan.Pauses, error) {
	if g.failing > 0 {
		g.failing--
		return nil, nil, errors.New("unavailable")
	}
	return g.base, nil, nil
}

// Reserved implements [control.Group]: the claim of the plan that is served has a million versions.
func (g *follower) Reserved() uint64 {
	const block = 1_000_000
	var version uint64
	if o := g.Received(); o != nil {
		version = o.Plan.Version
	}
	if n := len(g.shared); n > 0 {
		version = max(version, g.shared[n-1].Version)
	}
	return (version/block + 1) * block
}

// becomes changes the role of the replica and the epoch. A replica that leads is the last one.
func (g *follower) becomes(role control.GroupRole, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.role, g.epoch, g.last = role, epoch, true
}

// Closing implements [control.Group].
func (g *follower) Closing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closing
}

// closes changes whether the replica hears no other one that stays.
func (g *follower) closes(closing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closing = closing
}

// Last implements [control.Group].
func (g *follower) Last() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// opened is a plan as another replica opens it.
func opened(t *testing.T, p *plan.Plan) *plan.Opened {
	t.Helper()
	shared, err := new(plan.Sharer).Share(p, plan.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	o, err := plan.Open(shared, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// reporting is the load that clients report.
type reporting struct{ windows []load.StreamWindow }

func (r *reporting) Collect(time.Time) []load.StreamWindow { return r.windows }
func (r *reporting) Release()                              {}
func (r *reporting) Refresh()                              {}

// TestGroupThatLostItsPlans asserts when a leader takes all plans of its group for lost, and
// that it then decides nothing until 80% of the connected clients have reported, or a minute
// has passed.
func TestGroupThatLostItsPlans(t *testing.T) {
	provisional := &plan.Plan{Version: 5, Provisional: true}
	for _, c := range []struct {
		name     string
		epoch    uint64
		base     *plan.Opened
		stored   *plan.Saved
		clients  int // connected, of which
		report   int
		lasts    time.Duration // that the plan is provisional; 0 = it never is
		atLatest time.Duration
		stale    time.Duration // endpoint_stale_after; 0 = endpoints never go stale
		interval time.Duration // of reports; 0 = 1 s
	}{
		{name: "a new group", epoch: 1},
		{name: "it has a plan", epoch: 2, base: &plan.Opened{Plan: &plan.Plan{Version: 5}, Saved: plan.Saved{Version: 5}}},
		{name: "it has the state of a single server", epoch: 2, stored: &plan.Saved{Version: 5}},
		{name: "nobody reports", epoch: 2, lasts: 59 * time.Second, atLatest: 61 * time.Second},
		{name: "too few report", epoch: 2, clients: 10, report: 7, lasts: 59 * time.Second, atLatest: 61 * time.Second},
		{name: "enough report", epoch: 2, clients: 10, report: 8, lasts: 29 * time.Second, atLatest: 31 * time.Second},
		{
			name: "its leader ended meanwhile", epoch: 3, base: &plan.Opened{Plan: provisional, Saved: plan.Saved{Version: 5}},
			lasts: 59 * time.Second, atLatest: 61 * time.Second,
		},
		{
			name: "enough report that forget endpoints", epoch: 2, clients: 10, report: 10, stale: 30 * time.Second,
			lasts: 9 * time.Second, atLatest: 11 * time.Second,
		},
		{name: "clients forget endpoints", epoch: 2, stale: 30 * time.Second, lasts: 9 * time.Second, atLatest: 11 * time.Second},
		{name: "reports are rare", epoch: 2, interval: time.Minute, lasts: 239 * time.Second, atLatest: 241 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p, g, r := newParts(), &leader{epoch: c.epoch, base: c.base, version: 1_000_000}, &reporting{}
				service := web("web", 1)
				service.Assignment.EndpointStaleAfter = c.stale
				p.topology.Services, p.stored = []isobar.Service{service}, c.stored
				began := time.Now()
				for i := range c.clients {
					w := load.StreamWindow{
						Stream: load.StreamID(i + 1), Opened: began,
						Node: load.Node{ID: "client", Locality: isobar.MustLocality("east/a")},
					}
					if i < c.report {
						w.Reports = []load.Report{{Arrived: began.Add(time.Second)}}
					}
					r.windows = append(r.windows, w)
				}
				l, stop := start(t, p, func(o *control.Options) {
					o.Group, o.Reports = g, r
					if c.interval > 0 {
						o.Timing = func() control.Timing { return control.Timing{Tick: time.Second, Interval: c.interval} }
					}
				})
				defer stop()
				if got := l.Current().Provisional; got != (c.lasts > 0) {
					t.Fatalf("provisional: %t", got)
				}
				if c.lasts == 0 {
					return
				}
				p.change()
				pass(control.DefaultHoldOff)
				pass(c.lasts - time.Since(began))
				if last := l.Current(); !last.Provisional || last.Version == 1_000_001 {
					t.Errorf("after %v version %d is provisional: %t; the topology changed meanwhile", c.lasts, last.Version, last.Provisional)
				}
				pass(c.atLatest - time.Since(began))
				if l.Current().Provisional {
					t.Errorf("the plan is provisional after %v", c.atLatest)
				}
				if n := len(g.shared); n < 3 || !g.shared[0].Provisional || g.shared[n-1].Provisional {
					t.Errorf("followers got %d plans", n)
				}
			})
		})
	}
}

// TestProvisionalUntilPublished asserts that the loop calls what clients may get provisional
// until no stream gets the provisional plan any more: a client that returns in between would be
// moved by it.
func TestProvisionalUntilPublished(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		var l *control.Loop
		var inForce, called []bool
		published := publications{p, func() {
			inForce, called = append(inForce, l.Current().Provisional), append(called, l.Provisional())
		}}
		g := &follower{leader: leader{epoch: 2}, changed: make(chan struct{})}
		l, stop := start(t, p, func(o *control.Options) { o.Group, o.Clients = g, published })
		defer stop()
		for version, provisional := range []bool{true, true, false} {
			g.tell(&plan.Opened{Plan: &plan.Plan{Version: uint64(version + 1), Provisional: provisional, Topology: p.topology, Made: time.Now()}})
			g.changed <- struct{}{}
			pass(time.Millisecond)
		}
		if !slices.Equal(inForce, []bool{true, true, false}) || !slices.Equal(called, []bool{true, true, true}) || l.Provisional() {
			t.Errorf("while plans were published, those in force were provisional: %t, and the loop said so: %t; in the end: %t", inForce, called, l.Provisional())
		}
	})
}

// TestUndroppedUntilTheNextPlan asserts that a replica says that drops were taken back until it
// shows clients another plan: stopping waits for clients meanwhile.
func TestUndroppedUntilTheNextPlan(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, g := newParts(), &follower{leader: leader{epoch: 2}, changed: make(chan struct{})}
		l, stop := start(t, p, func(o *control.Options) { o.Group = g })
		defer stop()
		for version, parting := range []bool{true, false, true} {
			g.tell(&plan.Opened{Plan: &plan.Plan{Version: uint64(version + 1), Final: parting, Topology: p.topology, Made: time.Now()}})
			g.changed <- struct{}{}
			pass(time.Millisecond)
			if l.Undropped() != parting {
				t.Errorf("version %d takes drops back: %t, and the loop says so: %t", version+1, parting, l.Undropped())
			}
		}
	})
}

// publications calls a function at each publication to the streams.
type publications struct {
	*parts

	published func()
}

func (p publications) Publish(*view.Set) { p.published() }

// TestTakeoverEndsRecordings asserts that a recording ends where a leader goes on from a plan
// that the recording does not have: as it takes over, and as it has gathered what clients do.
func TestTakeoverEndsRecordings(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, g := newParts(), &leader{epoch: 2, version: 1_000_000}
		l, stop := start(t, p, func(o *control.Options) { o.Group = g })
		defer stop()
		r := &recording{}
		if err := l.Record(t.Context(), r, func(control.Beginning) error { return nil }); err != nil {
			t.Fatal(err)
		}
		pass(59 * time.Second)
		if r.stopped.Load() || !l.Current().Provisional {
			t.Fatalf("stopped: %t, provisional: %t", r.stopped.Load(), l.Current().Provisional)
		}
		pass(2 * time.Second)
		if !r.stopped.Load() || l.Current().Provisional {
			t.Errorf("stopped: %t, provisional: %t", r.stopped.Load(), l.Current().Provisional)
		}
	})
}

// TestGroupLearnsOfFailedTakeovers asserts that the group is told how each attempt to take over
// ended, and that the loop counts as alive meanwhile: a restart of all replicas would not help.
func TestGroupLearnsOfFailedTakeovers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := &follower{leader: leader{epoch: 2, version: 1_000_000}, changed: make(chan struct{}, 1), role: control.Leads, failing: 20}
		l, stop := start(t, newParts(), func(o *control.Options) { o.Group = g })
		for range 18 {
			pass(time.Second)
			if since := time.Since(l.Beat()); since > time.Second {
				t.Errorf("the loop last advanced %v ago", since)
			}
		}
		pass(5 * time.Second)
		if n := len(g.assumed); n != 21 || g.assumed[0] == nil || g.assumed[19] == nil || g.assumed[20] != nil {
			t.Errorf("of %d attempts: %v", n, g.assumed)
		}
		stop()
	})
}

// recording is a recorder that notes its end.
type recording struct {
	control.Recorder

	stopped atomic.Bool
}

func (r *recording) Observe(*health.Event, time.Duration, time.Duration) {}
func (r *recording) Decided(*plan.Plan, *plan.Plan, error)               {}
func (r *recording) Stopped()                                            { r.stopped.Store(true) }
func (r *recording) Done() bool                                          { return r.stopped.Load() }

// TestFollowerKeepsItsPlan asserts that a leader that lost all plans does not move the
// clients of a replica that still has one, that its first decision counts again, and that
// the replica goes on from its plan where it leads next.
func TestFollowerKeepsItsPlan(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		g := &follower{leader: leader{epoch: 2}, changed: make(chan struct{})}
		opened := func(version uint64, provisional bool) *plan.Opened {
			return &plan.Opened{Plan: &plan.Plan{Version: version, Provisional: provisional, Topology: p.topology, Made: time.Now()}}
		}
		tell := func(o *plan.Opened) {
			g.received = o
			g.changed <- struct{}{}
			pass(time.Millisecond)
		}
		g.received = opened(5, true)
		l, stop := start(t, p, func(o *control.Options) { o.Group = g })
		defer stop()
		for _, step := range []struct {
			version     uint64
			provisional bool
			want        uint64 // in force then
		}{
			{6, true, 6}, {7, false, 7}, {8, true, 7}, {9, true, 7}, {10, false, 10},
		} {
			tell(opened(step.version, step.provisional))
			if got := l.Current().Version; got != step.want {
				t.Errorf("version %d is in force after version %d, provisional %t, came; want %d", got, step.version, step.provisional, step.want)
			}
		}
		tell(opened(11, true))
		g.role, g.epoch, g.base, g.version = control.Leads, 3, g.received, 2_000_000
		tell(g.received)
		if got := l.Current(); got.Version <= 2_000_000 || got.Provisional {
			t.Errorf("as the next leader it serves version %d, provisional %t", got.Version, got.Provisional)
		}
	})
}

// TestReplicasSaveSeldom asserts that a replica, which continues from the plan of its group, does not
// write its own state at every tick, that the state is not old, and that it is saved at the end.
func TestReplicasSaveSeldom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, g := newParts(), &leader{epoch: 1, version: 1_000_000}
		l, stop := start(t, p, func(o *control.Options) { o.Group = g })
		const minutes = 5
		for range minutes * 20 {
			p.mu.Lock()
			next := *p.topology
			next.Services = append(slices.Clone(next.Services), web(fmt.Sprintf("web-%04d", len(next.Services)), 1))
			p.topology = &next
			p.mu.Unlock()
			p.change()
			pass(3 * time.Second)
		}
		p.mu.Lock()
		n := len(p.saved)
		age := time.Since(p.saved[n-1].Made)
		p.mu.Unlock()
		if n < 3*minutes || n > 4*minutes+2 || age > 20*time.Second {
			t.Errorf("the state was saved %d times in %d minutes, %v ago at last", n, minutes, age)
		}
		last := l.Current().Version
		stop()
		if saved := p.saved[len(p.saved)-1]; saved.Version != last {
			t.Errorf("at the end version %d was saved, %d was in force", saved.Version, last)
		}
	})
}

// found is a group that this replica leads, with the newest health that followers got.
type found struct {
	leader

	mu     sync.Mutex
	newest *health.SavedMonitor
}

func (g *found) Publish(_ *plan.Plan, _ plan.Origin, of *health.SavedMonitor, _ bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.newest = of
	return nil
}

// TestFollowersGetDesignations asserts that followers learn at once what their checkers are to probe,
// however rare plans are: the leader would take checkers that were told nothing for silent ones.
func TestFollowersGetDesignations(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := web("web", 4)
		s.HealthChecks = []isobar.HealthCheck{{
			Protocol: isobar.CheckTCP, Interval: time.Second, Timeout: 500 * time.Millisecond, UnhealthyThreshold: 2, HealthyThreshold: 1, TCP: &isobar.TCPCheck{},
		}}
		p, g, c := newParts(), &found{leader: leader{epoch: 1}}, &checkers{changed: make(chan struct{}, 1)}
		p.topology.Services = []isobar.Service{s}
		_, stop := start(t, p, func(o *control.Options) {
			o.Group, o.Checkers = g, c
			o.Timing = func() control.Timing { return control.Timing{Tick: 5 * time.Minute, Interval: 5 * time.Second} }
		})
		defer stop()
		pass(12 * time.Second)
		for _, zone := range []string{"east/a", "east/b", "east/c"} {
			c.connected = append(c.connected, health.Checker{
				ID: zone, Locality: isobar.MustLocality(zone), Protocols: health.ProtocolsOf(isobar.CheckTCP) | health.SpeaksV3, Since: time.Now(),
			})
			c.changed <- struct{}{}
			pass(time.Second)
			if told := len(g.newest.Placement.Of(zone)); told == 0 {
				t.Errorf("a second after checker %s came, followers do not know what it is to probe", zone)
			}
		}
		version := g.version
		pass(time.Minute)
		if g.version != version {
			t.Errorf("%d plans while nothing changed", g.version-version)
		}
	})
}

// reported is a follower that notes when it sent what about its clients.
type reported struct {
	follower

	checkers, all []time.Time
}

func (g *reported) Report(now time.Time, healthOnly bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if healthOnly {
		g.checkers = append(g.checkers, now)
		return
	}
	g.all = append(g.all, now)
}

// longest returns the longest time between two messages about checkers, until now.
func (g *reported) longest(since time.Time) (longest time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	times := slices.Concat(g.checkers, g.all, []time.Time{time.Now()})
	slices.SortFunc(times, time.Time.Compare)
	for _, at := range times {
		if at.After(since) {
			longest, since = max(longest, at.Sub(since)), at
		}
	}
	return longest
}

// TestFollowerReportsOnCheckers asserts that a follower passes on what its checkers find within 50 ms,
// also while hundreds of them find something in each moment; that the leader hears of all of them
// often enough where ticks are rare; and that nothing is sent beside ticks where they are not.
func TestFollowerReportsOnCheckers(t *testing.T) {
	for _, test := range []struct {
		tick, interval, busy time.Duration // busy is the time between two changes; 0 = nothing changes
		longest              time.Duration
		least, most          int // messages about checkers alone
	}{
		{tick: 5 * time.Second, interval: 5 * time.Second, busy: 10 * time.Millisecond, longest: 60 * time.Millisecond, least: 1000, most: 1300},
		{tick: 5 * time.Second, interval: 5 * time.Second, longest: 5 * time.Second},
		{tick: time.Second, interval: 5 * time.Second, longest: time.Second},
		{tick: 5 * time.Second, interval: time.Second, longest: 1250 * time.Millisecond, least: 30, most: 60},
		{tick: 5 * time.Minute, interval: 5 * time.Second, longest: 6250 * time.Millisecond, least: 9, most: 10},
		{tick: 5 * time.Minute, interval: 5 * time.Minute, longest: 12500 * time.Millisecond, least: 4, most: 5},
	} {
		t.Run(fmt.Sprintf("tick %v, reports %v, changes %v", test.tick, test.interval, test.busy), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := &reported{follower: follower{changed: make(chan struct{})}}
				found := &checkers{changed: make(chan struct{}, 1)}
				_, stop := start(t, newParts(), func(o *control.Options) {
					o.Group, o.Checkers = g, found
					o.Timing = func() control.Timing { return control.Timing{Tick: test.tick, Interval: test.interval} }
				})
				defer stop()
				began := time.Now()
				for time.Since(began) < time.Minute {
					if test.busy == 0 {
						pass(time.Second)
						continue
					}
					found.changed <- struct{}{}
					pass(test.busy)
				}
				if longest := g.longest(began); longest > test.longest {
					t.Errorf("the leader heard nothing of the checkers for %v, want at most %v", longest, test.longest)
				}
				if n := len(g.checkers); n < test.least || n > test.most {
					t.Errorf("%d messages about checkers alone in a minute, want %d to %d", n, test.least, test.most)
				}
			})
		})
	}
}
