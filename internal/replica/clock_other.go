//go:build !linux

package replica

import "time"

// newClock returns a monotonic clock. On some systems it stands still while the
// machine sleeps.
func newClock() func() time.Duration {
	started := time.Now()
	return func() time.Duration { return time.Since(started) }
}
