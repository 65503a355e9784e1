package group

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Role is the role of a replica in its group.
type Role uint8

// The roles.
const (
	Follower Role = iota
	// Gathering: the replica holds the lease and asks the others for their claims and versions.
	Gathering
	// Claiming: it writes its claim.
	Claiming
	// Leading: the engine confirmed the claim.
	Leading
	// Caretaker: the lease ran out while the engine was out of reach. The replica
	// may carry weights over to new health, in its epoch, for the replicas that
	// follow it still.
	Caretaker
)

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return "unknown"
}

// roleNames has the names of the roles.
var roleNames = [...]string{"follower", "gathering", "claiming", "leader", "caretaker"}

// holds reports whether the role rests on the engine's lease.
func (r Role) holds() bool { return r == Gathering || r == Claiming || r == Leading }

// Errors of Publish.
var (
	ErrNotLeading = errors.New("this replica does not lead its group")
	ErrBlockUsed  = errors.New("the versions of the claim are used up; a new claim is under way")
)

// peer is a node's state of another replica.
type peer struct {
	name   string
	heard  time.Duration // when; valid if ever
	ever   bool
	status Status
	asked  time.Duration // when the node last asked it for a plan
	pulled bool          // whether it ever did
}

// Node is one replica of a group. All its methods take the time as a duration on
// one monotonic clock that runs while the machine sleeps.
type Node struct {
	opts  Options
	out   []Action
	peers []peer // by name

	role  Role
	claim Claim // one's own, from the winning of the engine on; valid in roles Leading and Caretaker
	known Known
	fence Claim // the newest claim that the engine named; plans of lower epochs are refused
	plan  Plan  // the served plan
	// durable reports whether the plan's claim was confirmed by the engine.
	durable bool
	base    Plan    // the newest plan of any epoch that was gathered
	pending *Plan   // of a higher epoch; waits for the word of the engine
	from    string  // which replica sent it
	since   instant // when it came

	next         uint64 // id of the next request
	request      *Request
	sent         time.Duration // when
	deadline     time.Duration // until then the node may publish, if its role holds
	due          time.Duration // of the next request
	sentAt       time.Duration // when the last statuses were sent; valid if begun
	begun        bool
	seen         time.Duration // when the node last ran
	runningSince time.Duration // since when it has run without a pause
	engine       engineView
	won          time.Duration // Gathering: since when
	asked        bool          // Claiming: a claim was sent, and its outcome is unknown
	rest         time.Duration // no campaign before
	free         instant       // since when the engine says that no replica leads
	strikes      int           // consecutive heartbeats at which another replica reached more
	struck       time.Duration // the last of them
	stepped      instant       // when the node last stepped down for that
	leaving      bool
	closes       bool // leaving: the replica may lead once more if no other one stays
	release      bool // the lease has to be given up
	behind       bool // the engine's claim is older than a known one: told once
	cutOff       bool // another replica reached more, and since then this one has not reached all: told once
}

// instant is a time that may not have been yet.
type instant struct {
	at  time.Duration
	set bool
}

// engineView is the node's state of the engine.
type engineView struct {
	standing  Standing
	answered  instant // the last answer
	sent      time.Duration
	failed    instant // the request that failed last, by the time of its sending
	elected   instant // when the last request was sent whose answer named another holder than that of now
	reachable bool
}

// NewNode makes a node that continues from the saved state of its replica.
func NewNode(opts Options, saved Saved, now time.Duration) (*Node, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	n := &Node{opts: opts, known: saved.Known, due: now, seen: now, runningSince: now}
	for _, name := range opts.Peers {
		n.peers = append(n.peers, peer{name: name})
	}
	if saved.Known.Epoch > MaxVersion || saved.Known.Version > MaxVersion {
		return nil, errors.New("replica: the saved state has an epoch or a version out of range")
	}
	if err := saved.Fence.Validate(); err != nil {
		return nil, fmt.Errorf("replica: the saved state: %w", err)
	}
	n.fence = saved.Fence
	n.learn(saved.Fence)
	if !saved.Plan.IsZero() {
		if err := checkContent(&saved.Plan); err != nil {
			return nil, fmt.Errorf("replica: the saved state: %w", err)
		}
		n.plan, n.durable = saved.Plan, true
		n.learn(saved.Plan.Claim)
	}
	return n, nil
}

// checkContent validates a plan and compares its content with its digest.
func checkContent(p *Plan) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if err := p.CheckContent(); err != nil {
		return fmt.Errorf("plan %d: %w", p.Version, err)
	}
	return nil
}

// Take returns the actions since the last call.
func (n *Node) Take() []Action {
	out := n.out
	n.out = nil
	return out
}

func (n *Node) act(a Action) { n.out = append(n.out, a) }

func (n *Node) alarmf(of AlarmOf, format string, args ...any) {
	n.act(Action{Alarm: &Alarm{Of: of, Text: fmt.Sprintf(format, args...)}})
}

// endAlarm says that the state behind an alarm is over.
func (n *Node) endAlarm(of AlarmOf) { n.act(Action{Alarm: &Alarm{Of: of}}) }

// Role returns the present role of the replica.
func (n *Node) Role() Role { return n.role }

// Claim returns the claim of the replica's own leadership; the zero value if it
// neither leads nor is caretaker.
func (n *Node) Claim() Claim {
	if n.role == Leading || n.role == Caretaker {
		return n.claim
	}
	return Claim{}
}

// Plan returns the served plan; nil if there is none.
func (n *Node) Plan() *Plan {
	if n.plan.IsZero() {
		return nil
	}
	p := n.plan
	return &p
}

// Base returns the newest plan that the replica knows, of any epoch: a new leader
// goes on from it. nil if there is none.
func (n *Node) Base() *Plan {
	if n.base.Version > n.plan.Version {
		p := n.base
		return &p
	}
	return n.Plan()
}

func (n *Node) become(r Role) {
	if r == n.role {
		return
	}
	n.role = r
	n.act(Action{Role: &r})
}

// learn takes a claim of any replica into account.
func (n *Node) learn(c Claim) {
	if c.IsZero() {
		return
	}
	n.known = n.known.with(c)
}

func (n *Node) peer(name string) *peer {
	i, ok := slices.BinarySearchFunc(n.peers, name, func(p peer, name string) int {
		switch {
		case p.name < name:
			return -1
		case p.name > name:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &n.peers[i]
}

// live reports whether the replica was heard recently.
func (n *Node) live(p *peer, now time.Duration) bool {
	return p.ever && now-p.heard <= n.opts.fresh()
}

// silent reports whether a replica that was heard before has been silent for the time of a
// lease, in which this process was not paused.
func (n *Node) silent(p *peer, now time.Duration) bool {
	return p.ever && now-max(p.heard, n.runningSince) > n.opts.Deadline
}

// reaches counts the live replicas that this one hears, itself included.
func (n *Node) reaches(now time.Duration) int {
	count := 1
	for i := range n.peers {
		if n.live(&n.peers[i], now) {
			count++
		}
	}
	return count
}

// Tick runs all actions that are due. The caller calls it at least every heartbeat, and at the
// time that [Node.Due] returns.
func (n *Node) Tick(now time.Duration) {
	n.expire(now)
	if !n.begun || now-n.sentAt >= n.opts.Heartbeat {
		n.compareReach(now)
		n.broadcastStatus(now)
		n.sentAt, n.begun = now, true
	}
	n.gather(now)
	n.ask(now)
}

// Due returns when Tick has to be called next.
func (n *Node) Due() time.Duration {
	due := n.sentAt + n.opts.Heartbeat
	if n.request != nil {
		due = min(due, n.sent+n.opts.EngineTimeout)
	} else {
		due = min(due, n.due)
	}
	if n.role.holds() {
		due = min(due, n.deadline)
	}
	if n.role == Gathering {
		due = min(due, n.gathered())
	}
	return due
}

// broadcastStatus sends the status to all other replicas.
func (n *Node) broadcastStatus(now time.Duration) {
	for i := range n.peers {
		n.sendStatus(now, n.peers[i].name, false, false)
	}
}

// heardBy counts the live replicas that hear this one, itself included.
func (n *Node) heardBy(now time.Duration) int {
	count := 1
	for i := range n.peers {
		if p := &n.peers[i]; n.live(p, now) && !p.status.Deaf {
			count++
		}
	}
	return count
}

func (n *Node) sendStatus(now time.Duration, to string, asks, handsOver bool) {
	s := &Status{
		Claim: n.newest(), Plan: n.plan.Claim, Version: n.plan.Version, Known: n.known,
		Leads: n.role == Leading && now < n.deadline, Caretaker: n.role == Caretaker,
		Engine: n.engine.reachable, Reaches: n.reaches(now), Asks: asks, HandsOver: handsOver,
		Leaves: n.leaving,
	}
	if p := n.peer(to); p != nil {
		s.Deaf = !n.live(p, now)
	}
	n.act(Action{Send: &Send{To: to, Message: Message{Status: s}}})
}

// newest is the newest claim that the node knows with its leader.
func (n *Node) newest() Claim {
	c := n.fence
	for _, other := range []Claim{n.plan.Claim, n.engine.standing.Claim, n.Claim()} {
		if other.Epoch > c.Epoch {
			c = other
		}
	}
	return c
}

func (n *Node) save() {
	saved := Saved{Known: n.known, Fence: n.fence}
	if n.durable {
		saved.Plan = n.plan
	}
	n.act(Action{Save: &saved})
}
