//go:build !race

package group_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// script drives one node by hand: the test is its engine and its peers.
type script struct {
	t    *testing.T
	node *group.Node
	now  time.Duration
	self group.Identity
	acts []group.Action
}

func newScript(t *testing.T, saved group.Saved) *script {
	t.Helper()
	self := group.Identity{Name: "a", Incarnation: 1}
	n, err := group.NewNode(group.Options{Self: self, Peers: []string{"b", "c"}}, saved, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &script{t: t, node: n, self: self}
}

func (s *script) take() { s.acts = append(s.acts, s.node.Take()...) }

func (s *script) wait(d time.Duration) {
	s.now += d
	s.node.Tick(s.now)
	s.take()
}

// pass waits for some time, in which the process runs.
func (s *script) pass(d time.Duration) {
	for ; d > 0; d -= 100 * time.Millisecond {
		s.wait(100 * time.Millisecond)
	}
}

// request takes the request that is under way, which has to be of the kind.
func (s *script) request(op group.Op) group.Request {
	s.t.Helper()
	r := s.pending()
	if r.Op != op {
		s.t.Fatalf("the node asks for %+v, want %s", r, op)
	}
	return r
}

// pending takes the request that is under way, whatever it is.
func (s *script) pending() group.Request {
	s.t.Helper()
	s.take()
	var r *group.Request
	for _, a := range s.acts {
		if a.Request != nil {
			r = a.Request
		}
	}
	s.acts = nil
	if r == nil {
		s.t.Fatal("the node asks for nothing")
	}
	return *r
}

func (s *script) answer(r group.Request, standing group.Standing) {
	s.node.Answered(s.now, r.ID, group.Answer{Standing: standing})
	s.take()
}

func (s *script) fail(r group.Request) {
	s.node.Answered(s.now, r.ID, group.Answer{Err: errors.New("unavailable")})
	s.take()
}

func (s *script) hears(from string, m group.Message) {
	s.t.Helper()
	if err := s.node.Received(s.now, from, m); err != nil {
		s.t.Fatal(err)
	}
	s.take()
}

// lead makes the node the leader of its first claim.
func (s *script) lead() group.Claim {
	s.t.Helper()
	s.wait(0)
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: s.self})
	s.hears("b", group.Message{Status: &group.Status{Engine: true, Reaches: 2}})
	s.hears("c", group.Message{Status: &group.Status{Engine: true, Reaches: 2}})
	r := s.request(group.OpClaim)
	s.answer(r, group.Standing{Holder: s.self, Claim: r.Claim})
	if s.node.Role() != group.Leading {
		s.t.Fatalf("the node is %s after its claim", s.node.Role())
	}
	return r.Claim
}

// mayPublish reports whether the replica may publish a plan now.
func (s *script) mayPublish(reapply bool) bool {
	_, err := s.node.Next(s.now, reapply)
	return err == nil
}

func (s *script) sent(to string) (out []group.Message) {
	for _, a := range s.acts {
		if a.Send != nil && a.Send.To == to {
			out = append(out, a.Send.Message)
		}
	}
	return out
}

func claimOf(name string, epoch uint64) group.Claim {
	return group.Claim{Epoch: epoch, Leader: group.Identity{Name: name, Incarnation: 7}, First: epoch*(group.BlockSize+1) + 1}
}

func planOf(c group.Claim, above uint64, content string) *group.Plan {
	parts := contentOf(content)
	return &group.Plan{Claim: c, Version: c.First + above, Content: parts, Digest: parts.Digest()}
}

func contentOf(parts ...string) group.Content {
	var out []group.Part
	for _, p := range parts {
		out = append(out, group.NewPart([]byte(p)))
	}
	return group.NewContent(out)
}

// text is the content of a plan.
func text(p *group.Plan) string { return string(p.Content.AppendTo(nil)) }

func TestFirstClaimStandsAboveASingleServersVersions(t *testing.T) {
	s := newScript(t, group.Saved{Known: group.Known{Version: 20_000}})
	c := s.lead()
	if c.Epoch != 1 || c.First <= 20_000+group.BlockSize {
		t.Fatalf("the first claim is %s", c)
	}
	p, err := s.node.Publish(s.now, []byte("x"), false)
	if err != nil || p.Version != c.First {
		t.Fatalf("the first plan is %v: %v", p, err)
	}
}

func TestClaimStandsAboveWhatReplicasKnow(t *testing.T) {
	s := newScript(t, group.Saved{})
	s.wait(0)
	s.answer(s.request(group.OpAcquire), group.Standing{Holder: s.self, Claim: claimOf("b", 3)})
	s.hears("b", group.Message{Status: &group.Status{Claim: claimOf("c", 8), Plan: claimOf("c", 8), Version: claimOf("c", 8).First + 5}})
	if got := s.sent("b"); got[len(got)-1].Pull == nil || !got[len(got)-1].Pull.Base {
		t.Fatalf("a winner does not ask for the newer plan to go on from it: %+v", got)
	}
	s.hears("b", group.Message{Plan: planOf(claimOf("c", 8), 5, "newest")})
	if p := s.node.Base(); p == nil || text(p) != "newest" {
		t.Fatalf("the winner goes on from %v", p)
	}
	s.hears("c", group.Message{Status: &group.Status{}})
	r := s.request(group.OpClaim)
	if r.Claim.Epoch != 9 || r.Claim.First <= claimOf("c", 8).Last() || r.Previous != claimOf("b", 3) {
		t.Fatalf("it claims %s in the place of %s", r.Claim, r.Previous)
	}
}

// TestWinnerDoesNotWaitForTheDead asserts that a winner claims as soon as the replicas that
// live have answered, and waits for one that was heard a moment ago, or that it could not hear
// because it was paused itself.
func TestWinnerDoesNotWaitForTheDead(t *testing.T) {
	for _, c := range []struct {
		lives, silence, pause time.Duration // of the last leader, and of the winner then
		waits                 bool
	}{
		{silence: 3 * time.Second, waits: true},
		{silence: 9 * time.Second},
		{lives: 10 * time.Second, silence: 3 * time.Second, waits: true},
		{lives: 10 * time.Second, silence: 9 * time.Second},
		{lives: 10 * time.Second, silence: 3 * time.Second, pause: 20 * time.Second, waits: true},
	} {
		s := newScript(t, group.Saved{})
		before := claimOf("c", 1)
		status := group.Message{Status: &group.Status{Engine: true, Reaches: 2}}
		s.hears("c", status)
		answer := func(standing group.Standing) { // to the request that is under way, if there is one
			for _, a := range s.acts {
				if a.Request != nil {
					s.acts = nil
					s.answer(*a.Request, standing)
					return
				}
			}
		}
		for s.now < c.lives+c.silence {
			s.wait(time.Second)
			s.hears("b", status)
			if s.now <= c.lives {
				s.hears("c", status)
			}
			answer(group.Standing{Holder: before.Leader, Claim: before})
		}
		s.now += c.pause
		for s.node.Role() == group.Follower {
			s.wait(100 * time.Millisecond)
			answer(group.Standing{Holder: s.self, Claim: before})
		}
		won := s.now
		s.hears("b", status)
		for s.node.Role() == group.Gathering {
			s.wait(100 * time.Millisecond)
		}
		if waited := s.now - won; (waited >= time.Second) != c.waits {
			t.Errorf("the last leader lived for %v and was silent for %v; after a pause of %v the winner waited %v", c.lives, c.silence, c.pause, waited)
		}
	}
}

func TestLeaderStopsAtItsDeadline(t *testing.T) {
	s := newScript(t, group.Saved{})
	s.lead()
	s.now += 6900 * time.Millisecond
	if !s.mayPublish(false) {
		t.Fatal("it may not publish before its deadline")
	}
	s.now += 200 * time.Millisecond
	if _, err := s.node.Publish(s.now, nil, false); !errors.Is(err, group.ErrNotLeading) {
		t.Fatalf("it publishes after its deadline: %v", err)
	}
}

// TestCaretakerDoesNotDecide: a leader whose lease ran out while the engine was out of
// reach carries weights over to new health for those that follow it, and no more.
func TestCaretakerDoesNotDecide(t *testing.T) {
	s := newScript(t, group.Saved{})
	s.caretaker() // which may carry weights over
	if s.mayPublish(false) {
		t.Error("it may decide")
	}
}

// TestCaretakerEnds asserts that a leader whose lease ran out while the engine was out of reach
// takes care until it hears of another claim, of a higher epoch or of its own.
func TestCaretakerEnds(t *testing.T) {
	for _, epoch := range []uint64{1, 2} {
		s := newScript(t, group.Saved{})
		s.lead()
		for s.now < 8*time.Second && s.node.Role() == group.Leading {
			s.wait(2 * time.Second)
			if s.node.Role() == group.Leading {
				s.fail(s.request(group.OpRenew))
			}
		}
		if s.node.Role() != group.Caretaker {
			t.Fatalf("after its lease the leader is %s", s.node.Role())
		}
		s.hears("b", group.Message{Status: &group.Status{Claim: claimOf("b", epoch)}})
		if s.node.Role() != group.Follower {
			t.Errorf("b has claimed epoch %d: the one that took care is %s", epoch, s.node.Role())
		}
	}
}

// TestDeadlineCountsFromTheSending: an answer that was slow proves the lease of
// when the request was sent.
func TestDeadlineCountsFromTheSending(t *testing.T) {
	s := newScript(t, group.Saved{})
	c := s.lead()
	s.wait(2 * time.Second)
	r := s.request(group.OpRenew)
	s.now += 2500 * time.Millisecond
	s.answer(r, group.Standing{Holder: s.self, Claim: c})
	s.now += 4600 * time.Millisecond // 7.1 s after the sending
	if s.mayPublish(false) {
		t.Fatal("the deadline counts from the answer")
	}
}

func TestHigherEpochNeedsTheEnginesWord(t *testing.T) {
	old, next := claimOf("b", 4), claimOf("c", 5)
	saved := group.Saved{Fence: old, Plan: *planOf(old, 0, "old")}
	t.Run("confirmed", func(t *testing.T) {
		s := newScript(t, saved)
		s.wait(0)
		r := s.request(group.OpAcquire)
		s.hears("c", group.Message{Plan: planOf(next, 0, "next")})
		if s.node.Plan().Claim != old {
			t.Fatal("a plan of a higher epoch is served before the engine confirmed it")
		}
		s.answer(r, group.Standing{Holder: next.Leader, Claim: next})
		if s.node.Plan().Claim != next {
			t.Fatal("a confirmed plan is not served")
		}
	})
	t.Run("denied", func(t *testing.T) {
		s := newScript(t, saved)
		s.wait(0)
		s.answer(s.request(group.OpAcquire), group.Standing{Holder: old.Leader, Claim: old})
		s.hears("c", group.Message{Plan: planOf(next, 0, "next")})
		s.answer(s.request(group.OpAcquire), group.Standing{Holder: old.Leader, Claim: old})
		if s.node.Plan().Claim != old {
			t.Fatal("a plan is served whose claim the engine does not have")
		}
	})
	t.Run("engine out of reach: in memory only", func(t *testing.T) {
		s := newScript(t, saved)
		s.wait(0)
		s.fail(s.request(group.OpAcquire))
		s.hears("c", group.Message{Plan: planOf(next, 0, "next")})
		if s.node.Plan().Claim != next {
			t.Fatal("without the engine the group stands still")
		}
		for _, a := range s.acts {
			if a.Save != nil && a.Save.Plan.Claim == next {
				t.Fatal("an unconfirmed plan is saved")
			}
		}
	})
	t.Run("lower", func(t *testing.T) {
		s := newScript(t, saved)
		s.wait(0)
		s.fail(s.request(group.OpAcquire))
		s.hears("c", group.Message{Plan: planOf(claimOf("c", 3), 900_000, "lower")})
		if s.node.Plan().Claim != old {
			t.Fatal("a plan of a lower epoch is served")
		}
	})
	t.Run("the same epoch of another leader", func(t *testing.T) {
		s := newScript(t, saved)
		s.wait(0)
		s.fail(s.request(group.OpAcquire))
		twin := claimOf("c", 4)
		s.hears("c", group.Message{Plan: planOf(twin, 9, "twin")})
		if s.node.Plan().Claim != old {
			t.Fatal("two leaders share an epoch")
		}
	})
}

func TestLeaderClaimsAboveAHigherEpoch(t *testing.T) {
	s := newScript(t, group.Saved{})
	c := s.lead()
	s.hears("b", group.Message{Status: &group.Status{Claim: claimOf("b", 6), Known: group.Known{Epoch: 6}}})
	if s.mayPublish(false) {
		t.Fatal("a leader that met a higher epoch goes on publishing")
	}
	r := s.request(group.OpClaim)
	if r.Claim.Epoch != 7 || r.Claim.First <= claimOf("b", 6).Last() || r.Previous != c {
		t.Fatalf("it claims %s in the place of %s", r.Claim, r.Previous)
	}
}

// TestWinnerWithoutAPlanWaitsForOne asserts that a winner which knows that its group had a
// leader, and has no plan, gives a replica that starts some time to bring one; and that the
// first leader of a group does not wait.
func TestWinnerWithoutAPlanWaitsForOne(t *testing.T) {
	win := func(before group.Claim) *script {
		s := newScript(t, group.Saved{})
		s.wait(0)
		s.answer(s.request(group.OpAcquire), group.Standing{Holder: s.self, Claim: before})
		return s
	}
	passes := func(s *script, before group.Claim, d time.Duration) {
		for end := s.now + d; s.now < end; {
			s.wait(500 * time.Millisecond)
			for _, a := range s.acts {
				if a.Request != nil && a.Request.Op == group.OpRenew {
					s.answer(*a.Request, group.Standing{Holder: s.self, Claim: before})
				}
			}
		}
	}
	first := win(group.Claim{})
	passes(first, group.Claim{}, time.Second)
	if first.node.Role() != group.Claiming {
		t.Errorf("the first leader is %s after 1 s", first.node.Role())
	}
	before := claimOf("b", 3)
	late := win(before)
	passes(late, before, 4*time.Second)
	if late.node.Role() != group.Gathering {
		t.Fatalf("a winner without a plan is %s after 4 s", late.node.Role())
	}
	late.hears("b", group.Message{Status: &group.Status{Claim: before, Plan: before, Version: before.First}})
	late.hears("b", group.Message{Plan: planOf(before, 0, "kept")})
	if p := late.node.Base(); late.node.Role() != group.Claiming || p == nil || text(p) != "kept" {
		t.Errorf("with the plan of b it is %s and goes on from %v", late.node.Role(), p)
	}
	never := win(before)
	passes(never, before, 9*time.Second)
	if never.node.Role() != group.Gathering {
		t.Errorf("after 9 s it is %s", never.node.Role())
	}
	passes(never, before, time.Second)
	if never.node.Role() != group.Claiming {
		t.Errorf("after 10 s it is %s", never.node.Role())
	}
}

func TestBadMessages(t *testing.T) {
	c := claimOf("b", 4)
	forged := planOf(c, 0, "x")
	forged.Content = contentOf("y")
	outside := planOf(c, group.BlockSize, "x")
	unnamed := c
	unnamed.Leader.Name = ""
	for name, test := range map[string]struct {
		from string
		m    group.Message
		want string
	}{
		"a stranger":                {"x", group.Message{Status: &group.Status{}}, "replicas.peers"},
		"itself":                    {"a", group.Message{Status: &group.Status{}}, "replicas.peers"},
		"nothing":                   {"b", group.Message{}, "empty message"},
		"a forged plan":             {"b", group.Message{Plan: forged}, "digest"},
		"a version of another":      {"b", group.Message{Plan: outside}, "does not belong"},
		"a plan without claim":      {"b", group.Message{Plan: &group.Plan{Version: 1}}, "no claim"},
		"a leader without name":     {"b", group.Message{Status: &group.Status{Claim: unnamed}}, "name is empty"},
		"a version out of range":    {"b", group.Message{Status: &group.Status{Known: group.Known{Version: 1 << 63}}}, "out of range"},
		"a status outside its plan": {"b", group.Message{Status: &group.Status{Plan: c, Version: 5}}, "does not belong"},
		"too many replicas":         {"b", group.Message{Status: &group.Status{Reaches: 16}}, "16 replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, group.Saved{Fence: c, Plan: *planOf(c, 0, "old")})
			err := s.node.Received(0, test.from, test.m)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if text(s.node.Plan()) != "old" {
				t.Fatal("a message that is refused changed the plan")
			}
		})
	}
}

func TestOptions(t *testing.T) {
	self := group.Identity{Name: "a"}
	for name, opts := range map[string]group.Options{
		"no name":    {},
		"twice":      {Self: self, Peers: []string{"b", "b"}},
		"itself":     {Self: self, Peers: []string{"a"}},
		"empty peer": {Self: self, Peers: []string{""}},
		"too many":   {Self: self, Peers: strings.Split("b c d e f g h i j k l m n o p", " ")},
	} {
		if _, err := group.NewNode(opts, group.Saved{}, 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	c := claimOf("b", 1)
	damaged := *planOf(c, 0, "x")
	damaged.Content = group.Content{}
	if _, err := group.NewNode(group.Options{Self: self}, group.Saved{Plan: damaged}, 0); err == nil {
		t.Error("a damaged saved plan is served")
	}
}

func TestClaimsRoundTrip(t *testing.T) {
	c := claimOf("b", 12)
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := group.DecodeClaim(data); err != nil || got != c {
		t.Fatalf("%s: %s, %v", data, got, err)
	}
}

func FuzzDecodeClaim(f *testing.F) {
	f.Add([]byte(`{"epoch":1,"leader":{"name":"a","incarnation":1},"first_version":2000001,"format":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := group.DecodeClaim(data)
		if err != nil || c.IsZero() {
			return
		}
		again, err := c.Encode()
		if err != nil {
			t.Fatalf("%s can be read and not written: %v", c, err)
		}
		if got, err := group.DecodeClaim(again); err != nil || got != c {
			t.Fatalf("%s becomes %s: %v", c, got, err)
		}
	})
}
