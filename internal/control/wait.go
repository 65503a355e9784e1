package control

import (
	"context"
	"sync"

	"github.com/isobar-xds/isobar/internal/plan"
)

// waiters wakes everybody who waits for the next plan.
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
func (l *Loop) WaitRevision(ctx context.Context, revision uint64) (*plan.Plan, error) {
	for {
		next := l.waiters.next()
		if p := l.Current(); p != nil && p.Topology.Revision >= revision {
			return p, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
