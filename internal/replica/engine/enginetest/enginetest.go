// Package enginetest holds every engine to the same rules. Only tests import it.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
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
		"operators' writes are guarded":  operatorsWrite,
		"many writes count at once":      manyAtOnce,
		"readers see whole writes":       wholeWrites,
		"writes without a leader":        writesWithoutLeader,
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

// lead makes a replica the leader of an epoch.
func lead(t *testing.T, e engine.Engine, self group.Identity, previous group.Claim, epoch uint64) group.Claim {
	t.Helper()
	holder(t, Do(t, e, group.Request{Op: group.OpAcquire}), self)
	c := claim(self, epoch)
	if s := Do(t, e, group.Request{Op: group.OpClaim, Previous: previous, Claim: c}); s.Claim != c {
		t.Fatalf("the engine has %s, want %s", s.Claim, c)
	}
	return c
}

func write(t *testing.T, e engine.Engine, c group.Claim, sequence uint64, changes ...engine.Change) error {
	t.Helper()
	o, ok := e.(engine.Operators)
	if !ok {
		t.Fatal("the engine keeps nothing for operators")
	}
	return o.WriteOperators(t.Context(), c, sequence, sequence+1, changes)
}

func has(t *testing.T, e engine.Engine, sequence uint64, want map[string]string) {
	t.Helper()
	o, ok := e.(engine.Operators)
	if !ok {
		t.Fatal("the engine keeps nothing for operators")
	}
	w, err := o.ReadOperators(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last, err := o.LastWrite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last != w.Sequence {
		t.Fatalf("the last write is %d, all entries are those of %d", last, w.Sequence)
	}
	got := map[string]string{}
	for key, data := range w.Entries {
		got[key] = string(data)
	}
	if w.Sequence != sequence || !maps.Equal(got, want) {
		t.Fatalf("operators wrote %d: %v, want %d: %v", w.Sequence, got, sequence, want)
	}
}

func entry(key, data string) engine.Change { return engine.Change{Key: key, Data: []byte(data)} }

// operatorsWrite asserts that writes are all or none, in sequence, and by the leader of
// the newest claim alone.
func operatorsWrite(t *testing.T, open Open) {
	t.Helper()
	a, b := Replica("a", 1), Replica("b", 1)
	first, second := open(t, a), open(t, b)
	has(t, first, 0, nil)
	refused := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	refused(write(t, first, claim(a, 1), 0, entry("x", `1`)), engine.ErrNotLeading)
	one := lead(t, first, a, group.Claim{}, 1)
	refused(write(t, first, one, 1, entry("x", `1`)), engine.ErrStale)
	refused(write(t, first, one, 0, entry("services/x", `1`), entry("health/x/127.0.0.1:1", `2`)), nil)
	refused(write(t, first, one, 0, entry("services/x", `3`)), engine.ErrStale)
	refused(write(t, second, one, 1, entry("services/x", `3`)), engine.ErrNotLeading)
	refused(write(t, first, one, 1, engine.Change{Key: "health/x/127.0.0.1:1"}, engine.Change{Key: "none"}, entry("services/y", `4`)), nil)
	want := map[string]string{"services/x": "1", "services/y": "4"}
	has(t, second, 2, want)
	refused(write(t, first, one, 2, engine.Change{Key: "big", Data: make([]byte, engine.MaxEntryBytes+1)}), engine.ErrTooLarge)

	Do(t, first, group.Request{Op: group.OpRelease})
	refused(write(t, first, one, 2, entry("services/x", `5`)), engine.ErrNotLeading)
	two := lead(t, second, b, one, 2)
	refused(write(t, first, one, 2, entry("services/x", `5`)), engine.ErrNotLeading)
	refused(write(t, second, one, 2, entry("services/x", `5`)), engine.ErrNotLeading)
	has(t, first, 2, want)
	refused(write(t, second, two, 2), nil)
	has(t, first, 3, want)
}

// manyAtOnce asserts that a write of more than an engine takes at once counts as a
// whole, and that the next write builds on it.
func manyAtOnce(t *testing.T, open Open) {
	t.Helper()
	a := Replica("a", 1)
	e := open(t, a)
	one := lead(t, e, a, group.Claim{}, 1)
	want := map[string]string{}
	var changes []engine.Change
	for i := range 550 { // more than etcd returns at once
		key := fmt.Sprintf("services/s%d", i)
		want[key] = strconv.Itoa(i)
		changes = append(changes, entry(key, want[key]))
	}
	large := strconv.Quote(strings.Repeat("x", 400<<10))
	for i := range 5 {
		key := fmt.Sprintf("services/large%d", i)
		want[key] = large
		changes = append(changes, entry(key, large))
	}
	if err := write(t, e, one, 0, changes...); err != nil {
		t.Fatal(err)
	}
	has(t, open(t, Replica("b", 1)), 1, want)
	var removed []engine.Change
	for i := range 300 {
		key := fmt.Sprintf("services/s%d", i)
		delete(want, key)
		removed = append(removed, engine.Change{Key: key})
	}
	if err := write(t, e, one, 1, removed...); err != nil {
		t.Fatal(err)
	}
	has(t, e, 2, want)
}

// wholeWrites asserts that a reader sees all entries of one write, while the leader writes all of them
// again and again, more than an engine takes or returns at once.
func wholeWrites(t *testing.T, open Open) {
	t.Helper()
	const entries, writes = 550, 4
	a := Replica("a", 1)
	e, reader := open(t, a), open(t, Replica("b", 1))
	one := lead(t, e, a, group.Claim{}, 1)
	leader, keeps := e.(engine.Operators)
	o, reads := reader.(engine.Operators)
	if !keeps || !reads {
		t.Fatal("the engine keeps nothing for operators")
	}
	written := make(chan error, 1)
	go func() {
		defer close(written)
		for n := range uint64(writes) {
			var changes []engine.Change
			for i := range entries {
				changes = append(changes, entry(fmt.Sprintf("services/s%d", i), strconv.FormatUint(n+1, 10)))
			}
			_, err := e.Do(t.Context(), group.Request{Op: group.OpRenew})
			if err == nil {
				err = leader.WriteOperators(t.Context(), one, n, n+1, changes)
			}
			if err != nil {
				written <- err
				return
			}
		}
	}()
	for sequence := uint64(0); sequence < writes; {
		w, err := o.ReadOperators(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := entries * min(1, int(w.Sequence)); w.Sequence < sequence || len(w.Entries) != want { //nolint:gosec // few writes
			t.Fatalf("write %d after %d has %d entries, want %d", w.Sequence, sequence, len(w.Entries), want)
		}
		sequence = w.Sequence
		for key, data := range w.Entries {
			if string(data) != strconv.FormatUint(sequence, 10) {
				t.Fatalf("after write %d, %s is of write %s", sequence, key, data)
			}
		}
		select {
		case err := <-written:
			if err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
}

// writesWithoutLeader asserts that any replica may write for operators while no replica leads, in
// sequence, that the next leader finds it, and that no replica may while one leads.
func writesWithoutLeader(t *testing.T, open Open) {
	t.Helper()
	a, b := Replica("a", 1), Replica("b", 1)
	first, second := open(t, a), open(t, b)
	refused := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	nobody := group.Claim{}
	refused(write(t, second, nobody, 0, entry("health/x", `1`)), nil)
	one := lead(t, first, a, nobody, 1)
	has(t, first, 1, map[string]string{"health/x": "1"})
	refused(write(t, first, nobody, 1, entry("health/x", `2`)), engine.ErrLed)
	refused(write(t, second, nobody, 1, entry("health/x", `2`)), engine.ErrLed)
	refused(write(t, first, one, 1, entry("health/y", `3`)), nil)

	Do(t, first, group.Request{Op: group.OpRelease})
	refused(write(t, second, nobody, 1, entry("health/x", `2`)), engine.ErrStale)
	refused(write(t, second, nobody, 2, engine.Change{Key: "health/x"}, entry("health/z", `4`)), nil)
	want := map[string]string{"health/y": "3", "health/z": "4"}
	has(t, first, 3, want)
	refused(write(t, first, one, 3, entry("health/x", `5`)), engine.ErrNotLeading)
	two := lead(t, second, b, one, 2)
	refused(write(t, second, two, 2, entry("health/x", `5`)), engine.ErrStale)
	has(t, second, 3, want)
}
