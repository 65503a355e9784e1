package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
)

// beliefPoll is between the looks at what the management server believes.
const beliefPoll = 50 * time.Millisecond

// beliefs keeps what the management server believes of each backend's health,
// on the word of its checkers, and since when.
type beliefs struct {
	stop    context.CancelFunc
	watched sync.WaitGroup

	mu      sync.Mutex
	history map[string][]belief // by address, in the order of time
	err     error
}

// belief is a status that is believed from a moment on.
type belief struct {
	at     time.Time
	status isobar.HealthStatus
}

// watch asks again and again, until close.
func (b *beliefs) watch(ctx context.Context, ask func(context.Context) (map[string]isobar.HealthStatus, error)) {
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.watched.Go(func() {
		for {
			seen, err := ask(ctx)
			if err != nil {
				b.fail(err)
				return
			}
			b.learn(time.Now(), seen)
			if waitUntil(ctx, time.Now().Add(beliefPoll)) != nil {
				return
			}
		}
	})
}

// fail keeps what ended the watch, unless that is its regular end.
func (b *beliefs) fail(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// learn takes in what is believed now; only changes are kept.
func (b *beliefs) learn(now time.Time, seen map[string]isobar.HealthStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.history == nil {
		b.history = make(map[string][]belief)
	}
	for address, status := range seen {
		h := b.history[address]
		if len(h) == 0 || h[len(h)-1].status != status {
			b.history[address] = append(h, belief{at: now, status: status})
		}
	}
}

// down tells when, from one moment until another, a backend was first believed
// not to be usable, and as what.
func (b *beliefs) down(address string, from, until time.Time) (at time.Time, as isobar.HealthStatus, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.history[address] {
		if !h.at.Before(from) && h.at.Before(until) && !h.status.Usable() {
			return h.at, h.status, true
		}
	}
	return time.Time{}, isobar.Unknown, false
}

// close ends the watch and gives the error that ended it before.
func (b *beliefs) close() error {
	if b.stop != nil {
		b.stop()
	}
	b.watched.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
