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
