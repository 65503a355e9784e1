package group_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

func TestLeaveHandsOver(t *testing.T) {
	s := newScript(t, group.Saved{})
	c := s.lead()
	s.acts = nil
	s.node.Leave(s.now)
	if s.node.Left() || s.mayPublish(false) || s.mayPublish(true) {
		t.Fatal("a replica that leaves goes on publishing")
	}
	s.answer(s.request(group.OpRelease), group.Standing{Claim: c})
	got := s.sent("b")
	if !s.node.Left() || len(got) == 0 || !got[0].Status.HandsOver {
		t.Fatalf("nobody is told that leadership is free: %+v", got)
	}
}

func TestHandOverWakes(t *testing.T) {
	s := newScript(t, group.Saved{})
	s.wait(0)
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: group.Identity{Name: "b"}, Claim: claimOf("b", 1)})
	s.now += 10 * time.Millisecond
	s.hears("b", group.Message{Status: &group.Status{HandsOver: true}})
	s.request(group.OpAcquire)
}

// TestPartsWithoutAReplicaThatStays asserts that a replica which ends tells so before it gives
// up leadership, and counts only those that live and stay.
func TestPartsWithoutAReplicaThatStays(t *testing.T) {
	s := newScript(t, group.Saved{})
	s.lead()
	leaves := func(from string, leaves bool) {
		s.hears(from, group.Message{Status: &group.Status{Engine: true, Reaches: 2, Leaves: leaves}})
	}
	leaves("b", true)
	leaves("c", true)
	if s.node.Parts(s.now) {
		t.Error("a replica that stays does not part")
	}
	s.acts = nil
	s.node.Announce(s.now, true)
	s.take()
	for _, to := range []string{"b", "c"} {
		if got := s.sent(to); len(got) == 0 || got[0].Status == nil || !got[0].Status.Leaves {
			t.Errorf("%s is told %+v", to, got)
		}
	}
	if !s.node.Parts(s.now) || s.node.Role() != group.Leading {
		t.Errorf("all leave: parts %t, %s", s.node.Parts(s.now), s.node.Role())
	}
	leaves("c", false)
	if s.node.Parts(s.now) {
		t.Error("c lives and stays")
	}
	for range 3 { // c is not heard any more
		s.now += time.Second
		leaves("b", true)
	}
	if !s.node.Parts(s.now) {
		t.Error("c died")
	}
}

// TestLastOnesElectALeader asserts that a replica which ends takes leadership only to publish a
// last plan, while none leads and none stays, and that it gives leadership back.
func TestLastOnesElectALeader(t *testing.T) {
	before := claimOf("b", 3)
	for _, closes := range []bool{true, false} {
		s := newScript(t, group.Saved{})
		tells := func(from string, leaves, handsOver bool) {
			s.hears(from, group.Message{Status: &group.Status{Engine: true, Reaches: 3, Leaves: leaves, HandsOver: handsOver}})
		}
		s.wait(0)
		s.answer(s.request(group.OpAcquire), group.Standing{Holder: before.Leader, Claim: before})
		tells("b", false, false)
		tells("c", false, false)
		s.wait(2 * time.Second)
		r := s.request(group.OpAcquire)
		s.node.Announce(s.now, closes)
		if s.node.Left() {
			t.Errorf("closes: %t; it has left while it may win", closes)
		}
		s.answer(r, group.Standing{Claim: before})
		tells("b", true, true)
		tells("c", false, false)
		r = s.request(group.OpRead) // c stays
		tells("c", true, false)
		s.answer(r, group.Standing{Claim: before})
		if !closes {
			s.wait(2 * time.Second)
			s.request(group.OpRead)
			continue
		}
		s.answer(s.request(group.OpAcquire), group.Standing{Holder: s.self, Claim: before})
		tells("c", true, false)
		tells("b", true, false)
		r = s.request(group.OpClaim)
		s.answer(r, group.Standing{Holder: s.self, Claim: r.Claim})
		if s.node.Role() != group.Leading || !s.node.Parts(s.now) {
			t.Fatalf("the last one is %s, parts: %t", s.node.Role(), s.node.Parts(s.now))
		}
		s.node.Leave(s.now)
		s.answer(s.request(group.OpRelease), group.Standing{Claim: r.Claim})
		if !s.node.Left() {
			t.Error("it has not left")
		}
		tells("b", true, true)
		s.wait(2 * time.Second)
		s.request(group.OpRead)
	}
}

// TestLeavingReplicaAsksAtItsPace asserts that a replica which ends asks the engine at once when
// the last one that stayed leaves, too, and not for each message while one stays.
func TestLeavingReplicaAsksAtItsPace(t *testing.T) {
	before := claimOf("b", 3)
	s := newScript(t, group.Saved{})
	tells := func(from string, leaves bool) {
		s.hears(from, group.Message{Status: &group.Status{Engine: true, Reaches: 3, Leaves: leaves}})
	}
	s.wait(0)
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: before.Leader, Claim: before})
	tells("b", false)
	tells("c", false)
	s.node.Announce(s.now, true)
	s.answer(s.request(group.OpRead), group.Standing{Claim: before})
	for range 5 {
		s.now += 100 * time.Millisecond
		tells("b", true)
		for _, a := range s.acts {
			if a.Request != nil {
				t.Fatalf("while c stays, it asks for %s at %v", a.Request.Op, s.now)
			}
		}
	}
	tells("c", true)
	s.request(group.OpAcquire)
}
