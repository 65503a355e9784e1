//go:build !race

package group_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

func TestAdmit(t *testing.T) {
	c := claimOf("b", 4)
	newer := planOf(c, 10, "newer")
	s := newScript(t, group.Saved{Fence: c, Plan: *planOf(c, 0, "old")})
	s.wait(0)
	want := func(v group.Verdict, shown uint64, waited time.Duration) {
		t.Helper()
		if got := s.node.Admit(s.now, shown, waited); got != v {
			t.Fatalf("version %d after %v: %s, want %s", shown, waited, got, v)
		}
		s.take()
	}
	want(group.Serve, 0, 0)
	want(group.Serve, c.First, 0)
	want(group.Wait, newer.Version, 0)
	want(group.Close, newer.Version, 5*time.Second)
	want(group.Wait, 1<<50, 0) // it does not know the newest claim
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: c.Leader, Claim: c})
	want(group.Serve, 1<<50, 0)                  // of another control plane
	want(group.Wait, claimOf("c", 5).First+3, 0) // of a claim that it may not know yet
	s.hears("b", group.Message{Status: &group.Status{Claim: c, Plan: c, Version: newer.Version, Leads: true}})
	s.hears("b", group.Message{Plan: newer})
	want(group.Serve, newer.Version, time.Second)
}

// TestAdmitToANewGroup has clients come to a replica that knows of no claim: another one
// may have won the engine since it was asked, and what they show is answered only once
// the engine says whose it is.
func TestAdmitToANewGroup(t *testing.T) {
	first := claimOf("b", 1)
	for name, c := range map[string]struct {
		claim group.Claim
		want  group.Verdict
	}{
		"of the first leader, which the replica can't hear":    {first, group.Wait},
		"of a group that lost its engine and all of its disks": {group.Claim{}, group.Serve},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, group.Saved{})
			s.wait(0)
			s.answer(s.request(group.OpAcquire), group.Standing{})
			s.wait(100 * time.Millisecond)
			if got := s.node.Admit(s.now, group.BlockSize, 0); got != group.Serve {
				t.Errorf("a version of a server without a group: %s", got)
			}
			came := s.now
			if got := s.node.Admit(s.now, first.First+7, 0); got != group.Wait {
				t.Fatalf("before the engine was asked: %s", got)
			}
			s.wait(3 * time.Second)
			s.answer(s.request(group.OpAcquire), group.Standing{Claim: c.claim})
			if got := s.node.Admit(s.now, first.First+7, s.now-came); got != c.want {
				t.Errorf("after it: %s, want %s", got, c.want)
			}
		})
	}
}

// TestAdmitToALeader has a client come to the leader of a group that lost its engine and
// all of its disks: the group before had published more under the same versions.
func TestAdmitToALeader(t *testing.T) {
	s := newScript(t, group.Saved{})
	c := s.lead()
	if got := s.node.Admit(s.now, c.First+20_000, 0); got != group.Serve {
		t.Errorf("a version that its claim has and that it did not publish: %s", got)
	}
	s.now += 7100 * time.Millisecond
	if got := s.node.Admit(s.now, c.First+20_000, 0); got != group.Wait {
		t.Errorf("the same after its deadline: %s", got)
	}
}

func TestRemovalsAreHeld(t *testing.T) {
	c := claimOf("b", 4)
	s := newScript(t, group.Saved{Fence: c, Plan: *planOf(c, 0, "old")})
	s.wait(0)
	s.wait(time.Second) // what comes sooner may have waited for the process
	if s.node.Removes(s.now) {
		t.Fatal("a replica that hears no leader tells what is absent")
	}
	s.hears("b", group.Message{Status: &group.Status{Claim: c, Plan: c, Version: c.First, Leads: true}})
	if !s.node.Removes(s.now) {
		t.Fatal("a replica in step with its leader holds removals")
	}
	s.hears("b", group.Message{Status: &group.Status{Claim: c, Plan: c, Version: c.First + 1, Leads: true}})
	if s.node.Removes(s.now) {
		t.Fatal("a replica that is behind its leader tells what is absent")
	}
	s.hears("b", group.Message{Plan: planOf(c, 1, "new")})
	s.now += 3 * time.Second
	if s.node.Removes(s.now) {
		t.Fatal("a replica that has not heard its leader for 3 s tells what is absent")
	}
}

// TestRemovalsAreHeldUntilTheNewLeaderPublishes has a replica with the last plan of the
// leader before, which the new leader never got: the new one's first plan may have what
// that plan lacks.
func TestRemovalsAreHeldUntilTheNewLeaderPublishes(t *testing.T) {
	before, after := claimOf("c", 4), claimOf("b", 5)
	s := newScript(t, group.Saved{Fence: before, Plan: *planOf(before, 7, "without the service")})
	s.wait(0)
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: after.Leader, Claim: after})
	s.wait(time.Second)
	s.hears("b", group.Message{Status: &group.Status{Claim: after, Plan: before, Version: before.First, Leads: true}})
	if s.node.Removes(s.now) {
		t.Fatal("a replica tells what a plan of the leader before lacks")
	}
	s.hears("b", group.Message{Plan: planOf(after, 0, "with the service")})
	if !s.node.Removes(s.now) {
		t.Fatal("a replica with the first plan of the new leader holds removals")
	}
}
