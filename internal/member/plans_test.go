package member

import (
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/operators"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// TestMarksKeepTheirTime asserts that a mark which comes again with a plan, as after a restart
// with the saved plan, is the same mark at the same time, however old the plan is.
func TestMarksKeepTheirTime(t *testing.T) {
	made := time.Date(2026, 11, 27, 12, 0, 0, 250_000_000, time.UTC)
	leader := operators.NewSampler()
	leader.Note(made, admin.SampleMark{At: made, Text: "deployment", Who: "ann"})
	sent := marksToProto(leader, made.Add(2*time.Second))
	follower := operators.NewSampler()
	for _, after := range []time.Duration{3 * time.Second, time.Minute, time.Hour} {
		noteMarks(follower, made.Add(after), sent)
	}
	if got := follower.Marks(); !slices.Equal(got, leader.Marks()) {
		t.Errorf("the follower has %v, the leader %v", got, leader.Marks())
	}
	earlier := operators.NewSampler() // what a leader of an earlier version sends
	noteMarks(earlier, made.Add(3*time.Second), []*peerv1.ChartMark{{AgeMicros: 3_000_000, Text: "deployment"}})
	if got := earlier.Marks(); len(got) != 1 || !got[0].At.Equal(made) {
		t.Errorf("of an earlier program: %v", got)
	}
}

// TestLeaderThatCannotTakeOver asserts when a leader gives leadership to another replica.
func TestLeaderThatCannotTakeOver(t *testing.T) {
	var k takeovers
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	others := []string{"b"}
	fails := func(epoch uint64, times int) (after int) {
		for i := range times {
			now = now.Add(5 * time.Second)
			if k.fails(epoch, "unreadable", now, func() []string { return others }) {
				return i + 1
			}
		}
		return 0
	}
	expect := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: steps down after %d attempts, want %d", what, got, want)
		}
	}
	expect("another replica may succeed", fails(1, 20), takeoverAttempts)
	expect("it leads again at once", fails(3, 50), 0)
	expect("five minutes after it stepped down", fails(3, 50), 10)
	others = nil
	expect("no other can", fails(5, 100), 0)
	if k.failure() != "unreadable" {
		t.Errorf("failure %q", k.failure())
	}
	if k.ledBy(4); k.failure() == "" {
		t.Error("an older plan ended the failure")
	}
	if k.ledBy(6); k.failure() != "" {
		t.Error("the failure outlived the plan of another leader")
	}
	others = []string{"b", "c"}
	expect("after another one led", fails(7, 20), takeoverAttempts)
	k.succeeded()
	expect("after it led itself", fails(9, takeoverAttempts-1), 0)
}
