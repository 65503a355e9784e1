package group

import "time"

// View is what a replica knows of its group, for operators.
type View struct {
	Self   Identity
	Role   Role
	Newest Claim // the newest claim that is known
	// Holder is the replica that the engine named last; the zero value is nobody.
	Holder  Identity
	Engine  bool // the engine answers
	Behind  bool // the engine has an older claim than what replicas saw
	Plan    Claim
	Version uint64 // of the plan that is served; 0 = none
	Durable bool   // the engine confirmed the claim of that plan
	Reaches int    // live replicas, this one included
	Peers   []PeerView
}

// PeerView is what a replica knows of another one.
type PeerView struct {
	Name   string
	Ever   bool // it was heard
	Live   bool // it was heard within the last heartbeats
	Age    time.Duration
	Status Status // the last that was heard
}

// View returns what the replica knows at the moment.
func (n *Node) View(now time.Duration) View {
	v := View{
		Self: n.opts.Self, Role: n.role, Newest: n.newest(), Holder: n.engine.standing.Holder, Engine: n.engine.reachable,
		Behind: n.behind, Plan: n.plan.Claim, Version: n.plan.Version, Durable: n.durable, Reaches: n.reaches(now),
	}
	for i := range n.peers {
		p := &n.peers[i]
		v.Peers = append(v.Peers, PeerView{Name: p.name, Ever: p.ever, Live: n.live(p, now), Age: now - p.heard, Status: p.status})
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
