package checker

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// limitedLog lets at most so many lines pass in a window: what a server or an
// endpoint can trigger must not fill a disk.
type limitedLog struct {
	to *slog.Logger

	mu      sync.Mutex
	began   time.Time
	passed  int
	skipped int
}

const (
	logLines  = 50
	logWindow = 10 * time.Second
)

func (l *limitedLog) info(msg string, attrs ...slog.Attr)  { l.write(slog.LevelInfo, msg, attrs) }
func (l *limitedLog) warn(msg string, attrs ...slog.Attr)  { l.write(slog.LevelWarn, msg, attrs) }
func (l *limitedLog) error(msg string, attrs ...slog.Attr) { l.write(slog.LevelError, msg, attrs) }

func (l *limitedLog) write(level slog.Level, msg string, attrs []slog.Attr) {
	ctx := context.Background()
	if !l.to.Enabled(ctx, level) {
		return
	}
	skipped, ok := l.allow(time.Now())
	if !ok {
		return
	}
	if skipped > 0 {
		attrs = append(attrs, slog.Int("lines_skipped", skipped))
	}
	l.to.LogAttrs(ctx, level, msg, attrs...) //nolint:sloglint // the callers' are literals
}

// allow tells whether to log, and how many were skipped since the last line.
func (l *limitedLog) allow(now time.Time) (skipped int, ok bool) {
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
