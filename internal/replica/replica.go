// Package replica runs one replica of a group: it carries out the decisions of the pure
// [group.Node] on a real clock, an election engine, a disk and connections to the other replicas.
// It carries plans as the fields of a message, and does not know their meaning.
package replica

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// Replica is one replica of a group. Create it with New and call Run once.
type Replica struct {
	opts    Options
	self    group.Identity
	log     *slog.Logger
	engine  engine.Engine
	clock   func() time.Duration
	metrics *metrics

	requests chan group.Request // capacity 1
	kick     chan struct{}      // capacity 1: the next deadline may be another
	changed  chan struct{}      // capacity 1: role or plan
	saver    *saver
	peers    map[string]*link
	server   *exchange

	opening sync.Mutex // held while Options.Open runs

	cutter cutter

	mu     sync.Mutex
	node   *group.Node
	opened map[uint64]any // of plans that the node may serve, by version
	served Served
	alarms []alarm
	// expected has the version of the newest plan that has arrived and will be read, by the replica that
	// sent it; see planReader.
	expected map[string]uint64
	// unreadable is the version of the newest plan that this replica could not read.
	unreadable uint64
	since      time.Time // of the role
	ledAt      time.Time // when the first plan of the claim came whose plan is served; zero = it did not come here
}

// New makes a replica. On an error the listener is left to the caller.
func New(opts Options) (*Replica, error) {
	var incarnation [8]byte
	if _, err := rand.Read(incarnation[:]); err != nil {
		return nil, fmt.Errorf("replica: %w", err)
	}
	self := group.Identity{Name: opts.Name, Incarnation: binary.BigEndian.Uint64(incarnation[:])}
	r := &Replica{
		opts: opts, self: self, log: opts.Log.With("replica", opts.Name), clock: newClock(),
		requests: make(chan group.Request, 1), kick: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		peers: map[string]*link{}, opened: map[uint64]any{}, expected: map[string]uint64{}, since: time.Now(),
	}
	saved, err := load(r.opts.Disk, r.opts.Known)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(opts.Peers))
	for _, p := range opts.Peers {
		names = append(names, p.Name)
		r.peers[p.Name] = newLink(r, p)
	}
	t := opts.Timing
	r.node, err = group.NewNode(group.Options{
		Self: self, Peers: names, Heartbeat: t.Heartbeat, Deadline: t.Deadline, Renew: t.Renew, Campaign: t.Campaign,
		EngineTimeout: t.EngineTimeout, Gather: t.Gather, Rest: t.Rest,
	}, saved, r.clock())
	if err != nil {
		return nil, err
	}
	if p := r.node.Plan(); p != nil {
		opened, err := r.open(p.Content)
		if err != nil {
			return nil, fmt.Errorf("replica: the saved plan: %w", err)
		}
		r.served = Served{Plan: *p, Opened: opened, At: time.Now()}
	}
	if r.engine, err = opts.OpenEngine(self); err != nil {
		return nil, err
	}
	r.saver = newSaver(opts.Disk, r.log)
	r.metrics = newMetrics(opts.Registerer, r)
	r.server = newExchange(r)
	return r, nil
}

// open reads the content of a plan.
func (r *Replica) open(content group.Content) (any, error) {
	r.opening.Lock()
	defer r.opening.Unlock()
	return r.opts.Open(content)
}

// Run takes part in the group until ctx ends, then gives leadership up if the
// replica has it. Call Leave before, so that others take over at once.
func (r *Replica) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.server.serve(ctx) })
	g.Go(func() error {
		r.ask(ctx)
		return nil
	})
	for _, l := range r.peers {
		g.Go(func() error {
			l.run(ctx)
			return nil
		})
	}
	g.Go(func() error {
		r.saver.run(ctx)
		return nil
	})
	g.Go(func() error {
		r.tick(ctx)
		return nil
	})
	err := g.Wait()
	return errors.Join(err, r.engine.Close())
}

// do runs f on the node and carries out its actions. It never waits.
func (r *Replica) do(f func(n *group.Node, now time.Duration)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.node, r.clock())
	for _, a := range r.node.Take() {
		r.carryOut(a)
	}
	signal(r.kick)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a signal is waiting already
	}
}

// tick has the node run all actions that are due.
func (r *Replica) tick(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.kick:
		case <-r.engine.Changed():
			r.do(func(n *group.Node, now time.Duration) { n.Wake(now) })
		case <-timer.C:
			r.do(func(n *group.Node, now time.Duration) { n.Tick(now) })
		}
		r.mu.Lock()
		wait := r.node.Due() - r.clock()
		r.mu.Unlock()
		timer.Reset(max(wait, time.Millisecond))
	}
}

// ask runs the node's requests on the engine, one at a time.
func (r *Replica) ask(ctx context.Context) {
	timeout := r.opts.Timing.EngineTimeout
	if timeout <= 0 {
		timeout = engineTimeout
	}
	for {
		select {
		case <-ctx.Done():
			return
		case request := <-r.requests:
			once, cancel := context.WithTimeout(ctx, timeout)
			standing, err := r.engine.Do(once, request)
			cancel()
			if err != nil && ctx.Err() == nil {
				r.metrics.engineErrors.Inc()
				r.log.Debug("the election engine did not answer", "operation", request.Op.String(), "error", err)
			}
			r.do(func(n *group.Node, now time.Duration) {
				n.Answered(now, request.ID, group.Answer{Standing: standing, Err: err})
			})
		}
	}
}

// engineTimeout is how long one request of the engine may take: as long as the node
// waits for it.
const engineTimeout = 3 * time.Second

// carryOut carries out the node's actions; r.mu is held.
func (r *Replica) carryOut(a group.Action) {
	switch {
	case a.Request != nil:
		select { // it replaces a request that the node gave up
		case <-r.requests:
		default:
		}
		r.requests <- *a.Request
	case a.Send != nil:
		if pull := a.Send.Message.Pull; pull != nil && r.expects(pull.Above) {
			return
		}
		if l := r.peers[a.Send.To]; l != nil {
			l.send(a.Send.Message)
		}
	case a.Save != nil:
		r.saver.save(*a.Save)
	case a.Serve != nil:
		r.serve(a.Serve)
	case a.Role != nil:
		r.since = time.Now()
		r.log.Info("the role of this replica changed", "role", a.Role.String(), "claim", r.node.Claim().String())
		signal(r.changed)
	case a.Alarm != nil:
		r.alarm(alarmsOfNode+strconv.Itoa(int(a.Alarm.Of)), a.Alarm.Text)
	case a.Refused != nil:
		r.metrics.refused.Inc()
		r.log.Warn("rejected a plan of another replica", "from", a.Refused.From, "version", a.Refused.Version, "epoch", a.Refused.Epoch, "reason", a.Refused.Reason)
	}
}

// expects reports whether a plan above a version has arrived and will be read; r.mu is held.
func (r *Replica) expects(above uint64) bool {
	for _, version := range r.expected {
		if version > above {
			return true
		}
	}
	return false
}

// maxAlarms bounds the alarms that are kept for operators.
const maxAlarms = 10

// alarmsOfNode is the prefix of the node's alarms, and alarmUnreadable is the alarm for a plan
// that this replica can't read.
const alarmsOfNode, alarmUnreadable = "node ", "unreadable plan"

// alarm is a state or event that an operator should know. There is one of each state.
type alarm struct {
	of, text string
	at       time.Time
}

// alarm notes a state, or that it is over, where the text is empty. r.mu is held.
func (r *Replica) alarm(of, text string) {
	i := slices.IndexFunc(r.alarms, func(a alarm) bool { return a.of == of })
	if i >= 0 && r.alarms[i].text == text && of != text {
		return
	}
	if i >= 0 && text == "" {
		r.log.Info("an alarm of the group of replicas is over", "alarm", r.alarms[i].text)
	}
	if i >= 0 {
		r.alarms = slices.Delete(r.alarms, i, i+1)
	}
	if text != "" {
		r.log.Error("the group of replicas needs attention", "alarm", text)
		r.alarms = append(r.alarms, alarm{of, text, time.Now()})
	}
	if len(r.alarms) > maxAlarms {
		r.alarms = r.alarms[1:]
	}
}

// serve notes which plan clients get; r.mu is held.
func (r *Replica) serve(p *group.Plan) {
	if p.Claim != r.served.Claim {
		r.ledAt = time.Time{}
		if p.Version == p.Claim.First {
			r.ledAt = time.Now()
		}
	}
	r.served = Served{Plan: *p, Opened: r.opened[p.Version], At: time.Now()}
	for version := range r.opened {
		if version <= p.Version {
			delete(r.opened, version)
		}
	}
	if p.Version >= r.unreadable {
		r.alarm(alarmUnreadable, "")
	}
	signal(r.changed)
}

// Changed signals another role or another plan. Capacity 1.
func (r *Replica) Changed() <-chan struct{} { return r.changed }

// Served returns the plan that clients get; false where there is none yet.
func (r *Replica) Served() (Served, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.served, !r.served.IsZero()
}

// Role returns the present role of the replica, and the epoch of its own claim, if it has one.
func (r *Replica) Role() (role group.Role, epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node.Role(), r.node.Claim().Epoch
}

// Base returns the newest plan that a new leader goes on from; false where there is
// none, or where it can't be read.
func (r *Replica) Base() (Served, bool) {
	r.mu.Lock()
	p, served := r.node.Base(), r.served
	r.mu.Unlock()
	if p == nil {
		return Served{}, false
	}
	if p.Version == served.Version && served.Opened != nil {
		return served, true
	}
	opened, err := r.open(p.Content)
	if err != nil {
		r.log.Error("the newest plan of the group can't be read", "version", p.Version, "error", err)
		return served, !served.IsZero() && served.Opened != nil
	}
	return Served{Plan: *p, Opened: opened, At: time.Now()}, true
}

// Next returns the version of the next plan; see [group.Node.Next].
func (r *Replica) Next(reapply bool) (version uint64, err error) {
	r.do(func(n *group.Node, now time.Duration) { version, err = n.Next(now, reapply) })
	return version, err
}

// Publish hands a plan to the group. Only if it succeeds may clients get it. The content has the
// parts that [Cut] would cut it into.
func (r *Replica) Publish(version uint64, content group.Content, reapply bool) (err error) {
	r.do(func(n *group.Node, now time.Duration) { _, err = n.PublishAs(now, version, content, reapply) })
	if err == nil {
		r.metrics.published.Inc()
		r.metrics.bytes.Set(float64(content.Size()))
	}
	return err
}

// Removes reports whether clients may be told that something is absent.
func (r *Replica) Removes() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node.Removes(r.clock())
}

// Admit decides on a client that shows a version and has waited for some time.
func (r *Replica) Admit(shown uint64, waited time.Duration) (v group.Verdict) {
	r.do(func(n *group.Node, now time.Duration) { v = n.Admit(now, shown, waited) })
	return v
}

// Report sends the reports of this replica's clients to the leader. It reports whether there is
// one.
func (r *Replica) Report(parts []*peerv1.Observations) bool {
	r.mu.Lock()
	leader := r.node.Leader(r.clock())
	r.mu.Unlock()
	l := r.peers[leader]
	if l == nil {
		return false
	}
	l.report(parts)
	return true
}

// LeaderEpoch returns the epoch in which another replica leads; 0 = as far as this one
// knows, none does.
func (r *Replica) LeaderEpoch() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	leader := r.node.Leader(now)
	if r.peers[leader] == nil {
		return 0
	}
	v := r.node.View(now)
	for i := range v.Peers {
		if v.Peers[i].Name == leader {
			return v.Peers[i].Status.Claim.Epoch
		}
	}
	return 0
}

// Live reports whether another replica was heard within the last heartbeats.
func (r *Replica) Live(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.node.View(r.clock())
	for i := range v.Peers {
		if v.Peers[i].Name == name {
			return v.Peers[i].Live
		}
	}
	return false
}

// ErrNoLeader says that no replica leads as far as this one knows.
var ErrNoLeader = errors.New("no replica leads the group at the moment")

// StepDown has the leader give up leadership for a while, whichever replica it is. It returns the
// leader's name. A caretaker is not asked: without the engine nobody can take over from it.
func (r *Replica) StepDown(who string) (leader string, err error) {
	own, caretaker, why := false, "", ""
	r.do(func(n *group.Node, now time.Duration) {
		v := n.View(now)
		leader, caretaker, why = n.Leader(now), v.Caretaker(), awaits(&v)
		own = leader == r.self.Name && n.StepDown(now)
	})
	switch {
	case caretaker != "" && (leader == "" || leader == caretaker):
		return "", fmt.Errorf("replica %s is the caretaker: it leads without the election engine, which can't be reached and would have to name a successor; "+
			"until the engine answers, health counts, weights stay as they are, and no other replica can take over", caretaker)
	case own:
		r.log.Info("stepped down on an operator's request", "who", who)
		return leader, nil
	case leader == "" && why != "":
		return "", fmt.Errorf("%w: %s", ErrNoLeader, why)
	case leader == "" || r.peers[leader] == nil:
		return "", ErrNoLeader
	}
	r.peers[leader].stepDown(who)
	return leader, nil
}

// HandOver gives up leadership, if this replica has it, because another one should lead.
func (r *Replica) HandOver(why string) {
	r.do(func(n *group.Node, now time.Duration) {
		if n.StepDown(now) {
			r.log.Error("stepped down so that another replica leads", "reason", why)
		}
	})
}

// steppedDown carries out the request of another replica's operator.
func (r *Replica) steppedDown(from, who string) {
	r.do(func(n *group.Node, now time.Duration) {
		if n.StepDown(now) {
			r.log.Info("stepped down on an operator's request", "who", who, "asked", from)
		}
	})
}

// Announce tells the other replicas that this one is about to leave. It does not wait. closes
// says that it leads once more if no other replica does and none stays.
func (r *Replica) Announce(closes bool) {
	r.do(func(n *group.Node, now time.Duration) { n.Announce(now, closes) })
}

// AllLeave reports whether this replica leaves and no other live one stays.
func (r *Replica) AllLeave() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node.AllLeave(r.clock())
}

// Closing reports whether this replica leaves and may have to publish the group's last plan.
func (r *Replica) Closing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node.Closing(r.clock())
}

// Leave hands leadership over and keeps from campaigning. It returns when the
// engine holds nothing for this replica any more, or when ctx ends.
func (r *Replica) Leave(ctx context.Context) {
	r.do(func(n *group.Node, now time.Duration) { n.Leave(now) })
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		r.mu.Lock()
		left := r.node.Left()
		r.mu.Unlock()
		if left {
			r.flush(ctx)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// flush waits a moment until all messages are sent.
func (r *Replica) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	for _, l := range r.peers {
		l.flush(ctx)
	}
}
