package replicas

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/engine/enginetest"
	"github.com/isobar-xds/isobar/internal/replica/engine/etcd"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// engineTimeout is how long a replica waits for a request of its election.
const engineTimeout = 3 * time.Second

// TestEtcdMemberThatHangs asserts that a member of etcd that hangs with its connections open does
// not cost the leader its lease, and keeps no replica from leading, while the others have a quorum.
func TestEtcdMemberThatHangs(t *testing.T) {
	c := startCluster(t, 3)
	first := openAt(t, "hangs", enginetest.Replica("a", 1), c.members...)
	second := openAt(t, "hangs", enginetest.Replica("b", 1), c.members...)
	enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
	enginetest.Do(t, second, group.Request{Op: group.OpAcquire, Reaches: 2})
	if err := c.follower().process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	leadsAndHandsOver(t, first, second)
}

// TestEtcdMemberWithoutALeader asserts the same of a member that answers, and is cut off from etcd's
// leader: it would have requests wait for a leader.
func TestEtcdMemberWithoutALeader(t *testing.T) {
	cut, whole := startCluster(t, 3), startCluster(t, 1)
	cut.kill(cut.members[1])
	cut.kill(cut.members[2])
	first := openAt(t, "cut", enginetest.Replica("a", 1), cut.members[0], whole.members[0])
	second := openAt(t, "cut", enginetest.Replica("b", 1), cut.members[0], whole.members[0])
	until(t, first, group.Request{Op: group.OpAcquire}, leads(enginetest.Replica("a", 1)))
	leadsAndHandsOver(t, first, second)
	w := first.Warnings(t.Context())
	if !slices.ContainsFunc(w, func(text string) bool {
		return strings.Contains(text, cut.members[0].client+" has no leader of etcd")
	}) {
		t.Errorf("the warnings are %q", w)
	}
}

// leadsAndHandsOver has the first replica renew its lease, claim, write and give up leadership, and
// the second one campaign and take over. Each request has the time that a replica gives it; as a
// replica does, it comes again if it fails before.
func leadsAndHandsOver(t *testing.T, first, second *etcd.Engine) {
	t.Helper()
	a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
	do := func(e *etcd.Engine, r group.Request) group.Standing {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), engineTimeout)
		defer cancel()
		for {
			s, err := e.Do(ctx, r)
			switch {
			case err == nil:
				return s
			case ctx.Err() != nil:
				t.Fatalf("%s: %v", r.Op, err)
			}
		}
	}
	for range 4 {
		if s := do(first, group.Request{Op: group.OpRenew}); s.Holder != a {
			t.Fatalf("%q leads", s.Holder)
		}
		if s := do(second, group.Request{Op: group.OpAcquire, Reaches: 2}); s.Holder != a {
			t.Fatalf("%q leads", s.Holder)
		}
	}
	claim := group.Claim{Epoch: 1, Leader: a, First: group.BlockSize + 1}
	if s := do(first, group.Request{Op: group.OpClaim, Claim: claim}); s.Claim != claim {
		t.Errorf("the claim is %s", s.Claim)
	}
	if _, err := first.ReadOperators(t.Context()); err != nil {
		t.Errorf("reading what operators wrote: %v", err)
	}
	if s := do(first, group.Request{Op: group.OpRelease}); s.Holder == a {
		t.Errorf("%q leads after it gave up leadership", s.Holder)
	}
	if s := do(second, group.Request{Op: group.OpAcquire}); s.Holder != b {
		t.Errorf("%q leads, want %q", s.Holder, b)
	}
}

// follower returns a member that does not lead etcd.
func (c *cluster) follower() *etcdMember {
	c.t.Helper()
	client := c.client()
	for _, m := range c.members {
		s, err := client.Status(c.t.Context(), m.client)
		if err != nil {
			c.t.Fatal(err)
		}
		if s.Leader != s.Header.GetMemberId() {
			return m
		}
	}
	c.t.Fatal("every member leads etcd")
	return nil
}
