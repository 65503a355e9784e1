package member

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/operators"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replica"
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

// TestHealthOfAClockThatIsWrong asserts that no time of what the leader found by its checkers counts by
// the leader's clock, which may be wrong: the next leader would take verdicts for old, or wait for hours
// before it has a suspected service probed again.
func TestHealthOfAClockThatIsWrong(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		made := time.Now().Add(off)
		at, key := made.Add(-time.Minute), health.Key{Service: "checkout", Address: "10.1.0.1:80"}
		found := &health.SavedMonitor{
			Checkers: []health.Checker{{ID: "checker", Since: at, LastSeen: at}},
			Verdicts: health.Saved{Endpoints: []health.SavedEndpoint{{
				Key: key, Since: at, Confirmed: at, Waiting: at, Votes: []health.SavedVote{{Checker: "checker", Since: at, Heard: at}},
			}}},
			Drains:   []health.SavedDrain{{Service: "checkout", Since: at}},
			Suspects: []health.SavedSuspect{{Service: "checkout", Ends: 3, Last: at}},
		}
		network, _ := isobar.NewNetwork(nil)
		shared, err := new(plan.Sharer).Share(&plan.Plan{Version: 7, Made: made, Topology: &isobar.Topology{Network: network}}, plan.Origin{})
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(found)
		if err != nil {
			t.Fatal(err)
		}
		data, err := proto.Marshal(&peerv1.PlanContent{Format: contentFormat, Header: shared.Header, Health: encoded})
		if err != nil {
			t.Fatal(err)
		}
		got, err := (&planCodec{marks: operators.NewSampler()}).open(replica.ContentOf(data))
		if err != nil {
			t.Fatal(err)
		}
		times := 0
		eachTime(reflect.ValueOf(got.(*opened).Health), func(told time.Time) {
			if times++; time.Since(told) < 59*time.Second || time.Since(told) > 2*time.Minute {
				t.Errorf("by a clock that is off by %v, what was a minute ago was %v ago", off, time.Since(told))
			}
		})
		if times != 9 {
			t.Errorf("%d times came, want 9", times)
		}
	}
}

// eachTime finds the times in a value that are set.
func eachTime(v reflect.Value, found func(time.Time)) {
	if at, ok := reflect.TypeAssert[time.Time](v); ok {
		if !at.IsZero() {
			found(at)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				eachTime(v.Field(i), found)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachTime(v.Index(i), found)
		}
	default: // holds no time
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
