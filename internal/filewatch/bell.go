package filewatch

import "sync"

// Bell asks all who follow files with it to read them now. The zero value is
// ready; it is safe for concurrent use.
type Bell struct {
	mu      sync.Mutex
	hearers map[chan struct{}]struct{}
}

// Ring asks. It does not wait; rings in quick succession count as one.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := range b.hearers {
		select {
		case h <- struct{}{}:
		default:
		}
	}
}

// hear gives the rings from now on; a nil bell never rings.
func (b *Bell) hear() (rings <-chan struct{}, leave func()) {
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
