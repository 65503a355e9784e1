package main

import (
	"sync"
	"testing"
	"time"
)

// stalls notices when this machine stands still: on a busy one nothing runs for
// seconds now and then, which is no delay of what is tested.
type stalls struct {
	mu   sync.Mutex
	gaps [][2]time.Time
}

const (
	stallTick = 50 * time.Millisecond
	stallFrom = 250 * time.Millisecond // a shorter gap is nothing
)

func watchStalls(tb testing.TB) *stalls {
	tb.Helper()
	s := &stalls{}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(stallTick)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			now := time.Now()
			if now.Sub(last) > stallFrom {
				s.mu.Lock()
				s.gaps = append(s.gaps, [2]time.Time{last, now})
				s.mu.Unlock()
			}
			last = now
		}
	}()
	tb.Cleanup(func() {
		close(done)
		<-ended
	})
	return s
}

// between returns how much of a time the machine stood still.
func (s *stalls) between(from, to time.Time) (lost time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gaps {
		a, b := g[0], g[1]
		if a.Before(from) {
			a = from
		}
		if b.After(to) {
			b = to
		}
		lost += max(0, b.Sub(a))
	}
	return lost
}
