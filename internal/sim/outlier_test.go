//go:build !race

package sim

import (
	"testing"
	"time"
)

// TestEndpointsComeBackAsInEnvoy: at the end of an interval, ejections end that lasted long
// enough. Then endpoints are left of whose requests in that interval nearly all failed, even those
// that have just come back, and for longer. The multiplier falls for those that stay.
func TestEndpointsComeBackAsInEnvoy(t *testing.T) {
	by := &Ejection{Consecutive: 5, Interval: 2 * time.Second, Base: time.Second, longest: 30 * time.Second, failing: 0.9, volume: 5, served: true}
	var x ejection
	for i, step := range []struct {
		requests, failed int
		leaves           bool // by failures in a row, in the middle of the interval
		ended, began     bool
		out              bool
		times            int
	}{
		{10, 5, false, false, false, false, 0},
		{5, 5, true, true, true, true, 2},    // back after a second, and left again by the same failures
		{4, 4, false, true, false, false, 2}, // too few of them came to an end meanwhile
		{20, 0, false, false, false, false, 1},
		{20, 20, false, false, true, true, 2}, // by the interval alone
		{1, 1, false, true, false, false, 2},
		{20, 1, false, false, false, false, 1},
		{20, 1, false, false, false, false, 0},
		{20, 1, false, false, false, false, 0},
	} {
		now := 2 * float64(i+1)
		x.requests, x.failed = step.requests, step.failed
		if step.leaves {
			x.leave(by, now-1)
		}
		ended := x.end(by, now)
		began := x.interval(by, now)
		if ended != step.ended || began != step.began || x.out != step.out || x.times != step.times {
			t.Errorf("interval %d: ended %v, began %v, out %v, times %d, want %+v", i, ended, began, x.out, x.times, step)
		}
	}
	for range 100 {
		x.leave(by, 0)
	}
	if x.times != 31 {
		t.Errorf("multiplier %d after a hundred ejections in a row, want 31", x.times)
	}
}
