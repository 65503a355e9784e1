//go:build !race

package group_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// alarms returns the alarms since the last call, in order.
func (s *script) alarms() (out []group.Alarm) {
	for _, a := range s.acts {
		if a.Alarm != nil {
			out = append(out, *a.Alarm)
		}
	}
	s.acts = nil
	return out
}

// TestAlarmOfAnEngineThatWentBack asserts that a replica which sees an older claim in the engine than
// before raises an alarm once, and ends it with the first claim above what it saw.
func TestAlarmOfAnEngineThatWentBack(t *testing.T) {
	s := newScript(t, group.Saved{Fence: claimOf("b", 3)})
	says := func(c group.Claim) []group.Alarm {
		t.Helper()
		s.wait(2 * time.Second)
		s.answer(s.pending(), group.Standing{Holder: c.Leader, Claim: c})
		return s.alarms()
	}
	if got := says(claimOf("b", 2)); len(got) != 1 || got[0].Of != group.EngineBehind || !strings.Contains(got[0].Text, "epoch 3 was claimed before") {
		t.Errorf("the first sight of an older claim: %+v", got)
	}
	if got := says(claimOf("b", 2)); len(got) > 0 {
		t.Errorf("the second sight of it: %+v", got)
	}
	if got := says(claimOf("c", 4)); len(got) != 1 || got[0] != (group.Alarm{Of: group.EngineBehind}) {
		t.Errorf("a newer claim: %+v", got)
	}
	if got := says(claimOf("c", 4)); len(got) > 0 {
		t.Errorf("the same claim: %+v", got)
	}
}

// TestAlarmOfALeaderThatWasCutOff asserts that the alarm of a leader which stepped down because another
// replica reached more ends as soon as it hears all others, and all hear it.
func TestAlarmOfALeaderThatWasCutOff(t *testing.T) {
	s := newScript(t, group.Saved{})
	s.lead()
	status := group.Status{Engine: true, Reaches: 2}
	beat := func(c group.Status) []group.Alarm {
		t.Helper()
		s.now += time.Second
		s.hears("c", group.Message{Status: &c})
		s.hears("b", group.Message{Status: &status})
		s.wait(0)
		return s.alarms()
	}
	deaf := group.Status{Engine: true, Reaches: 3, Deaf: true}
	var got []group.Alarm
	for range 3 {
		got = append(got, beat(deaf)...)
	}
	if len(got) != 1 || got[0].Of != group.CutOff || !strings.Contains(got[0].Text, "hears 3 and is heard by 2") {
		t.Fatalf("c does not hear the leader: %+v", got)
	}
	if got := beat(deaf); len(got) > 0 {
		t.Errorf("c does not hear it still: %+v", got)
	}
	heard := deaf
	heard.Deaf = false
	if got := append(beat(heard), beat(heard)...); len(got) != 1 || got[0] != (group.Alarm{Of: group.CutOff}) {
		t.Errorf("all hear each other: %+v", got)
	}
}
