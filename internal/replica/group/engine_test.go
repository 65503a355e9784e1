//go:build !race

package group_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// TestAnswerOfBeforeAPlanCameDoesNotDenyIt asserts that an answer of the engine to a question that was asked
// before a plan of a higher epoch came does not refuse this plan: the claim may be newer than the answer.
func TestAnswerOfBeforeAPlanCameDoesNotDenyIt(t *testing.T) {
	old, next := claimOf("b", 4), claimOf("c", 5)
	s := newScript(t, group.Saved{Fence: old, Plan: *planOf(old, 0, "old")})
	s.wait(0)
	r := s.request(group.OpAcquire)
	s.now += 10 * time.Millisecond
	s.hears("c", group.Message{Plan: planOf(next, 0, "next")})
	s.answer(r, group.Standing{Holder: old.Leader, Claim: old})
	for _, a := range s.acts {
		if a.Refused != nil {
			t.Fatalf("the plan is refused: %s", a.Refused.Reason)
		}
	}
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: next.Leader, Claim: next})
	if s.node.Plan().Claim != next {
		t.Error("the plan is not served, though the engine names its claim")
	}
}

// TestUnconfirmedPlanIsSavedOnceConfirmed asserts that a plan which was accepted while the engine could not be
// asked counts for others as the newest, and is saved as soon as the engine names its claim.
func TestUnconfirmedPlanIsSavedOnceConfirmed(t *testing.T) {
	old, next := claimOf("b", 4), claimOf("c", 5)
	s := newScript(t, group.Saved{Fence: old, Plan: *planOf(old, 0, "old")})
	s.wait(0)
	s.fail(s.request(group.OpAcquire))
	s.hears("c", group.Message{Plan: planOf(next, 0, "next")})
	if v := s.node.View(s.now); v.Durable || v.Newest != next {
		t.Fatalf("durable: %t, the newest claim is %s", v.Durable, v.Newest)
	}
	s.wait(time.Second)
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: next.Leader, Claim: next})
	saved := false
	for _, a := range s.acts {
		saved = saved || a.Save != nil && a.Save.Plan.Claim == next
	}
	if !saved || !s.node.View(s.now).Durable {
		t.Error("the plan is not saved, though the engine names its claim")
	}
}

// TestReleaseIsTriedAgain asserts that a replica which leaves asks the engine until it holds nothing for it,
// and gives back what it wins by an answer that comes after it left.
func TestReleaseIsTriedAgain(t *testing.T) {
	t.Run("of a leader", func(t *testing.T) {
		s := newScript(t, group.Saved{})
		c := s.lead()
		s.node.Leave(s.now)
		s.answer(s.request(group.OpRelease), group.Standing{Holder: s.self, Claim: c})
		if s.node.Left() {
			t.Fatal("it has left, and the engine names it as the leader")
		}
		s.wait(2 * time.Second)
		s.answer(s.request(group.OpRelease), group.Standing{Claim: c})
		if !s.node.Left() {
			t.Error("it has not left")
		}
	})
	t.Run("of one that wins as it leaves", func(t *testing.T) {
		s := newScript(t, group.Saved{})
		s.wait(0)
		r := s.request(group.OpAcquire)
		s.node.Leave(s.now)
		s.answer(r, group.Standing{Holder: s.self})
		if s.node.Role() != group.Follower || s.node.Left() {
			t.Fatalf("it is %s, has left: %t", s.node.Role(), s.node.Left())
		}
		s.answer(s.request(group.OpRelease), group.Standing{})
		if !s.node.Left() {
			t.Error("it has not left")
		}
	})
}

// TestWinnerRenewsWhileItsClaimFails asserts that a winner whose claims are not answered renews its lease in
// time.
func TestWinnerRenewsWhileItsClaimFails(t *testing.T) {
	s := newScript(t, group.Saved{})
	s.wait(0)
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: s.self})
	s.hears("b", group.Message{Status: &group.Status{}})
	s.hears("c", group.Message{Status: &group.Status{}})
	for s.now < 5*time.Second {
		r := s.pending()
		if r.Op == group.OpRenew {
			if s.now < 3*time.Second {
				t.Errorf("it renews %v after it won", s.now)
			}
			return
		}
		if r.Op != group.OpClaim {
			t.Fatalf("it asks for %s", r.Op)
		}
		s.fail(r)
		s.wait(500 * time.Millisecond)
	}
	t.Error("it does not renew its lease")
}

// caretaker makes the node one that b follows, and whose last request to the engine has just failed.
func (s *script) caretaker() group.Claim {
	s.t.Helper()
	c := s.lead()
	for s.now < 10*time.Second {
		s.wait(500 * time.Millisecond)
		s.hears("b", group.Message{Status: &group.Status{Claim: c}})
		for _, a := range s.acts {
			if a.Request != nil {
				s.fail(*a.Request)
			}
		}
		s.acts = nil
	}
	if s.node.Role() != group.Caretaker || !s.mayPublish(true) {
		s.t.Fatalf("without the engine the leader is %s", s.node.Role())
	}
	return c
}

// TestCaretakerThatIsNotNeeded asserts that a caretaker carries no weights over after a pause before the engine
// has failed again, and where nobody follows it, and that it ends as soon as the engine names another claim.
func TestCaretakerThatIsNotNeeded(t *testing.T) {
	t.Run("after a pause", func(t *testing.T) {
		s := newScript(t, group.Saved{})
		c := s.caretaker()
		s.now += 3 * time.Second
		for range 3 {
			s.hears("b", group.Message{Status: &group.Status{Claim: c}})
			s.now += 600 * time.Millisecond
		}
		s.hears("b", group.Message{Status: &group.Status{Claim: c}})
		if s.mayPublish(true) {
			t.Error("it carries weights over")
		}
	})
	t.Run("that nobody follows", func(t *testing.T) {
		s := newScript(t, group.Saved{})
		s.caretaker()
		for range 6 {
			s.wait(500 * time.Millisecond)
			for _, a := range s.acts {
				if a.Request != nil {
					s.fail(*a.Request)
				}
			}
			s.acts = nil
		}
		if s.mayPublish(true) {
			t.Error("it carries weights over")
		}
	})
	t.Run("beside the next leader", func(t *testing.T) {
		s := newScript(t, group.Saved{})
		s.caretaker()
		next := claimOf("c", 5)
		s.wait(time.Second)
		s.answer(s.pending(), group.Standing{Holder: next.Leader, Claim: next})
		if s.node.Role() != group.Follower {
			t.Errorf("it is %s", s.node.Role())
		}
	})
}

// TestWhatAWinnerGatheredIsPassedOn asserts that another winner gets the newest plan that this one gathered and
// does not serve.
func TestWhatAWinnerGatheredIsPassedOn(t *testing.T) {
	old := claimOf("b", 4)
	s := newScript(t, group.Saved{Fence: claimOf("b", 5), Plan: *planOf(old, 0, "old")})
	s.wait(0)
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: s.self, Claim: claimOf("b", 5)})
	newer := planOf(old, 7, "newer")
	s.hears("b", group.Message{Plan: newer})
	s.acts = nil
	s.hears("c", group.Message{Pull: &group.Pull{Base: true}})
	got := s.sent("c")
	if len(got) == 0 || got[0].Plan == nil || got[0].Plan.Version != newer.Version {
		t.Errorf("c gets %+v", got)
	}
	s.acts = nil
	s.hears("c", group.Message{Pull: &group.Pull{}})
	if got = s.sent("c"); len(got) == 0 || got[0].Plan == nil || got[0].Plan.Version != old.First {
		t.Errorf("without a base, c gets %+v", got)
	}
}
