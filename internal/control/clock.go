package control

import (
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

const (
	// clockSlack is how far the clock may be set back without a word: time services
	// correct it by less.
	clockSlack = time.Second
	// clockShownFor bounds for how long the status shows that the clock went back.
	clockShownFor = time.Hour
)

// clockWatch notices that the clock of the machine went back: behind the state that
// was saved, or while the process runs. It is safe for concurrent use.
type clockWatch struct {
	mu     sync.Mutex
	start  time.Time     // with its monotonic reading
	offset time.Duration // of the clock from the monotonic one, at the last look
	back   time.Duration // by how much the clock went back
	before time.Time     // the earlier reading of the clock
	at     time.Duration // when it was noticed, since start
}

// begin takes the time of the start, and when the state was saved.
func (c *clockWatch) begin(now, saved time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = now
	if back := saved.Sub(now); !saved.IsZero() && back > clockSlack {
		c.back, c.before = back, saved
	}
}

// look compares the clock with the monotonic one: running is the time since the start, shown the
// change of the clock.
func (c *clockWatch) look(running, shown time.Duration) (back time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	offset := shown - running
	if back = c.offset - offset; back > clockSlack {
		c.back, c.before, c.at = back, c.start.Add(running+c.offset), running
	} else {
		back = 0
	}
	c.offset = offset
	return back
}

// setBack returns by how much the clock was set back, and its time before that; 0 if it was
// not, has caught up, or was set back long ago.
func (c *clockWatch) setBack(now time.Time) (time.Duration, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.back == 0 || now.Sub(c.start)-c.at > clockShownFor || !now.Round(0).Before(c.before.Round(0)) {
		return 0, time.Time{}
	}
	return c.back, c.before
}

// farAhead is added if neither clock shows for how long the previous process can have continued:
// ten years, in milliseconds.
const farAhead = 10 * 365 * 24 * 3600 * 1000

// beyond is the first version of a process whose predecessor reserved versions up to version: one
// more for each millisecond since that state was saved, which is more than any process publishes.
// The predecessor may have continued without being able to save, and its last saved state may be
// damaged. Time is that of the machine since it was booted, which no time service sets back;
// after a reboot, that of the clock.
func beyond(saved *plan.Saved, version uint64, now time.Time, boot Boot) uint64 {
	if saved.Made.IsZero() {
		return version + 1
	}
	passed := now.Round(0).Sub(saved.Made.Round(0))
	switch {
	case saved.Boot != "" && saved.Boot == boot.ID && boot.Up >= saved.Up:
		passed = boot.Up - saved.Up
	case passed < 0:
		return version + 1 + farAhead + uint64(max(0, boot.Up.Milliseconds()))
	}
	return version + 1 + uint64(passed.Milliseconds()) //nolint:gosec // it is not negative
}
