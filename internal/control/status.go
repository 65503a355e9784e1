package control

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// status is the state of the loop that other goroutines may read at any time. It is safe for
// concurrent use; only the loop writes it.
type status struct {
	current   atomic.Pointer[plan.Plan]
	beat      atomic.Pointer[time.Time] // of the last turn of the loop
	ticked    atomic.Pointer[ticks]     // how many there were
	writing   atomic.Pointer[saver]     // nil before the start
	waiters   waiters
	clock     clockWatch
	left      chan struct{} // closed when the last plan is published
	undropped atomic.Bool   // that one took drops back
	// provisional is set while streams may get a provisional plan.
	provisional atomic.Bool
}

// Current returns the plan in force; nil before the first.
func (s *status) Current() *plan.Plan { return s.current.Load() }

// turned notes that the loop turns.
func (s *status) turned() {
	now := time.Now()
	s.beat.Store(&now)
}

// Beat tells when the loop last turned; zero before it has begun.
func (s *status) Beat() time.Time {
	if at := s.beat.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// ticks counts decisions. Immutable.
type ticks struct {
	count uint64
	took  time.Duration // the last one
}

// Ticks returns how many decisions were taken, and how long the last one took.
func (s *status) Ticks() (count uint64, took time.Duration) {
	if t := s.ticked.Load(); t != nil {
		return t.count, t.took
	}
	return 0, 0
}

func (s *status) countTick(took time.Duration) {
	count, _ := s.Ticks()
	s.ticked.Store(&ticks{count: count + 1, took: took})
}

// Unsaved lists the parts of the state that can't be written now, and why; serving continues from
// memory. Empty when all is saved.
func (s *status) Unsaved() []string {
	if w := s.writing.Load(); w != nil {
		return w.unsaved()
	}
	return nil
}

// ClockWentBack is by how much the clock of the machine went back, and its reading before; 0 once
// it has caught up, or after an hour.
func (s *status) ClockWentBack() (time.Duration, time.Time) { return s.clock.setBack(time.Now()) }

// Left is closed when the loop has published its last plan.
func (s *status) Left() <-chan struct{} { return s.left }

// Provisional reports whether clients may get a provisional plan: it is set before the first
// stream can get one, and until no stream gets it any more.
func (s *status) Provisional() bool { return s.provisional.Load() }

// Undropped reports whether that plan differs from the one before.
func (s *status) Undropped() bool { return s.undropped.Load() }

// waiters wakes all goroutines that wait for the next plan.
type waiters struct {
	mu sync.Mutex
	ch chan struct{}
}

func (w *waiters) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch == nil {
		w.ch = make(chan struct{})
	}
	return w.ch
}

func (w *waiters) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch != nil {
		close(w.ch)
		w.ch = nil
	}
}

// WaitRevision waits until the published plan has the topology of the given
// revision in it, and returns that plan.
func (s *status) WaitRevision(ctx context.Context, revision uint64) (*plan.Plan, error) {
	for {
		next := s.waiters.next()
		if p := s.Current(); p != nil && p.Topology.Revision >= revision {
			return p, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
