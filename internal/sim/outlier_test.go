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
		short            bool // the interval since the last ejection does not count as whole
		requests, failed int
		leaves           bool // by failures in a row, in the middle of the interval
		ended, began     bool
		out              bool
		times            int
	}{
		{false, 10, 5, false, false, false, false, 0},
		{false, 5, 5, true, true, true, true, 2},    // back after a second, and left again by the same failures
		{false, 4, 4, false, true, false, false, 2}, // too few of them came to an end meanwhile
		{true, 20, 0, false, false, false, false, 2},
		{true, 20, 0, false, false, false, false, 1}, // two intervals are more than one
		{false, 20, 20, false, false, true, true, 2}, // by the interval alone
		{false, 1, 1, false, true, false, false, 2},
		{false, 20, 1, false, false, false, false, 1},
		{false, 20, 1, false, false, false, false, 0},
		{false, 20, 1, false, false, false, false, 0},
	} {
		now := 2 * float64(i+1)
		x.requests, x.failed = step.requests, step.failed
		if step.leaves {
			x.leave(by, now-1)
		}
		ended := x.end(by, now)
		began := x.interval(by, now, !step.short)
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

// TestClientsThatStartTogether: what clients do at intervals, they do at any moments, or near
// together if they started together; in another run at other moments.
func TestClientsThatStartTogether(t *testing.T) {
	const within, every = 200 * time.Millisecond, 2 * time.Second
	looked := func(seed uint64, within time.Duration) (first, last time.Duration) {
		w := &world{sc: &Scenario{Seed: seed, StartedWithin: within}, step: 10 * time.Millisecond}
		for id := range uint64(20) {
			for w.now = 0; !w.looks(&client{id: id}, drawEjection, every); w.now += w.step {
			}
			if last = max(last, w.now); id == 0 || w.now < first {
				first = w.now
			}
		}
		return first, last
	}
	begins := map[time.Duration]bool{}
	for seed := range uint64(20) {
		first, last := looked(seed, within)
		if apart := min(last-first, every-(last-first)); apart > within+10*time.Millisecond {
			t.Errorf("seed %d: clients look from %v to %v", seed, first, last)
		}
		begins[first] = true
		if first, last := looked(seed, 0); last-first < every/2 {
			t.Errorf("seed %d: clients that started at any time look from %v to %v", seed, first, last)
		}
	}
	if len(begins) < 10 {
		t.Errorf("clients look at the same moments in other runs: %v", begins)
	}
}
