package checker

import (
	"context"
	"log/slog"
	"time"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// limitedLog bounds what a server or an endpoint can make a checker log.
type limitedLog struct {
	to    *slog.Logger
	limit rpc.LogLimit
}

func newLimitedLog(to *slog.Logger) *limitedLog {
	return &limitedLog{to: to, limit: rpc.LogLimit{Lines: 50}}
}

func (l *limitedLog) info(msg string, attrs ...slog.Attr)  { l.write(slog.LevelInfo, msg, attrs) }
func (l *limitedLog) warn(msg string, attrs ...slog.Attr)  { l.write(slog.LevelWarn, msg, attrs) }
func (l *limitedLog) error(msg string, attrs ...slog.Attr) { l.write(slog.LevelError, msg, attrs) }

func (l *limitedLog) write(level slog.Level, msg string, attrs []slog.Attr) {
	ctx := context.Background()
	if !l.to.Enabled(ctx, level) {
		return
	}
	skipped, ok := l.limit.Allow(time.Now())
	if !ok {
		return
	}
	if skipped > 0 {
		attrs = append(attrs, slog.Int("skipped_lines", skipped))
	}
	l.to.LogAttrs(ctx, level, msg, attrs...) //nolint:sloglint // the callers' are literals
}
