package control_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// serve replaces all services.
func (p *parts) serve(services ...isobar.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := *p.topology
	next.Revision++
	next.Services = services
	p.topology = &next
	p.changed <- struct{}{}
}

// web has the given number of endpoints in each of two zones.
func web(name string, endpoints int) isobar.Service {
	s := isobar.Service{Name: name}
	for i, zone := range []string{"east/a", "east/b"} {
		sl := isobar.ServiceLocality{Locality: isobar.MustLocality(zone), MaxRate: 1000, Concurrency: 20}
		for e := range endpoints {
			sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i, e+1)})
		}
		s.Localities = append(s.Localities, sl)
	}
	return s
}

// slowTicks leaves a test alone with what happens between ticks.
func slowTicks(o *control.Options) {
	o.Timing = func() control.Timing { return control.Timing{Tick: time.Hour, Interval: time.Second} }
}

// TestChangesAreGathered: however often something changes, plans are the
// hold-off apart; and the last change is in force one hold-off later.
func TestChangesAreGathered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		l, stop := start(t, p, slowTicks)
		pass(time.Second)
		before := l.Current().Version
		for range 500 {
			p.change()
			pass(time.Millisecond)
		}
		if n := l.Current().Version - before; n > 7 {
			t.Errorf("%d plans in half a second", n)
		}
		pass(control.DefaultHoldOff)
		if got, want := l.Current().Topology.Revision, p.topology.Revision; got != want {
			t.Errorf("revision %d is in force, want %d", got, want)
		}
		stop()
	})
}

// TestWhatWaitsToBeSavedStays: while the disk is slow a plan waits to be
// written. What checkers found is handed over after it, and does not take its
// place.
func TestWhatWaitsToBeSavedStays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		c := &checkers{changed: make(chan struct{}, 1)}
		_, stop := start(t, p, slowTicks, func(o *control.Options) { o.Checkers = c })
		p.mu.Lock()
		p.slow = time.Minute
		p.mu.Unlock()
		p.serve(web("a", 1)) // the disk is busy with this
		pass(20 * time.Second)
		p.serve(web("a", 1), web("b", 1)) // this waits
		pass(15 * time.Second)
		c.changed <- struct{}{} // what checkers found is due
		pass(5 * time.Second)
		p.mu.Lock()
		p.slow = 0
		p.mu.Unlock()
		pass(21 * time.Second)
		p.mu.Lock()
		if got := len(p.saved[len(p.saved)-1].Services); got != 2 {
			t.Errorf("%d services are saved, want 2", got)
		}
		p.mu.Unlock()
		stop()
	})
}

// checkers are health checkers that can be made to say anything.
type checkers struct {
	changed    chan struct{}
	connected  []health.Checker
	designated atomic.Int64
	collected  atomic.Int64 // how often the loop looked

	mu      sync.Mutex
	reports []health.Report
}

func (c *checkers) Collect(now time.Time) []health.Report {
	c.collected.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.reports {
		c.reports[i].Arrived = now
	}
	return slices.Clone(c.reports)
}
func (c *checkers) Connected(time.Time) []health.Checker { return c.connected }
func (c *checkers) Ended() []health.Ended                { return nil }

func (c *checkers) Designate(*isobar.Topology, []health.Designation) { c.designated.Add(1) }
func (c *checkers) Changed() <-chan struct{}                         { return c.changed }

// TestIntervalReachesCheckers: specifiers carry the report interval, so they go
// out again when a reload changes it, and not otherwise.
func TestIntervalReachesCheckers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := &checkers{changed: make(chan struct{}, 1)}
		var interval atomic.Int64
		interval.Store(int64(time.Second))
		l, stop := start(t, newParts(), func(o *control.Options) {
			o.Checkers = c
			o.Timing = func() control.Timing {
				return control.Timing{Tick: time.Second, Interval: time.Duration(interval.Load())}
			}
		})
		pass(10 * time.Second)
		before := c.designated.Load()
		pass(10 * time.Second)
		if n := c.designated.Load(); n != before {
			t.Errorf("designated %d times with nothing new", n-before)
		}
		interval.Store(int64(2 * time.Second))
		l.Retime()
		pass(time.Millisecond)
		if n := c.designated.Load(); n != before+1 {
			t.Errorf("designated %d times after the interval changed", n-before)
		}
		stop()
	})
}

// TestChangesOfCheckersWaitForEachOther: where checkers say something else all
// the time, the loop has time for other things, and no change is forgotten.
func TestChangesOfCheckersWaitForEachOther(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := &checkers{changed: make(chan struct{}, 1)}
		_, stop := start(t, newParts(), func(o *control.Options) {
			o.Checkers = c
			o.Timing = func() control.Timing { return control.Timing{Tick: 10 * time.Second, Interval: 10 * time.Second} }
		})
		pass(time.Second)
		looks := func(during func()) int64 {
			before := c.collected.Load()
			during()
			return c.collected.Load() - before
		}
		signal := func() {
			c.changed <- struct{}{}
			synctest.Wait()
		}
		if n := looks(signal); n != 1 {
			t.Errorf("the first change was looked at %d times at once", n)
		}
		flood := func() {
			for range 1000 {
				signal()
				pass(time.Millisecond)
			}
		}
		if n := looks(flood); n < 15 || n > 21 {
			t.Errorf("the loop looked %d times in a second of changes", n)
		}
		pass(time.Second)
		signal()
		if n := looks(func() { signal(); pass(100 * time.Millisecond) }); n != 1 {
			t.Errorf("the change right after a look was looked at %d times", n)
		}
		stop()
	})
}

// reporters are clients of east/a that report every second; of what they send
// to a zone, failing tells which part fails.
type reporters struct {
	*parts

	rate   float64 // requests/s of each
	nodes  int
	opened time.Time

	failing sync.Map // zone → fraction of its requests that fail
}

func (r *reporters) Subscriptions() []load.Subscription {
	return []load.Subscription{{Source: isobar.MustLocality("east/a"), Service: "web", Streams: r.nodes, Acked: r.nodes, AckedAt: r.opened}}
}

func (r *reporters) Collect(now time.Time) []load.StreamWindow {
	var out []load.StreamWindow
	for n := range r.nodes {
		w := load.StreamWindow{
			Stream: load.StreamID(n + 1), Opened: r.opened,
			Node: load.Node{ID: fmt.Sprint("node", n), Cluster: "front", Locality: isobar.MustLocality("east/a"), Agent: load.AgentEnvoy},
		}
		report := load.ServiceReport{Service: "web", Interval: time.Second}
		for _, zone := range []string{"east/a", "east/b"} {
			at, issued, failed := isobar.MustLocality(zone), uint64(r.rate/2), uint64(0)
			if part, fails := r.failing.Load(zone); fails {
				failed = uint64(part.(float64) * float64(issued))
			}
			report.Localities = append(report.Localities, load.LocalityReport{
				Locality: &at, Issued: issued, HasIssued: true, Succeeded: issued - failed, Errors: failed,
			})
		}
		w.Reports = []load.Report{{Arrived: now, Services: []load.ServiceReport{report}}}
		out = append(out, w)
	}
	return out
}

// TestReportsMoveWeightsAndAreSaved: what clients report is in the decision of
// the next tick, and weights that it moves are on disk at once: a crash must
// not go back to before them.
func TestReportsMoveWeightsAndAreSaved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := &reporters{parts: newParts(), nodes: 2, rate: 700, opened: time.Now()}
		r.topology.Services = []isobar.Service{web("web", 2)}
		l, stop := start(t, r.parts, func(o *control.Options) { o.Reports, o.Clients = r, r })
		for range 5 {
			pass(time.Second)
			s, _ := l.Current().Service("web")
			r.mu.Lock()
			saved := r.saved[len(r.saved)-1].Services[0]
			r.mu.Unlock()
			if got := s.Result.Source(isobar.MustLocality("east/a")).Shares; !slices.Equal(got, saved.Sources[0].Shares) {
				t.Errorf("the shares are %v, those on disk %v", got, saved.Sources[0].Shares)
			}
		}
		s, _ := l.Current().Service("web")
		if d := s.Load.Source(isobar.MustLocality("east/a")); d == nil || d.Demand < 1000 {
			t.Fatalf("demand %+v, want 1,400 requests/s", d)
		}
		if shares := s.Result.Source(isobar.MustLocality("east/a")).Shares; shares[0] > 0.9 {
			t.Errorf("shares %v: nothing moved off a zone that is over its ceiling", shares)
		}
		stop()
	})
}

// releasing counts how often reports are collected and released.
type releasing struct {
	*parts

	collected, released atomic.Int64
}

func (r *releasing) Collect(time.Time) []load.StreamWindow {
	r.collected.Add(1)
	return nil
}

func (r *releasing) Release() { r.released.Add(1) }

// TestReportsAreReleasedAtOnce asserts that the loop releases the collected reports within the tick: until
// then they take memory beside those that wait for the next one.
func TestReportsAreReleasedAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := &releasing{parts: newParts()}
		_, stop := start(t, r.parts, func(o *control.Options) { o.Reports = r })
		for range 3 {
			pass(time.Second)
			synctest.Wait()
			if collected, released := r.collected.Load(), r.released.Load(); collected == 0 || released != collected {
				t.Errorf("reports are collected %d times and released %d times", collected, released)
			}
		}
		stop()
	})
}

// TestReloadsDelayNoTick: a file that changes more often than ticks come, as one
// does that is made from a template, moves no tick; a period that changed counts
// from the last tick on.
func TestReloadsDelayNoTick(t *testing.T) {
	for _, tc := range []struct {
		name     string
		timing   func(reload int) time.Duration // what the file says of tick
		each     time.Duration                  // between reloads
		min, max uint64                         // ticks in a minute
	}{
		{"the same timing", func(int) time.Duration { return 5 * time.Second }, time.Second, 12, 12},
		{"at each tick", func(int) time.Duration { return 5 * time.Second }, 5 * time.Second, 12, 12},
		{"timing that changes each time", func(n int) time.Duration { return time.Duration(4+n%2) * time.Second }, time.Second, 12, 15},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var reloads atomic.Int64
				l, stop := start(t, newParts(), func(o *control.Options) {
					o.Timing = func() control.Timing {
						return control.Timing{Tick: tc.timing(int(reloads.Load())), Interval: time.Second}
					}
				})
				for range time.Minute / tc.each {
					pass(tc.each)
					reloads.Add(1)
					l.Retime()
					synctest.Wait()
				}
				if n, _ := l.Ticks(); n < tc.min || n > tc.max {
					t.Errorf("%d ticks in a minute, want %d to %d", n, tc.min, tc.max)
				}
				stop()
			})
		})
	}
}

// TestNewPeriodCountsFromTheLastTick: not from the reload on.
func TestNewPeriodCountsFromTheLastTick(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var tick atomic.Int64
		tick.Store(int64(time.Minute))
		l, stop := start(t, newParts(), func(o *control.Options) {
			o.Timing = func() control.Timing {
				return control.Timing{Tick: time.Duration(tick.Load()), Interval: time.Second}
			}
		})
		retime := func(after, period time.Duration) {
			pass(after)
			tick.Store(int64(period))
			l.Retime()
			synctest.Wait()
		}
		count := func(what string, want uint64) {
			t.Helper()
			if n, _ := l.Ticks(); n != want {
				t.Errorf("%s: %d ticks, want %d", what, n, want)
			}
		}
		retime(61*time.Second, 30*time.Second) // a second after the first
		count("a minute", 1)
		pass(28 * time.Second)
		count("a second before the shorter period ends", 1)
		pass(time.Second)
		count("the shorter period", 2)
		retime(20*time.Second, 10*time.Second)
		count("a period that is over by now", 3)
		retime(5*time.Second, time.Minute)
		pass(54 * time.Second)
		count("a second before the longer period ends", 3)
		pass(time.Second)
		count("the longer period", 4)
		stop()
	})
}
