package group

import "time"

// Verdict is the treatment of a client that shows a version on a new stream.
type Verdict uint8

// The verdicts.
const (
	// Serve: answer with the plan that is here.
	Serve Verdict = iota
	// Wait: a newer plan exists; it is asked for, and the client waits.
	Wait
	// Close: the newer plan did not come in time. Close the connection: a stream that
	// only ends comes back on the same connection.
	Close
)

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return "unknown"
}

// verdictNames has the names of the verdicts.
var verdictNames = [...]string{"serve", "wait", "close"}

// Admit decides on a client that shows a version of a state of the world stream and has waited
// for some time. A version that this replica does not have yet makes the client wait, so that the
// client's versions never decrease. A version outside every claimed block comes from another
// control plane, or from a group that lost its engine and its disks. It is answered, at once if
// no recent claim can have it, and else after the engine was asked; a replica that is cut off
// does not know the newest claim.
func (n *Node) Admit(now time.Duration, shown uint64, waited time.Duration) Verdict {
	if shown <= n.plan.Version || n.foreign(now, shown, waited) {
		return Serve
	}
	if waited >= n.opts.Patience {
		return Close
	}
	for i := range n.peers {
		if p := &n.peers[i]; n.live(p, now) && p.status.Version >= shown {
			n.pull(now, p)
		}
	}
	return Wait
}

// foreign reports whether a version belongs to no claim. waited is how long ago the
// client showed it. A leader publishes every version of its claim: one that it has not
// published is of a claim that was lost with the engine.
func (n *Node) foreign(now time.Duration, shown uint64, waited time.Duration) bool {
	if n.role == Leading && now < n.deadline && n.claim.Contains(shown) {
		return true
	}
	if !n.engine.reachable {
		return false
	}
	newest := max(n.known.Version, n.plan.Version)
	if n.engine.sent > now-waited {
		return shown > newest+BlockSize
	}
	recent := now-n.engine.sent <= 2*n.opts.Campaign+n.opts.EngineTimeout
	return recent && (newest == 0 && !Claimable(shown) || shown > newest+unseenClaims*(BlockSize+1))
}

// unseenClaims is how many claims may have been made since the engine last
// answered: each takes a lease that ran out or a leader that stepped down.
const unseenClaims = 8

// Removes reports whether the replica may tell clients that something is absent: it leads, or it
// heard the leader within two heartbeats and is not behind it. Otherwise removals are held. A
// plan of an earlier claim does not count, not even a version above the leader's: the previous
// leader may have published it to replicas that the new leader did not reach, and the new one
// continues without it. A caretaker does not count: another leader may have added services since
// that the caretaker's plan lacks. Nor does a message that has waited while the process was
// paused.
func (n *Node) Removes(now time.Duration) bool {
	if n.role == Leading {
		return now < n.deadline && n.plan.Claim == n.claim
	}
	if n.role != Follower || now-n.seen > 2*n.opts.Heartbeat {
		return false
	}
	for i := range n.peers {
		p := &n.peers[i]
		leads := p.status.Leads && p.status.Claim == n.newest() && p.status.Claim.Leader.Name == p.name
		if leads && n.live(p, now) && p.heard >= n.runningSince+n.opts.Heartbeat {
			return n.plan.Claim == p.status.Claim && p.status.Version <= n.plan.Version
		}
	}
	return false
}

// View is a replica's state of its group, for operators.
type View struct {
	Self   Identity
	Role   Role
	Newest Claim // the newest claim that is known
	// Holder is the replica that the engine named last; the zero value is no replica.
	Holder Identity
	// LeaseLeft is how much longer the lease of a holder counts that was heard, and is not any more;
	// 0 where a lease would have run out: such a holder still renews it.
	LeaseLeft time.Duration
	Engine    bool // the engine answers
	Behind    bool // the engine has an older claim than replicas saw
	Plan      Claim
	Version   uint64 // of the plan that is served; 0 = none
	Durable   bool   // the engine confirmed the claim of that plan
	Reaches   int    // live replicas, this one included
	Peers     []PeerView
}

// Caretaker returns the name of the replica that leads without the engine; empty if none does.
func (v *View) Caretaker() string {
	if v.Role == Caretaker {
		return v.Self.Name
	}
	for i := range v.Peers {
		if p := &v.Peers[i]; p.Live && p.Status.Caretaker {
			return p.Name
		}
	}
	return ""
}

// PeerView is a replica's state of another one.
type PeerView struct {
	Name   string
	Ever   bool // it was heard
	Live   bool // it was heard within the last heartbeats
	Age    time.Duration
	Status Status // the last that was heard
}

// View returns the present state of the group.
func (n *Node) View(now time.Duration) View {
	v := View{
		Self: n.opts.Self, Role: n.role, Newest: n.newest(), Holder: n.engine.standing.Holder, Engine: n.engine.reachable,
		Behind: n.behind, Plan: n.plan.Claim, Version: n.plan.Version, Durable: n.durable, Reaches: n.reaches(now),
	}
	for i := range n.peers {
		p := &n.peers[i]
		v.Peers = append(v.Peers, PeerView{Name: p.name, Ever: p.ever, Live: n.live(p, now), Age: now - p.heard, Status: p.status})
	}
	if p := n.peer(v.Holder.Name); p != nil && p.ever && !n.live(p, now) {
		v.LeaseLeft = max(0, max(p.heard, n.runningSince)+longestLease-now)
	}
	return v
}

// Leader returns the name of the replica that leads as far as this one knows;
// empty where it knows of none.
func (n *Node) Leader(now time.Duration) string {
	if n.role == Leading || n.role == Caretaker {
		return n.opts.Self.Name
	}
	for i := range n.peers {
		p := &n.peers[i]
		if n.live(p, now) && (p.status.Leads || p.status.Caretaker) && p.status.Claim == n.newest() {
			return p.name
		}
	}
	return ""
}
