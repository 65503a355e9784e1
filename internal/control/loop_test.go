package control_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parts are the surroundings of a loop that can be made to misbehave, which
// the real ones can't. Everything else is tested with the real ones in
// package server.
type parts struct {
	changed  chan struct{}
	mu       sync.Mutex
	topology *isobar.Topology
	saved    []plan.Saved // in order of writing
	stored   *plan.Saved
	saveErr  error
	slow     time.Duration // of a save
	refuse   bool          // views panic
	sets     []*plan.Plan  // published
}

func newParts() *parts {
	network, _ := isobar.NewNetwork(nil)
	return &parts{changed: make(chan struct{}, 1), topology: &isobar.Topology{Network: network, Revision: 1}}
}

func (p *parts) State() (*isobar.Topology, health.Table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.topology, health.Table{}
}
func (p *parts) Changed() <-chan struct{}              { return p.changed }
func (p *parts) Collect(time.Time) []load.StreamWindow { return nil }
func (p *parts) Release()                              {}
func (p *parts) Refresh()                              {}
func (p *parts) Publish(*view.Set)                     {}
func (p *parts) Subscriptions() []load.Subscription    { return nil }

func (p *parts) LoadPlan() (*plan.Saved, error) { return p.stored, nil }

func (p *parts) LoadHealth() (*health.SavedMonitor, error) { return nil, nil } //nolint:nilnil // as State says
func (p *parts) SaveHealth(health.SavedMonitor) error      { return p.saveErr }

func (p *parts) LoadHistory() ([]plan.Page, error) { return nil, nil }
func (p *parts) SavePage(plan.Page) error          { return p.saveErr }

func (p *parts) SavePlan(s plan.Saved) error {
	p.mu.Lock()
	slow, err := p.slow, p.saveErr
	p.mu.Unlock()
	time.Sleep(slow) //nolint:forbidigo // virtual time: a slow disk
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.saved = append(p.saved, s)
	}
	return err
}

func (p *parts) views(builder *view.Builder) func(*plan.Plan, *view.Set) *view.Set {
	return func(next *plan.Plan, previous *view.Set) *view.Set {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.refuse {
			panic("a defect")
		}
		p.sets = append(p.sets, next)
		return builder.Build(next, previous)
	}
}

// change publishes another topology.
func (p *parts) change() {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := *p.topology
	next.Revision++
	p.topology = &next
	p.changed <- struct{}{}
}

// start runs a loop until the test's bubble is done with it.
func start(t *testing.T, p *parts, change ...func(*control.Options)) (l *control.Loop, stop func()) {
	t.Helper()
	opts := control.Options{
		Timing:   func() control.Timing { return control.Timing{Tick: time.Second, Interval: time.Second} },
		Topology: p, Reports: p, Clients: p, State: p, Views: p.views(view.NewBuilder(view.Options{})),
	}
	for _, f := range change {
		f(&opts)
	}
	l, err := control.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	synctest.Wait()
	return l, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

// TestVersionsAreReservedBeforeTheyAreUsed: however often plans are published,
// what is on disk reserves every version that was ever used.
func TestVersionsAreReservedBeforeTheyAreUsed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		p.stored = &plan.Saved{Version: 41, Reserved: 50}
		l, stop := start(t, p)
		if v := l.Current().Version; v <= 50 {
			t.Errorf("the first version is %d, but 50 was reserved before", v)
		}
		for range 10_100 {
			pass(time.Second)
			p.mu.Lock()
			reserved := p.saved[len(p.saved)-1].Reserved
			p.mu.Unlock()
			if v := l.Current().Version; v > reserved {
				t.Fatalf("version %d is in force, %d are reserved", v, reserved)
			}
		}
		stop()
		for i := 1; i < len(p.saved); i++ {
			if p.saved[i].Reserved < p.saved[i-1].Reserved || p.saved[i].Version < p.saved[i-1].Version {
				t.Fatalf("state went back from %d (%d) to %d (%d)", p.saved[i-1].Version, p.saved[i-1].Reserved, p.saved[i].Version, p.saved[i].Reserved)
			}
		}
	})
}

// startOnSlowDisk starts a loop whose saves take a minute from then on.
func startOnSlowDisk(t *testing.T) (p *parts, l *control.Loop, stop func()) {
	t.Helper()
	p = newParts()
	l, stop = start(t, p)
	p.mu.Lock()
	p.slow = time.Minute
	p.mu.Unlock()
	return p, l, stop
}

// TestReservingDelaysNoPlan: also the versions for the next hours are reserved
// while deciding goes on.
func TestReservingDelaysNoPlan(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, l, stop := startOnSlowDisk(t)
		before := l.Current().Version
		for range 21_000 {
			pass(time.Second)
		}
		if got := l.Current().Version - before; got < 20_999 {
			t.Errorf("%d plans in 21,000 ticks", got)
		}
		p.mu.Lock()
		last := p.saved[len(p.saved)-2:]
		p.mu.Unlock()
		for i := range last {
			if v := l.Current().Version; v > last[i].Reserved {
				t.Errorf("version %d is in force, %d are reserved", v, last[i].Reserved)
			}
		}
		stop()
	})
}

// TestSlowDiskDelaysNoPlan: saving takes a minute, deciding goes on, and the
// newest plan is what is saved in the end.
func TestSlowDiskDelaysNoPlan(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, l, stop := startOnSlowDisk(t)
		before := l.Current().Version
		pass(100 * time.Second)
		if got := l.Current().Version - before; got < 99 {
			t.Errorf("%d plans in 100 ticks", got)
		}
		last := l.Current().Version
		stop()
		if saved := p.saved[len(p.saved)-1]; saved.Version < last {
			t.Errorf("version %d was saved last, %d was in force", saved.Version, last)
		}
	})
}

// TestUnwritableStateServesOn: nothing can be saved, plans go on.
func TestUnwritableStateServesOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		p.saveErr = errors.New("disk full")
		l, stop := start(t, p)
		before := l.Current().Version
		pass(10 * time.Second)
		if l.Current().Version < before+9 {
			t.Error("plans stopped with the disk")
		}
		stop()
	})
}

// TestDefectCostsOnePlan: planning panics, the last plan stays in force, and
// when the defect is gone the loop goes on.
func TestDefectCostsOnePlan(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		l, stop := start(t, p)
		pass(5 * time.Second)
		good := l.Current()
		p.mu.Lock()
		p.refuse = true
		p.mu.Unlock()
		pass(5 * time.Second)
		if l.Current() != good {
			t.Error("a plan was put in force whose views could not be made")
		}
		p.mu.Lock()
		p.refuse = false
		p.mu.Unlock()
		pass(2 * time.Second)
		if l.Current().Version <= good.Version {
			t.Error("the loop did not go on")
		}
		stop()
	})
}

// TestWaitRevision: it returns with the first plan that has the revision, or
// with its context.
func TestWaitRevision(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		l, stop := start(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.WaitRevision(ctx, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a revision that does not come: %v", err)
		}
		p.change()
		got, err := l.WaitRevision(t.Context(), 2)
		if err != nil || got.Topology.Revision != 2 {
			t.Errorf("got %v, %v", got, err)
		}
		if age := time.Since(l.Beat()); age > time.Second {
			t.Errorf("the loop's last turn is %v old", age)
		}
		stop()
	})
}
