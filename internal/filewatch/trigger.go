package filewatch

import "sync"

// Trigger asks all who follow files with it to read them now. The zero value is
// ready; it is safe for concurrent use.
type Trigger struct {
	mu      sync.Mutex
	hearers map[chan struct{}]struct{}
}

// Fire asks. It does not wait; calls in quick succession count as one.
func (b *Trigger) Fire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := range b.hearers {
		select {
		case h <- struct{}{}:
		default:
		}
	}
}

// hear returns the calls from now on; a nil Trigger never fires.
func (b *Trigger) hear() (rings <-chan struct{}, leave func()) {
	if b == nil {
		return nil, func() {}
	}
	h := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hearers == nil {
		b.hearers = map[chan struct{}]struct{}{}
	}
	b.hearers[h] = struct{}{}
	return h, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.hearers, h)
	}
}
