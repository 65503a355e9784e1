package rpc

import (
	"cmp"
	"sync"
	"time"
)

// LogLimit lets at most so many lines pass in 10 seconds: what peers can trigger
// must not fill a disk. The zero value is ready; it is safe for concurrent use.
type LogLimit struct {
	Lines int // 0 = 20

	mu      sync.Mutex
	began   time.Time
	passed  int
	skipped int
}

const logWindow = 10 * time.Second

// Allow tells whether to log, and how many were skipped since the last line.
func (l *LogLimit) Allow(now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.began) >= logWindow {
		l.began, l.passed = now, 0
	}
	if l.passed >= cmp.Or(l.Lines, 20) {
		l.skipped++
		return 0, false
	}
	l.passed++
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}
