package replica

import (
	"time"

	"golang.org/x/sys/unix"
)

// newClock returns a monotonic clock that runs while the machine sleeps: a lease
// does so, too.
func newClock() func() time.Duration {
	started := time.Now()
	return func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
			return time.Since(started) // no kernel of the last ten years
		}
		return time.Duration(t.Nano())
	}
}
