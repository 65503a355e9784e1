package rpc

import (
	"cmp"
	"log/slog"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// Pace is a token bucket for what a client sends, kept as the time at which it will be
// full again. The rate may change at any time: each is the time in which one token comes
// back, burst the number of tokens of a full bucket. The zero value is a full bucket. It
// must not be used by several goroutines at once.
type Pace struct{ full time.Time }

// Wait returns how long it takes until there is a token; 0 if there is one.
func (p *Pace) Wait(now time.Time, each time.Duration, burst int) time.Duration {
	if p.full.Before(now) {
		p.full = now
	}
	// What was taken while tokens came back more slowly counts as an empty bucket at most.
	if empty := now.Add(time.Duration(burst) * each); p.full.After(empty) {
		p.full = empty
	}
	return max(0, p.full.Sub(now)-time.Duration(burst-1)*each)
}

// Take takes a token, also where there is none. Wait comes first.
func (p *Pace) Take(each time.Duration) { p.full = p.full.Add(each) }

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

// Warn logs a warning unless there were too many, with the number of skipped lines.
func (l *LogLimit) Warn(log *slog.Logger, msg string, attrs ...any) {
	skipped, ok := l.Allow(time.Now())
	if !ok {
		return
	}
	if skipped > 0 {
		attrs = append(attrs, "skipped_lines", skipped)
	}
	log.Warn(msg, attrs...) //nolint:sloglint // the callers' are literals
}

// Allow reports whether to log, and how many were skipped since the last line.
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

// The pause before refused clients try again: at random in between, so that they don't come back
// as one herd.
const (
	retryAfter  = time.Second
	retryBefore = 10 * time.Second
)

// RetryWait is the pause before one refused client tries again: 1 to 10 s, at random.
func RetryWait() time.Duration {
	return retryAfter + rand.N(retryBefore-retryAfter) //nolint:gosec // no secret
}

// RetryAfter is the same as a value of the header Retry-After, in whole seconds.
func RetryAfter() string { return strconv.Itoa(int(math.Ceil(RetryWait().Seconds()))) }
