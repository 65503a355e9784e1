package control

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// TestClockThatIsSetBack: a step back of the clock is noticed while the process runs,
// is told until the clock has caught up, and for an hour at most; corrections of less
// than a second are not told.
func TestClockThatIsSetBack(t *testing.T) {
	var c clockWatch
	start := time.Now()
	at := start.Add
	c.begin(start, start.Add(-time.Minute))
	for _, tt := range []struct {
		running, shown, back time.Duration
	}{
		{10 * time.Second, 10 * time.Second, 0},
		{20 * time.Second, 20*time.Second - 500*time.Millisecond, 0},
		{30 * time.Second, 30 * time.Second, 0},
		{40 * time.Second, time.Hour, 0}, // forward
		{50 * time.Second, 50 * time.Second, time.Hour - 40*time.Second},
		{60 * time.Second, 60 * time.Second, 0},
	} {
		if back := c.look(tt.running, tt.shown); back != tt.back {
			t.Errorf("after %v the clock has gone on by %v: back by %v, want %v", tt.running, tt.shown, back, tt.back)
		}
	}
	if back, before := c.setBack(at(time.Minute)); back != time.Hour-40*time.Second || !before.Equal(at(time.Hour+10*time.Second)) {
		t.Errorf("told %v, %v", back, before.Sub(start))
	}
	if back, _ := c.setBack(at(2 * time.Hour)); back != 0 {
		t.Errorf("two hours later %v is told", back)
	}
	var fresh clockWatch
	if fresh.begin(start, start.Add(30*time.Minute)); fresh.back != 30*time.Minute {
		t.Errorf("state of half an hour ahead: %v", fresh.back)
	}
	if back, _ := fresh.setBack(at(31 * time.Minute)); back != 0 {
		t.Errorf("%v is told though the clock has caught up", back)
	}
}

// TestVersionsBeginBeyond: however the clock is set, a process begins above all that
// the one before can have published since it saved, with a rate of one a millisecond.
func TestVersionsBeginBeyond(t *testing.T) {
	saved := plan.Saved{Made: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), Boot: "a", Up: time.Hour}
	for _, tt := range []struct {
		name  string
		clock time.Duration // from when it was saved
		boot  Boot
		least uint64
		most  uint64
	}{
		{"the same boot", time.Minute, Boot{"a", time.Hour + time.Minute}, 1000 + 60_000, 1000 + 60_001},
		{"the same boot, a clock that went back", -24 * time.Hour, Boot{"a", time.Hour + time.Minute}, 1000 + 60_000, 1000 + 60_001},
		{"the same boot, a clock far ahead", 24 * time.Hour, Boot{"a", time.Hour + time.Minute}, 1000 + 60_000, 1000 + 60_001},
		{"another boot", time.Minute, Boot{"b", time.Second}, 1000 + 60_000, 1000 + 60_001},
		{"another boot, a clock that went back", -24 * time.Hour, Boot{"b", time.Second}, 1000 + farAhead, 1000 + farAhead + 2000},
		{"nothing known", time.Minute, Boot{}, 1000 + 60_000, 1000 + 60_001},
	} {
		if v := beyond(&saved, 1000, saved.Made.Add(tt.clock), tt.boot); v < tt.least || v > tt.most {
			t.Errorf("%s: begins at %d, want %d to %d", tt.name, v, tt.least, tt.most)
		}
	}
	if v := beyond(&plan.Saved{}, 0, saved.Made, Boot{}); v != 1 {
		t.Errorf("without state: begins at %d", v)
	}
}
