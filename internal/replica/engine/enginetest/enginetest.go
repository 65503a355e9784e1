// Package enginetest holds every engine to the same rules. Only tests import it.
package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// Open opens the engine of one replica of a group. All engines that one Open
// opens belong to the same group, which is new to each test.
type Open func(t *testing.T, self group.Identity) engine.Engine

// Run runs the rules. fresh makes a new group.
func Run(t *testing.T, fresh func(t *testing.T) Open) {
	t.Helper()
	for name, test := range map[string]func(t *testing.T, open Open){
		"one leads":                      oneLeads,
		"release frees":                  releaseFrees,
		"acquire again renews":           acquireAgain,
		"claims are guarded":             claimsAreGuarded,
		"claims survive":                 claimsSurvive,
		"an incarnation does not return": incarnations,
		"a canceled request is an error": canceled,
		"others' releases do nothing":    foreignRelease,
	} {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

// Replica returns an identity for tests.
func Replica(name string, incarnation uint64) group.Identity {
	return group.Identity{Name: name, Incarnation: incarnation}
}

// Do runs a request that has to be answered.
func Do(t *testing.T, e engine.Engine, r group.Request) group.Standing {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := e.Do(ctx, r)
	if err != nil {
		t.Fatalf("%s: %v", r.Op, err)
	}
	return s
}

func holder(t *testing.T, s group.Standing, want group.Identity) {
	t.Helper()
	if s.Holder != want {
		t.Fatalf("%q leads, want %q", s.Holder, want)
	}
}

func claim(leader group.Identity, epoch uint64) group.Claim {
	return group.Claim{Epoch: epoch, Leader: leader, First: epoch*(group.BlockSize+1) + 1}
}

func oneLeads(t *testing.T, open Open) {
	t.Helper()
	a, b := Replica("a", 1), Replica("b", 1)
	first, second := open(t, a), open(t, b)
	holder(t, Do(t, first, group.Request{Op: group.OpRead}), group.Identity{})
	holder(t, Do(t, first, group.Request{Op: group.OpAcquire}), a)
	holder(t, Do(t, second, group.Request{Op: group.OpAcquire}), a)
	holder(t, Do(t, second, group.Request{Op: group.OpRead}), a)
	holder(t, Do(t, second, group.Request{Op: group.OpRenew}), a)
	holder(t, Do(t, first, group.Request{Op: group.OpRenew}), a)
}

func releaseFrees(t *testing.T, open Open) {
	t.Helper()
	a, b := Replica("a", 1), Replica("b", 1)
	first, second := open(t, a), open(t, b)
	Do(t, first, group.Request{Op: group.OpAcquire})
	holder(t, Do(t, first, group.Request{Op: group.OpRelease}), group.Identity{})
	holder(t, Do(t, first, group.Request{Op: group.OpRenew}), group.Identity{})
	holder(t, Do(t, second, group.Request{Op: group.OpAcquire}), b)
	holder(t, Do(t, first, group.Request{Op: group.OpRenew}), b)
	holder(t, Do(t, first, group.Request{Op: group.OpAcquire}), b)
}

func acquireAgain(t *testing.T, open Open) {
	t.Helper()
	a := Replica("a", 1)
	e := open(t, a)
	for range 3 {
		holder(t, Do(t, e, group.Request{Op: group.OpAcquire}), a)
	}
}

func claimsAreGuarded(t *testing.T, open Open) {
	t.Helper()
	a, b := Replica("a", 1), Replica("b", 1)
	first, second := open(t, a), open(t, b)
	none, one, two := group.Claim{}, claim(a, 1), claim(a, 2)
	has := func(s group.Standing, want group.Claim) {
		t.Helper()
		if s.Claim != want {
			t.Fatalf("the engine has %s, want %s", s.Claim, want)
		}
	}
	has(Do(t, first, group.Request{Op: group.OpClaim, Previous: none, Claim: one}), none) // it does not lead
	Do(t, first, group.Request{Op: group.OpAcquire})
	has(Do(t, second, group.Request{Op: group.OpClaim, Previous: none, Claim: claim(b, 1)}), none)
	has(Do(t, first, group.Request{Op: group.OpClaim, Previous: two, Claim: one}), none)
	has(Do(t, first, group.Request{Op: group.OpClaim, Previous: none, Claim: one}), one)
	has(Do(t, first, group.Request{Op: group.OpClaim, Previous: none, Claim: two}), one)
	has(Do(t, first, group.Request{Op: group.OpClaim, Previous: one, Claim: two}), two)
	has(Do(t, second, group.Request{Op: group.OpClaim, Previous: two, Claim: claim(b, 3)}), two)
	has(Do(t, second, group.Request{Op: group.OpRead}), two)
}

func claimsSurvive(t *testing.T, open Open) {
	t.Helper()
	a, b := Replica("a", 1), Replica("b", 1)
	first := open(t, a)
	Do(t, first, group.Request{Op: group.OpAcquire})
	Do(t, first, group.Request{Op: group.OpClaim, Claim: claim(a, 1)})
	Do(t, first, group.Request{Op: group.OpRelease})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	s := Do(t, open(t, b), group.Request{Op: group.OpAcquire})
	holder(t, s, b)
	if s.Claim != claim(a, 1) {
		t.Fatalf("the engine has %s, want the claim of a leader that ended", s.Claim)
	}
}

func incarnations(t *testing.T, open Open) {
	t.Helper()
	before, after := Replica("a", 1), Replica("a", 2)
	first, second := open(t, before), open(t, after)
	Do(t, first, group.Request{Op: group.OpAcquire})
	holder(t, Do(t, second, group.Request{Op: group.OpAcquire}), before)
	holder(t, Do(t, second, group.Request{Op: group.OpRenew}), before)
	if s := Do(t, second, group.Request{Op: group.OpClaim, Claim: claim(after, 1)}); !s.Claim.IsZero() {
		t.Fatalf("an incarnation that does not lead wrote %s", s.Claim)
	}
}

func foreignRelease(t *testing.T, open Open) {
	t.Helper()
	a, b := Replica("a", 1), Replica("b", 1)
	first, second := open(t, a), open(t, b)
	Do(t, first, group.Request{Op: group.OpAcquire})
	holder(t, Do(t, second, group.Request{Op: group.OpRelease}), a)
	holder(t, Do(t, first, group.Request{Op: group.OpRenew}), a)
}

func canceled(t *testing.T, open Open) {
	t.Helper()
	e := open(t, Replica("a", 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Do(ctx, group.Request{Op: group.OpRead}); err == nil {
		t.Fatal("a request whose context has ended was answered")
	}
}
