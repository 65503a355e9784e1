package group

import (
	"fmt"
	"time"
)

// Received takes a message of another replica, whose name the connection proves. The error says
// why the message is invalid; it changes nothing then.
func (n *Node) Received(now time.Duration, from string, m Message) error {
	p := n.peer(from)
	if p == nil {
		return fmt.Errorf("%q is no replica of this group: add it to replicas.peers", from)
	}
	n.expire(now)
	switch {
	case m.Status != nil:
		if err := m.Status.Validate(); err != nil {
			return err
		}
		n.receiveStatus(now, p, m.Status)
	case m.Plan != nil:
		if err := checkContent(m.Plan); err != nil {
			return err
		}
		n.offered(now, from, m.Plan)
	case m.Pull != nil:
		n.pulledBy(from, m.Pull)
	default:
		return fmt.Errorf("an empty message of %q", from)
	}
	n.Tick(now)
	return nil
}

// receiveStatus processes the status of another replica.
func (n *Node) receiveStatus(now time.Duration, p *peer, s *Status) {
	asks := s.Asks
	p.heard, p.ever = now, true
	p.status = *s
	p.status.Asks = false
	if asks {
		n.sendStatus(now, p.name, false, false)
	}
	n.met(now, Known{
		Epoch:   max(s.Known.Epoch, s.Claim.Epoch, s.Plan.Epoch),
		Version: max(s.Known.Version, s.Claim.First, s.Plan.First, s.Version),
	}, s.Claim)
	if s.HandsOver || s.Leaves && n.closes && !n.role.holds() && n.AllLeave(now) {
		n.due = min(n.due, now)
	}
	n.pull(now, p)
}

// met takes in the claims and versions of another replica. A leader that meets an epoch which is
// not below its own claims again above it; a caretaker ends.
func (n *Node) met(now time.Duration, k Known, c Claim) {
	n.known = Known{Epoch: max(n.known.Epoch, k.Epoch), Version: max(n.known.Version, k.Version)}
	foreign := !c.IsZero() && c.Epoch == n.claim.Epoch && c != n.claim
	switch n.role {
	case Leading:
		if foreign {
			n.known.Epoch = n.claim.Epoch + 1 // the next claim is above both
		}
		if foreign || n.known.Epoch > n.claim.Epoch {
			n.claimAgain(now)
		}
	case Caretaker:
		if foreign || n.known.Epoch > n.claim.Epoch {
			n.become(Follower)
		}
	case Follower, Gathering, Claiming:
	}
}

// pull asks a replica for its plan where that is newer than one's own. A winner
// that gathers takes it in any epoch, to go on from it; others only where they
// could serve it.
func (n *Node) pull(now time.Duration, p *peer) {
	s := &p.status
	base := n.role == Gathering
	have := n.plan.Version
	if base {
		have = max(have, n.base.Version)
	}
	if s.Version <= have || !base && s.Plan.Epoch < n.fence.Epoch {
		return
	}
	if p.pulled && now-p.asked < n.opts.Heartbeat/2 {
		return
	}
	p.asked, p.pulled = now, true
	n.act(Action{Send: &Send{To: p.name, Message: Message{Pull: &Pull{Above: have, Base: base}}}})
}

func (n *Node) pulledBy(from string, pull *Pull) {
	plan := n.plan
	if pull.Base && n.base.Version > plan.Version {
		plan = n.base
	}
	if plan.Version <= pull.Above {
		return
	}
	n.act(Action{Send: &Send{To: from, Message: Message{Plan: &plan}}})
}

// offered decides on a plan of another replica.
func (n *Node) offered(now time.Duration, from string, p *Plan) {
	n.met(now, Known{Epoch: p.Claim.Epoch, Version: p.Version}, p.Claim)
	if n.role.holds() {
		// A leader serves its own plans; it continues from plans of others.
		if p.Version > max(n.plan.Version, n.base.Version) {
			n.base = *p
		}
		return
	}
	if p.Version <= n.plan.Version {
		return
	}
	switch c := p.Claim; {
	case c.Epoch < n.fence.Epoch:
		n.refuse(from, p, fmt.Sprintf("epoch %d was claimed after it", n.fence.Epoch))
	case c.Epoch < n.plan.Claim.Epoch:
		n.refuse(from, p, fmt.Sprintf("a plan of epoch %d is served", n.plan.Claim.Epoch))
	case c == n.fence:
		n.accept(p, true)
	case c == n.plan.Claim:
		n.accept(p, n.durable)
	case c.Epoch == n.fence.Epoch || c.Epoch == n.plan.Claim.Epoch:
		n.refuse(from, p, fmt.Sprintf("epoch %d belongs to another leader", c.Epoch))
	default:
		if n.pending == nil || n.pending.Version < p.Version {
			n.pending, n.from, n.since = p, from, instant{now, true}
			n.due = min(n.due, now)
			if !n.engine.reachable && n.engine.failed.set {
				n.acceptUnconfirmed(now)
			}
		}
	}
}

// decidePending accepts or refuses the pending plan of a higher epoch, once the engine
// has answered a question that was sent after the plan arrived.
func (n *Node) decidePending(now time.Duration) {
	p := n.pending
	if p == nil {
		return
	}
	switch {
	case p.Version <= n.plan.Version:
		n.pending = nil
	case p.Claim == n.fence:
		n.pending = nil
		n.offered(now, n.from, p)
	case n.engine.sent >= n.since.at:
		n.pending = nil
		n.refuse(n.from, p, fmt.Sprintf("the engine has %s", n.engine.standing.Claim))
	}
}

// acceptUnconfirmed serves the plan of a higher epoch that waits, while the engine
// can't be asked. It is not saved: after a restart the engine has to confirm it.
func (n *Node) acceptUnconfirmed(time.Duration) {
	p := n.pending
	if p == nil {
		return
	}
	n.pending = nil
	if n.role.holds() || p.Version <= n.plan.Version || p.Claim.Epoch < n.fence.Epoch {
		return
	}
	n.accept(p, false)
}

// accept puts a plan of another replica in force.
func (n *Node) accept(p *Plan, durable bool) {
	n.plan, n.durable = *p, durable
	n.learn(p.Claim)
	if n.pending != nil && n.pending.Version <= p.Version {
		n.pending = nil
	}
	if durable {
		n.save()
	}
	served := *p
	n.act(Action{Serve: &served})
}

func (n *Node) refuse(from string, p *Plan, reason string) {
	n.act(Action{Refused: &Refusal{From: from, Version: p.Version, Epoch: p.Claim.Epoch, Reason: reason}})
}

// mayPublish reports whether the replica may publish a plan now: a decision, or with reapply one
// that only carries weights over to new health or topology. Expired state has been given up
// before.
func (n *Node) mayPublish(now time.Duration, reapply bool) bool {
	switch n.role {
	case Leading:
		return now < n.deadline
	case Caretaker:
		return reapply && n.mayCare(now)
	case Follower, Gathering, Claiming:
	}
	return false
}

// mayCare reports whether the caretaker is needed: the engine failed after its last
// answer and not long ago, and a replica follows still. What a process finds when it
// wakes from a pause proves neither: requests that were not answered in time, and
// messages that have waited.
func (n *Node) mayCare(now time.Duration) bool {
	failed := n.engine.failed
	if n.engine.reachable || !failed.set || failed.at < n.runningSince || now-failed.at > 2*n.opts.EngineTimeout {
		return false
	}
	for i := range n.peers {
		p := &n.peers[i]
		if n.live(p, now) && p.heard >= n.runningSince+n.opts.Heartbeat && p.status.Claim == n.claim {
			return true
		}
	}
	return len(n.peers) == 0
}

// Next returns the version of the next plan, for a decision, or with reapply for one
// that only carries weights over to new health or topology. It fails with
// [ErrNotLeading] or [ErrBlockUsed].
func (n *Node) Next(now time.Duration, reapply bool) (uint64, error) {
	n.expire(now)
	if !n.mayPublish(now, reapply) {
		return 0, ErrNotLeading
	}
	version := max(n.claim.First, n.plan.Version+1)
	if !n.claim.Contains(version) {
		if n.role == Leading {
			n.claimAgain(now)
			n.ask(now)
		}
		return 0, ErrBlockUsed
	}
	return version, nil
}

// PublishAs publishes the content as the version that Next returned before. It
// fails with ErrNotLeading if the replica may not publish that version any more.
func (n *Node) PublishAs(now time.Duration, version uint64, content Content, reapply bool) (*Plan, error) {
	next, err := n.Next(now, reapply)
	switch {
	case err != nil:
		return nil, err
	case next != version:
		return nil, ErrNotLeading
	}
	return n.publish(version, content), nil
}

func (n *Node) publish(version uint64, content Content) *Plan {
	p := Plan{Claim: n.claim, Version: version, Digest: content.Digest(), Content: content}
	n.plan, n.durable, n.base = p, true, Plan{}
	n.known.Version = max(n.known.Version, n.claim.First)
	n.save()
	served := p
	n.act(Action{Serve: &served})
	for i := range n.peers {
		sent := p
		n.act(Action{Send: &Send{To: n.peers[i].name, Message: Message{Plan: &sent}}})
	}
	return &p
}
