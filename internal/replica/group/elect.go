package group

import "time"

// expire gives up old requests and leases: an answer that does not come, and a lease that was not
// renewed in time.
func (n *Node) expire(now time.Duration) {
	if now-n.seen > 2*n.opts.Heartbeat { // the process was paused, or the machine slept
		n.runningSince = now
	}
	n.seen = now
	if n.request != nil && now-n.sent >= n.opts.EngineTimeout {
		n.failed(now)
	}
	if n.role.holds() && now >= n.deadline {
		n.lose(now)
	}
}

// failed notes that the engine did not answer.
func (n *Node) failed(now time.Duration) {
	n.request = nil
	n.engine.failed, n.engine.reachable = instant{n.sent, true}, false
	n.due = now + n.opts.Heartbeat/2
	n.acceptUnconfirmed(now)
}

// lose ends a leadership whose lease ran out or that the engine gave to another.
func (n *Node) lose(now time.Duration) {
	n.asked, n.strikes = false, 0
	if n.role == Leading {
		n.become(Caretaker)
	} else {
		n.become(Follower)
	}
	n.due = now
}

// ask sends the next request to the engine, if one is due and none is under way.
func (n *Node) ask(now time.Duration) {
	if n.request != nil || now < n.due {
		return
	}
	r := Request{ID: n.next + 1, Reaches: n.reaches(now)}
	switch {
	case n.release:
		r.Op, n.due = OpRelease, now+n.opts.Campaign
	case n.role == Claiming && n.deadline-now > n.opts.Deadline/2:
		c, err := n.known.next(n.opts.Self)
		if err != nil {
			n.alarmf(NoClaim, "%v", err)
			n.stepDown(now)
			return
		}
		r.Op, r.Previous, r.Claim = OpClaim, n.engine.standing.Claim, c
		n.due = now + n.opts.Heartbeat/2
	case n.role.holds():
		r.Op, n.due = OpRenew, now+n.opts.Renew
	case n.abstains(now):
		r.Op, n.due = OpRead, now+n.opts.Campaign
	default:
		r.Op, n.due = OpAcquire, now+n.opts.Campaign
	}
	n.next, n.request, n.sent = r.ID, &r, now
	n.act(Action{Request: &r})
}

// Wake makes the node ask the engine at once: leadership may be free.
func (n *Node) Wake(now time.Duration) {
	n.due = min(n.due, now)
	n.Tick(now)
}

// Answered takes the engine's answer to the request with the id. An answer that
// comes after the request was given up is ignored.
func (n *Node) Answered(now time.Duration, id uint64, a Answer) {
	n.expire(now)
	if n.request == nil || n.request.ID != id {
		return
	}
	if a.Err != nil || a.Standing.validate() != nil {
		n.failed(now)
		n.Tick(now)
		return
	}
	r := *n.request
	n.request = nil
	before := n.engine
	n.engine = engineView{
		standing: a.Standing, answered: instant{now, true}, sent: n.sent, failed: before.failed, reachable: true, elected: before.elected,
	}
	if before.answered.set && before.standing.Holder != a.Standing.Holder {
		n.engine.elected = instant{before.sent, true}
	}
	n.noteClaim(now)
	n.endRest(now)
	mine := a.Standing.Holder == n.opts.Self
	switch {
	case r.Op == OpRelease:
		n.released(now, mine)
	case !mine && n.role.holds():
		n.lose(now)
	case !mine && n.role == Caretaker:
		n.endCare()
	case mine && !n.role.holds() && n.abstains(now): // an answer that came late told so
		n.release = true
		n.due = now
	case mine && !n.role.holds() && r.Op == OpAcquire:
		n.win(now)
	case mine && n.role.holds():
		n.deadline = n.sent + n.opts.Deadline
		n.claimed(now)
	}
	n.Tick(now)
}

// endCare ends the caretaker's role as soon as the engine names another claim. While the engine
// can be reached, the winner decides.
func (n *Node) endCare() {
	if n.engine.standing.Claim != n.claim {
		n.become(Follower)
	}
}

// win begins a leadership: it asks the others for their claims and versions.
func (n *Node) win(now time.Duration) {
	n.deadline = n.sent + n.opts.Deadline
	n.won = now
	n.base = Plan{}
	n.become(Gathering)
	n.due = now + n.opts.Renew
	n.askAll(now)
}

// askAll asks all other replicas for their claims and versions.
func (n *Node) askAll(now time.Duration) {
	for i := range n.peers {
		p := &n.peers[i]
		p.status.Asks = true // no answer yet
		n.sendStatus(now, p.name, true, false)
	}
}

// gathered is when gathering ends at the latest. A winner without any plan, in a group that
// had a leader before, waits for longer: a replica that starts just now may have one.
func (n *Node) gathered() time.Duration {
	if n.known.Epoch > 0 && n.plan.IsZero() && n.base.IsZero() {
		return n.won + n.opts.GatherLost
	}
	return n.won + n.opts.Gather
}

// gather goes on to the claim once every replica of the group has answered and the
// newest plan is here, or when the time is over. It does not wait for a replica that has gone
// silent, such as the last leader.
func (n *Node) gather(now time.Duration) {
	if n.role != Gathering {
		return
	}
	if now < n.gathered() {
		have := max(n.plan.Version, n.base.Version)
		for i := range n.peers {
			p := &n.peers[i]
			if !n.silent(p, now) && (p.status.Asks || p.status.Version > have) {
				return
			}
		}
	}
	n.become(Claiming)
	n.due = now
}

// claimed looks whether the engine has this replica's claim now.
func (n *Node) claimed(now time.Duration) {
	c := n.engine.standing.Claim
	switch {
	case n.role == Claiming && c.Leader == n.opts.Self && c.Epoch == n.known.Epoch:
		n.claim, n.fence = c, c
		n.become(Leading)
		n.save()
		n.broadcastStatus(now)
		n.due = min(n.due, n.sent+n.opts.Renew)
	case n.role == Leading && c != n.claim:
		// The engine lost the claim: it was restored from a backup, or an operator
		// changed it. A claim above everything known puts it right.
		n.claimAgain(now)
	case n.role == Leading && n.known.Epoch > n.claim.Epoch:
		n.claimAgain(now)
	}
}

// claimAgain stops publishing until a claim above everything known stands.
func (n *Node) claimAgain(now time.Duration) {
	n.become(Claiming)
	n.due = now
}

// noteClaim takes in the claim that the engine has.
func (n *Node) noteClaim(now time.Duration) {
	c := n.engine.standing.Claim
	n.learn(c)
	if c.Epoch > n.fence.Epoch {
		n.fence = c
		n.save()
	}
	if !n.durable && !n.plan.IsZero() && n.plan.Claim == c {
		n.durable = true
		n.save()
	}
	behind := c.Epoch < n.fence.Epoch
	switch {
	case behind && !n.behind:
		n.alarmf(EngineBehind, "the engine has %s, but epoch %d was claimed before: it may have been restored from a backup, and operators' writes may be lost",
			c, n.fence.Epoch)
	case n.behind && !behind:
		n.endAlarm(EngineBehind)
	}
	n.behind = behind
	n.decidePending(now)
}

// stepDown gives up the lease, and keeps from campaigning for a while.
func (n *Node) stepDown(now time.Duration) {
	n.release = true
	n.rest = now + n.opts.Rest
	n.become(Follower)
	n.asked, n.strikes = false, 0
	n.due = now
	n.ask(now)
}

// endRest has a replica that stepped down campaign again as soon as no other replica
// takes leadership in the time of two attempts.
func (n *Node) endRest(now time.Duration) {
	switch {
	case n.engine.standing.Holder.Name != "":
		n.free = instant{}
	case !n.free.set:
		n.free = instant{now, true}
	case now < n.rest && now-n.free.at >= 2*n.opts.Campaign:
		n.rest, n.due = now, now
	}
}

// StepDown gives up leadership, as an operator says. It reports whether there was
// any.
func (n *Node) StepDown(now time.Duration) bool {
	n.expire(now)
	if !n.role.holds() {
		return false
	}
	n.stepDown(now)
	return true
}

// Announce tells the others that this replica is about to leave, and keeps it from campaigning
// for good. A leader continues to lead until it leaves. If closes is set, the replica leads once
// more if every other one leaves, too, and none leads: one replica has to publish the group's
// last plan. The others are asked whether they are alive, then.
func (n *Node) Announce(now time.Duration, closes bool) {
	n.leaving, n.closes = true, closes
	if closes {
		n.due = min(n.due, now)
		n.askAll(now)
	} else {
		n.broadcastStatus(now)
	}
	n.Tick(now)
}

// abstains reports whether this replica may not win leadership at the moment.
func (n *Node) abstains(now time.Duration) bool {
	return now < n.rest || n.leaving && (!n.closes || !n.AllLeave(now))
}

// AllLeave reports whether this replica and every other live one leave: none stays to serve
// clients.
func (n *Node) AllLeave(now time.Duration) bool {
	for i := range n.peers {
		if p := &n.peers[i]; n.live(p, now) && !p.status.Leaves {
			return false
		}
	}
	return n.leaving
}

// Closing reports whether this replica, which leaves, may have to publish the group's last plan:
// it reaches the engine, and as far as it can tell every other replica leaves, too, or is dead. A
// replica that was killed looks alive for two heartbeats more; one that has not answered the
// announcement yet, or has sent nothing for longer than a heartbeat, does not count here.
// Leadership is free once the lease of a leader that was killed has run out. One that renews its
// lease is not dead, but cut off from here.
func (n *Node) Closing(now time.Duration) bool {
	if !n.leaving || !n.closes || !n.engineAnswers(now) || n.ledFromAfar() {
		return false
	}
	for i := range n.peers {
		if p := &n.peers[i]; p.ever && !p.status.Asks && now-p.heard <= n.opts.Heartbeat && !p.status.Leaves {
			return false
		}
	}
	return true
}

// engineAnswers reports whether the engine has answered recently: two requests may have failed since, or
// were given up, and the next one may be under way. A pause of this process does not count.
func (n *Node) engineAnswers(now time.Duration) bool {
	answered := n.engine.answered
	return answered.set && now-max(answered.at, n.runningSince) <= 2*n.opts.Campaign+2*n.opts.EngineTimeout+n.opts.Heartbeat
}

// ledFromAfar reports whether the engine names a leader which is not heard and lived after it was
// heard last: it won since, or has kept its lease for longer than it would have without renewals.
// Leases restart where the engine was down.
func (n *Node) ledFromAfar() bool {
	p := n.peer(n.engine.standing.Holder.Name)
	if p == nil || !p.ever {
		return false
	}
	since := max(p.heard, n.runningSince)
	if n.engine.elected.set && n.engine.elected.at-since > n.opts.fresh() {
		return true
	}
	if n.engine.failed.set {
		since = max(since, n.engine.failed.at)
	}
	return n.engine.sent-since > longestLease+2*n.opts.Campaign
}

// longestLease is the time after which the lease of a dead leader has run out, with any engine:
// from when another replica saw the last renewal, for a Lease of Kubernetes.
const longestLease = 15 * time.Second

// Leave hands leadership over and keeps from campaigning for good. The node goes
// on to serve. It has left once [Node.Left] reports so.
func (n *Node) Leave(now time.Duration) {
	n.leaving, n.closes = true, false
	if n.role.holds() {
		n.stepDown(now)
	}
	if n.role == Caretaker {
		n.become(Follower)
	}
	n.Tick(now)
}

// Left reports whether the engine holds nothing for this replica any more, and no request is
// under way that could change this.
func (n *Node) Left() bool {
	return n.leaving && !n.release && (n.request == nil || n.request.Op != OpAcquire)
}

// released goes on after the lease was given up: the others may campaign.
func (n *Node) released(now time.Duration, mine bool) {
	if mine {
		return // it is tried again
	}
	n.release = false
	for i := range n.peers {
		n.sendStatus(now, n.peers[i].name, false, true)
	}
}

// outlived reports whether a replica that is not heard told the engine something since it
// was heard last: it is not dead, but cut off from here.
func (n *Node) outlived(p *peer, left *Presence, now time.Duration) bool {
	age := left.Age + now - n.engine.answered.at
	return !p.ever || age+n.opts.fresh() < now-p.heard
}

// repeats reports whether the replica was heard since the leader last found that another one
// reaches more: a report from before it was killed counts at one heartbeat only.
func (n *Node) repeats(p *peer) bool { return n.strikes == 0 || p.heard > n.struck }

// compareReach has a leader step down when another replica that reaches the engine
// hears more of the group than the leader does, for two heartbeats. A replica that
// the leader does not hear tells it through the engine. One that the leader hears,
// but that does not hear the leader, counts against those that do. A leader that ends goes on:
// it gives leadership up soon, and may have to take drops back before.
func (n *Node) compareReach(now time.Duration) {
	if all := len(n.peers) + 1; n.cutOff && n.reaches(now) == all && n.heardBy(now) == all {
		n.cutOff = false
		n.endAlarm(CutOff)
	}
	if n.role != Leading || n.leaving {
		n.strikes = 0
		return
	}
	own, more := n.reaches(now), false
	hear := n.heardBy(now)
	for i := range n.peers {
		p := &n.peers[i]
		reach := own
		if p.status.Deaf {
			reach = hear
		}
		more = more || n.live(p, now) && n.repeats(p) && p.status.Engine && p.status.Reaches > reach
	}
	for _, present := range n.engine.standing.Present {
		p := n.peer(present.Name)
		more = more || p != nil && !n.live(p, now) && n.outlived(p, &present, now) && present.Reaches > own
	}
	if !more {
		n.strikes = 0
		return
	}
	n.struck = now
	if n.strikes++; n.strikes < 2 || n.stepped.set && now-n.stepped.at < n.opts.StepDownEvery {
		return
	}
	n.stepped, n.cutOff = instant{now, true}, true
	n.alarmf(CutOff, "another replica reaches more of the group than this leader, which hears %d and is heard by %d: it steps down", own, hear)
	n.stepDown(now)
}
