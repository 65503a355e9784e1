//go:build !race

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
	if s.node.AllLeave(s.now) {
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
	if !s.node.AllLeave(s.now) || s.node.Role() != group.Leading {
		t.Errorf("all leave: parts %t, %s", s.node.AllLeave(s.now), s.node.Role())
	}
	leaves("c", false)
	if s.node.AllLeave(s.now) {
		t.Error("c lives and stays")
	}
	for range 3 { // c is not heard any more
		s.now += time.Second
		leaves("b", true)
	}
	if !s.node.AllLeave(s.now) {
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
		if s.node.Role() != group.Leading || !s.node.AllLeave(s.now) {
			t.Fatalf("the last one is %s, parts: %t", s.node.Role(), s.node.AllLeave(s.now))
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

// TestClosing asserts when a replica that ends may have to publish the group's last plan: as soon
// as it has not heard any replica that stays for a heartbeat, which is before a leader that was killed
// counts as dead.
func TestClosing(t *testing.T) {
	before := claimOf("b", 3)
	for _, c := range []struct {
		name    string
		closes  bool          // clients drop requests
		silent  time.Duration // since b, the leader, and c were heard
		leaves  bool          // both told that they leave
		reaches bool          // the engine answers
		want    bool
	}{
		{"b stays", true, 500 * time.Millisecond, false, true, false},
		{"all leave", true, 500 * time.Millisecond, true, true, true},
		{"b is silent", true, 1200 * time.Millisecond, false, true, true},
		{"b is dead", true, 5 * time.Second, false, true, true},
		{"nobody drops", false, 5 * time.Second, true, true, false},
		{"the engine does not answer", true, 1200 * time.Millisecond, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, group.Saved{})
			s.wait(0)
			r := s.request(group.OpAcquire)
			if c.reaches {
				s.answer(r, group.Standing{Holder: before.Leader, Claim: before})
			} else {
				s.fail(r)
			}
			for _, from := range []string{"b", "c"} {
				s.hears(from, group.Message{Status: &group.Status{Engine: true, Reaches: 3, Leaves: c.leaves}})
			}
			if s.node.Closing(s.now) {
				t.Error("a replica that stays closes nothing")
			}
			s.node.Announce(s.now, c.closes)
			for _, from := range []string{"b", "c"} { // they answer
				s.hears(from, group.Message{Status: &group.Status{Engine: true, Reaches: 3, Leaves: c.leaves}})
			}
			s.now += c.silent
			if got := s.node.Closing(s.now); got != c.want {
				t.Errorf("closing: %t, want %t", got, c.want)
			}
			s.node.Leave(s.now)
			if s.node.Closing(s.now) {
				t.Error("one that has left closes nothing")
			}
		})
	}
}

// TestClosingUntilOthersAnswer asserts that a replica which ends, a leader or not, counts on no other
// one that has not answered since: it may have died a moment before.
func TestClosingUntilOthersAnswer(t *testing.T) {
	for _, leads := range []bool{true, false} {
		s := newScript(t, group.Saved{})
		if s.lead(); !leads {
			s.node.StepDown(s.now)
			s.answer(s.request(group.OpRelease), group.Standing{Claim: claimOf("b", 3)})
		}
		s.acts = nil
		s.node.Announce(s.now, true)
		s.take()
		for _, to := range []string{"b", "c"} {
			if got := s.sent(to); len(got) == 0 || got[0].Status == nil || !got[0].Status.Asks || !got[0].Status.Leaves {
				t.Errorf("leads: %t; %s is told %+v", leads, to, got)
			}
		}
		s.now += 100 * time.Millisecond
		if !s.node.Closing(s.now) {
			t.Errorf("leads: %t; it counts on replicas that have not answered", leads)
		}
		s.hears("b", group.Message{Status: &group.Status{Engine: true, Reaches: 3}})
		if s.node.Closing(s.now) {
			t.Errorf("leads: %t; b has answered, and stays", leads)
		}
	}
}

// TestClosingThoughTheEngineFails asserts that a replica which may have to publish the group's last
// plan goes on waiting for that after two requests to the engine that failed or were given up, and not
// once the engine has answered nothing for longer.
func TestClosingThoughTheEngineFails(t *testing.T) {
	before := claimOf("b", 3)
	for _, late := range []bool{true, false} {
		s := newScript(t, group.Saved{})
		s.wait(0)
		s.answer(s.request(group.OpAcquire), group.Standing{Holder: before.Leader, Claim: before})
		s.hears("b", group.Message{Status: &group.Status{Engine: true, Reaches: 2}})
		s.node.Announce(s.now, true)
		s.answer(s.request(group.OpRead), group.Standing{Holder: before.Leader, Claim: before})
		s.pass(2 * time.Second)
		for range 2 {
			r := s.pending()
			s.pass(2900 * time.Millisecond)
			if late {
				s.wait(100 * time.Millisecond)
			} else {
				s.fail(r)
			}
			s.wait(500 * time.Millisecond)
		}
		s.pass(1500 * time.Millisecond)
		if !s.node.Closing(s.now) {
			t.Errorf("given up: %t; it waits no more after two requests that failed", late)
		}
		s.pass(3 * time.Second)
		if s.node.Closing(s.now) {
			t.Errorf("given up: %t; it waits though the engine is gone", late)
		}
		s.wait(500 * time.Millisecond)
		s.answer(s.pending(), group.Standing{Holder: before.Leader, Claim: before})
		if !s.node.Closing(s.now) {
			t.Errorf("given up: %t; it does not wait though the engine is back", late)
		}
	}
}

// TestClosingAfterAPause asserts that a replica which was paused as it ends, and could not hear the engine,
// takes neither it nor the leader's lease for gone.
func TestClosingAfterAPause(t *testing.T) {
	before := claimOf("b", 3)
	s := newScript(t, group.Saved{})
	s.wait(0)
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: before.Leader, Claim: before})
	s.hears("b", group.Message{Status: &group.Status{Engine: true, Reaches: 2}})
	s.node.Announce(s.now, true)
	s.answer(s.request(group.OpRead), group.Standing{Holder: before.Leader, Claim: before})
	s.wait(time.Minute)
	if !s.node.Closing(s.now) {
		t.Error("it waits no more after a pause")
	}
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: before.Leader, Claim: before})
	if !s.node.Closing(s.now) {
		t.Error("after a pause it takes the last leader for alive")
	}
}

// TestClosingAfterAnOutageOfTheEngine asserts that a replica which ends does not take a dead leader for
// alive that the engine names after an outage: leases do not run out while the engine is down.
func TestClosingAfterAnOutageOfTheEngine(t *testing.T) {
	before := claimOf("b", 3)
	s := newScript(t, group.Saved{})
	answer := func(until time.Duration, standing *group.Standing) { // nil = the engine is down
		for ; s.now < until; s.wait(500 * time.Millisecond) {
			for _, a := range s.acts {
				switch {
				case a.Request == nil:
				case standing == nil:
					s.fail(*a.Request)
				default:
					s.node.Answered(s.now, a.Request.ID, group.Answer{Standing: *standing})
				}
			}
			s.acts = nil
			s.take()
		}
	}
	led := group.Standing{Holder: before.Leader, Claim: before}
	s.wait(0)
	answer(500*time.Millisecond, &led)
	s.hears("b", group.Message{Status: &group.Status{Engine: true, Reaches: 3}})
	s.node.Announce(s.now, true)
	answer(40*time.Second, nil)
	answer(55*time.Second, &led)
	if !s.node.Closing(s.now) {
		t.Error("it takes a leader for alive that was killed before the engine was down")
	}
	answer(62*time.Second, &led)
	if s.node.Closing(s.now) {
		t.Error("it waits for a leader that renews its lease")
	}
}

// TestClosingCutOffFromTheLeader asserts that a replica which is only cut off from the others does not
// wait for leadership: the engine names a leader that must have lived since it was heard last.
func TestClosingCutOffFromTheLeader(t *testing.T) {
	b, c := claimOf("b", 3), claimOf("c", 4)
	for name, step := range map[string]struct {
		silent time.Duration // since b, the leader, and c were heard
		holder group.Identity
		want   bool
	}{
		"b was killed, and its lease runs on":    {9 * time.Second, b.Leader, true},
		"of Kubernetes, too":                     {17 * time.Second, b.Leader, true},
		"b renews its lease":                     {25 * time.Second, b.Leader, false},
		"nobody leads":                           {25 * time.Second, group.Identity{}, true},
		"c has won since it was heard last":      {11 * time.Second, c.Leader, false},
		"c may have won before it was killed":    {3 * time.Second, c.Leader, true},
		"this replica has won":                   {11 * time.Second, group.Identity{Name: "a", Incarnation: 1}, true},
		"a replica that is not of the group has": {25 * time.Second, group.Identity{Name: "x"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, group.Saved{})
			s.wait(0)
			s.answer(s.request(group.OpAcquire), group.Standing{Holder: b.Leader, Claim: b})
			for _, from := range []string{"b", "c"} {
				s.hears(from, group.Message{Status: &group.Status{Engine: true, Reaches: 3}})
			}
			s.node.Announce(s.now, true)
			heard := s.now
			for s.now-heard < step.silent { // b leads for as long as the engine is asked
				s.wait(2 * time.Second)
				holder := b.Leader
				if s.now-heard >= step.silent {
					holder = step.holder
				}
				s.answer(s.pending(), group.Standing{Holder: holder, Claim: b})
			}
			if got := s.node.Closing(s.now); got != step.want {
				t.Errorf("closing: %t, want %t", got, step.want)
			}
		})
	}
}
