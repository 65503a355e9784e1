//go:build !race

package group_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// TestLeaderThatIsCutOffStepsDown: a follower that the leader does not hear tells
// through the engine that it reaches more of the group.
func TestLeaderThatIsCutOffStepsDown(t *testing.T) {
	s := newScript(t, group.Saved{})
	c := s.lead()
	standing := group.Standing{Holder: s.self, Claim: c, Present: []group.Presence{{Name: "b", Reaches: 2}, {Name: "c", Reaches: 2}}}
	for range 12 {
		s.wait(500 * time.Millisecond)
		for _, a := range s.acts {
			if a.Request != nil && a.Request.Op == group.OpRenew {
				s.node.Answered(s.now, a.Request.ID, group.Answer{Standing: standing})
			}
		}
		s.take()
		if s.node.Role() != group.Leading {
			break
		}
		s.acts = nil
	}
	r := s.request(group.OpRelease)
	s.answer(r, group.Standing{Claim: c})
	for range 29 {
		s.wait(time.Second)
		for _, a := range s.acts {
			if a.Request != nil && a.Request.Op == group.OpAcquire {
				t.Fatal("it campaigns within 30 s after it stepped down")
			}
			if a.Request != nil {
				s.node.Answered(s.now, a.Request.ID, group.Answer{Standing: group.Standing{Holder: group.Identity{Name: "b"}, Claim: c}})
			}
		}
		s.acts = nil
	}
}

// TestLeaderOutlivesAFollower: what a follower left in the engine before it was killed does
// not make the leader step down, though it says that the follower reached more of the group
// than the leader does without it.
func TestLeaderOutlivesAFollower(t *testing.T) {
	s := newScript(t, group.Saved{})
	c := s.lead()
	s.hears("b", group.Message{Status: &group.Status{Claim: c, Engine: true, Reaches: 3}})
	s.hears("c", group.Message{Status: &group.Status{Claim: c, Engine: true, Reaches: 3}})
	killed := s.now
	for range 40 { // c hears b no more either; b's trace in the engine ends 10 s after its death
		s.wait(500 * time.Millisecond)
		s.hears("c", group.Message{Status: &group.Status{Claim: c, Engine: true, Reaches: 2}})
		standing := group.Standing{Holder: s.self, Claim: c}
		if age := s.now - killed; age < 10*time.Second {
			standing.Present = []group.Presence{{Name: "b", Reaches: 3, Age: age}}
		}
		for _, a := range s.acts {
			if a.Request != nil && a.Request.Op == group.OpRenew {
				s.node.Answered(s.now, a.Request.ID, group.Answer{Standing: standing})
			}
		}
		s.take()
		s.acts = nil
		if s.node.Role() != group.Leading {
			t.Fatalf("the leader stepped down %v after a follower was killed", s.now-killed)
		}
	}
}

// TestLeaderOutlivesAllFollowers: what a follower told directly before it was killed counts once. It
// still heard another one that had been killed before, which the leader hears no more.
func TestLeaderOutlivesAllFollowers(t *testing.T) {
	t.Run("which were killed", func(t *testing.T) { outlives(t, 2400*time.Millisecond, false) })
	t.Run("as it ends", func(t *testing.T) { outlives(t, 6*time.Second, true) })
}

// outlives asserts that a leader goes on to lead while b, for some time, tells that it reaches more.
func outlives(t *testing.T, tells time.Duration, ends bool) {
	t.Helper()
	s := newScript(t, group.Saved{})
	c := s.lead()
	if ends {
		s.node.Announce(s.now, true)
	}
	began := s.now
	for s.now-began < 6*time.Second {
		if s.now-began <= tells {
			s.hears("b", group.Message{Status: &group.Status{Claim: c, Engine: true, Reaches: 3}})
		}
		s.wait(200 * time.Millisecond)
		for _, a := range s.acts {
			if a.Request != nil && a.Request.Op == group.OpRenew {
				s.node.Answered(s.now, a.Request.ID, group.Answer{Standing: group.Standing{Holder: s.self, Claim: c}})
			}
		}
		s.take()
		s.acts = nil
	}
	if s.node.Role() != group.Leading {
		t.Errorf("the leader became %s after both followers were killed", s.node.Role())
	}
}

// TestRestEndsWhereNobodyLeads: a replica that stepped down takes leadership again if no
// other replica does in the time of two attempts, as when the others stepped down, too.
func TestRestEndsWhereNobodyLeads(t *testing.T) {
	s := newScript(t, group.Saved{})
	c := s.lead()
	s.acts = nil
	s.node.StepDown(s.now)
	s.answer(s.request(group.OpRelease), group.Standing{Claim: c})
	began := s.now
	for range 40 {
		s.wait(250 * time.Millisecond)
		for _, a := range s.acts {
			if a.Request == nil {
				continue
			}
			if a.Request.Op == group.OpAcquire {
				if rested := s.now - began; rested < 6*time.Second || rested > 8*time.Second {
					t.Errorf("it campaigns %v after it stepped down", rested)
				}
				return
			}
			s.node.Answered(s.now, a.Request.ID, group.Answer{Standing: group.Standing{Claim: c}})
		}
		s.take()
		s.acts = nil
	}
	t.Error("nobody campaigns")
}

// TestLeaderThatIsNotHeardStepsDown: the leader's messages do not arrive, while it hears
// all others. It steps down, unless the followers reach no more than each of them alone.
func TestLeaderThatIsNotHeardStepsDown(t *testing.T) {
	for _, c := range []struct {
		name    string
		b, c    group.Status
		remains bool
	}{
		{"nobody hears it, and the others hear each other", group.Status{Deaf: true, Engine: true, Reaches: 2}, group.Status{Deaf: true, Engine: true, Reaches: 2}, false},
		{"one hears it, the other one has just started", group.Status{Engine: true, Reaches: 3}, group.Status{Deaf: true, Engine: true, Reaches: 2}, true},
		{"the others hear nobody", group.Status{Deaf: true, Engine: true, Reaches: 1}, group.Status{Deaf: true, Engine: true, Reaches: 1}, true},
		{"the others do not reach the engine", group.Status{Deaf: true, Reaches: 2}, group.Status{Deaf: true, Reaches: 2}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, group.Saved{})
			claim := s.lead()
			for range 12 {
				s.hears("b", group.Message{Status: &c.b})
				s.hears("c", group.Message{Status: &c.c})
				s.wait(500 * time.Millisecond)
				for _, a := range s.acts {
					if a.Request != nil && a.Request.Op == group.OpRenew {
						s.node.Answered(s.now, a.Request.ID, group.Answer{Standing: group.Standing{Holder: s.self, Claim: claim}})
					}
				}
				s.take()
				s.acts = nil
			}
			if remains := s.node.Role() == group.Leading; remains != c.remains {
				t.Errorf("the leader is %s", s.node.Role())
			}
		})
	}
}

// TestDeafness: a replica tells each other one whether it hears it.
func TestDeafness(t *testing.T) {
	s := newScript(t, group.Saved{})
	s.wait(0)
	s.hears("b", group.Message{Status: &group.Status{}})
	s.acts = nil
	s.wait(time.Second)
	s.wait(time.Second)
	for name, deaf := range map[string]bool{"b": false, "c": true} {
		sent := s.sent(name)
		if len(sent) == 0 || sent[0].Status.Deaf != deaf {
			t.Errorf("%s is told %+v, want deaf %v", name, sent, deaf)
		}
	}
}

// TestLeaderStepsDownOnceInFiveMinutes asserts that a leader which another replica goes on to outreach after
// it stepped down, and which leads again since no other one does, leads for 5 minutes.
func TestLeaderStepsDownOnceInFiveMinutes(t *testing.T) {
	s := newScript(t, group.Saved{})
	claim := s.lead()
	heard, deaf := group.Status{Engine: true, Reaches: 2}, group.Status{Engine: true, Reaches: 3, Deaf: true}
	var releases []time.Duration
	for s.now < 6*time.Minute {
		s.hears("c", group.Message{Status: &deaf})
		s.hears("b", group.Message{Status: &heard})
		s.wait(500 * time.Millisecond)
		for acts := s.acts; len(acts) > 0; acts = s.acts {
			s.acts = nil
			for _, a := range acts {
				if a.Request == nil {
					continue
				}
				standing := group.Standing{Holder: s.self, Claim: claim}
				switch a.Request.Op {
				case group.OpClaim:
					claim = a.Request.Claim
					standing.Claim = claim
				case group.OpRelease:
					releases = append(releases, s.now)
					standing.Holder = group.Identity{}
				case group.OpRead:
					standing.Holder = group.Identity{}
				case group.OpAcquire, group.OpRenew:
				}
				s.answer(*a.Request, standing)
			}
		}
		if n := len(releases); n > 0 && s.now > releases[n-1]+10*time.Second && s.node.Role() != group.Leading {
			t.Fatalf("at %v the replica is %s; it gave leadership up at %v", s.now, s.node.Role(), releases)
		}
	}
	if len(releases) != 2 || releases[0] > 5*time.Second || releases[1]-releases[0] < 5*time.Minute || releases[1]-releases[0] > 5*time.Minute+2*time.Second {
		t.Errorf("it gave leadership up at %v", releases)
	}
}
