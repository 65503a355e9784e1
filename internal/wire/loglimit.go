package wire

import (
	"sync"
	"time"
)

// LogLimit lets at most 20 lines pass in 10 seconds: what clients can trigger
// must not fill a disk. The zero value is ready; it is safe for concurrent use.
type LogLimit struct {
	mu      sync.Mutex
	began   time.Time
	passed  int
	skipped int
}

const (
	logLines  = 20
	logWindow = 10 * time.Second
)

// Allow tells whether to log, and how many were skipped since the last line.
func (l *LogLimit) Allow(now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.began) >= logWindow {
		l.began, l.passed = now, 0
	}
	if l.passed >= logLines {
		l.skipped++
		return 0, false
	}
	l.passed++
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}
