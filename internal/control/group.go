package control

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/isobar-xds/isobar/internal/control/ending"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// runInGroup is Run for a replica of a group.
func (l *Loop) runInGroup(ctx context.Context) error {
	if err := l.startInGroup(); err != nil {
		close(l.left)
		return err
	}
	defer l.state.saver.close()
	for ctx.Err() == nil {
		role, epoch := l.group.Role()
		if role != Leads {
			l.follow(ctx)
			continue
		}
		err := l.takeOver(epoch)
		l.group.Assumed(epoch, err)
		if err != nil {
			l.log.Error("this replica leads its group but can't make its first plan", "epoch", epoch, "error", err)
			l.turned() // after a restart it would fail again; the group gives leadership away instead
			wait(ctx, l.opts.timing().Tick)
			continue
		}
		l.log.Info("this replica leads its group", "epoch", epoch, "version", l.Current().VersionString())
		l.decided = true
		l.decide(ctx, epoch)
		l.decided = ctx.Err() != nil
		l.log.Info("this replica no longer leads its group", "epoch", epoch)
	}
	l.leaveGroup()
	close(l.left)
	l.awaitParting()
	return nil
}

// startInGroup prepares the state that leaders and followers have. It shows an earlier plan of
// this replica as it is.
func (l *Loop) startInGroup() error {
	saved, err := l.opts.State.LoadPlan()
	if err != nil {
		return fmt.Errorf("control: the saved plan: %w", err)
	}
	if saved == nil {
		saved = &plan.Saved{}
	}
	now := time.Now()
	l.startState(saved, nil, now)
	if err := l.startHealth(now); err != nil {
		return err
	}
	l.receive()
	return nil
}

// follow shows the leader's plans, and sends it the reports of clients, until this replica leads
// or ctx ends.
func (l *Loop) follow(ctx context.Context) {
	tick := newTicker(l.opts.timing().Tick)
	defer tick.timer.Stop()
	soon := newAlarm(l.healthPause())
	defer soon.timer.Stop()
	l.loadMemory.Store(nil)
	for {
		l.turned()
		asked := l.asked
		if l.Current() == nil { // there is nothing to answer from
			asked = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-l.group.Changed():
			if role, _ := l.group.Role(); role == Leads {
				return
			}
			l.receive()
		case <-l.opts.Topology.Changed(): // the leader decides whether it counts
		case <-l.opts.Checkers.Changed():
			soon.within(healthEvery)
		case <-soon.timer.C:
			l.group.Report(time.Now(), true)
			soon.set(l.healthPause())
		case do := <-asked:
			l.learnHealth()
			do()
		case <-l.retimed:
			tick.retime(l.opts.timing().Tick)
		case <-tick.timer.C:
			started := time.Now()
			l.group.Report(started, false)
			soon.set(l.healthPause())
			tick.ticked(started, l.opts.timing().Tick)
		}
	}
}

// reportHealthMost bounds the time between two messages of a follower about its checkers: the
// leader counts those of a replica that it has not heard for 45 s as gone.
const reportHealthMost = 10 * time.Second

// healthPause is after what time without a message about its checkers a follower sends one, even if
// they found nothing new: ticks may be rarer than reports, and votes are fresh for 3 report
// intervals. With equal intervals, the next tick comes first.
func (l *Loop) healthPause() time.Duration {
	every := min(l.opts.timing().Interval, reportHealthMost)
	return every + every/4
}

// receive shows the newest plan of the group to clients, if it is news.
func (l *Loop) receive() {
	o := l.group.Received()
	before := l.Current()
	if o == nil || before != nil && o.Plan.Version <= before.Version {
		return
	}
	if o.Plan.Provisional && before != nil && !before.Provisional {
		return // the leader lost a plan that this replica has: its clients keep it until the leader decides
	}
	if change, ok := plan.Changed(before, o.Plan, o.Origin); ok {
		l.state.note(change)
	}
	l.undropped.Store(o.Plan.Final)
	if l.withDrops = nil; o.Plan.Final {
		l.withDrops = &o.Saved
	}
	l.show(o.Plan)
	l.leaderHealth = &o.Health
	l.group.Designate(o)
	if l.state.worthSaving(before, o.Plan) {
		saved := o.Saved
		saved.Reserved, saved.LastChange = l.group.Reserved(), l.state.history.Last()
		l.state.save(&saved, o.Plan.Made)
	}
	if now := time.Now(); now.Sub(l.health.saved) >= saveEvery || l.state.saver.fails() && now.Sub(l.health.saved) >= saveHealthEvery {
		l.state.saver.save(job{health: &o.Health})
		l.health.saved = now
	}
}

// learnHealth updates the health that operators see to the leader's last message.
func (l *Loop) learnHealth() {
	if l.leaderHealth == nil {
		return
	}
	l.health.begin(l.leaderHealth, time.Now())
	l.leaderHealth = nil
}

// takeOver begins to decide: it goes on from the newest plan of the group, as a
// server that was restarted does from the one that it saved.
func (l *Loop) takeOver(epoch uint64) error {
	base, paused, err := l.group.Assume()
	if err != nil {
		return err
	}
	now := time.Now()
	saved, found := &plan.Saved{}, health.SavedMonitor{}
	var lost bool // there was a leader before, and none of its plans is left
	if base != nil {
		*saved, lost = base.Saved, base.Plan.Provisional
		found = base.Health
	} else {
		single, err := l.opts.State.LoadPlan()
		if err != nil {
			return fmt.Errorf("the saved plan: %w", err)
		}
		if lost = single == nil && epoch > 1; single != nil {
			saved = single
		}
		if kept, err := l.opts.State.LoadHealth(); err == nil && kept != nil {
			found = *kept
		}
	}
	if kept := l.Current(); lost && kept != nil && !kept.Provisional { // the previous leader had lost the plan that this replica serves
		*saved, lost = kept.Save(), false
	}
	saved.Paused = paused
	l.health.begin(&found, now)
	l.leaderHealth = nil
	l.health.designated = 0 // checkers are told again
	l.health.observe(now)
	l.gathering = now
	return l.goOnFrom(saved, fmt.Sprintf("this replica leads its group from epoch %d on", epoch), lost)
}

// goOnFrom makes the first plan of a leader, or of one that has gathered the shares of clients.
func (l *Loop) goOnFrom(saved *plan.Saved, reason string, provisional bool) error {
	version, err := l.group.Next(false)
	if err != nil {
		return err
	}
	l.recorders.each(Recorder.Stopped) // their recorded inputs do not lead to this state
	now := time.Now()
	decides := l.newDecider(saved.Demand(), now)
	topology, operators := l.opts.Topology.State()
	first, err := plan.Restore(saved, topology, l.health.monitor.Table(operators), now, version)
	if err != nil {
		return fmt.Errorf("the first plan: %w", err)
	}
	if provisional {
		first.MakeProvisional()
	}
	change := plan.Restored(saved, first)
	change.Reason = reason
	if err := l.group.handOut(first, plan.Origin{Trigger: change.Trigger, Reason: change.Reason}, l.health.monitor, false); err != nil {
		return err
	}
	l.decider, l.lastReapply, l.decider.operators = decides, now, operators
	l.state.note(change)
	l.publish(first)
	return nil
}

const (
	// enoughReturned is the fraction of the connected clients that have to have reported before a
	// group that has lost all its plans decides, and gatherMost is how long it waits for them:
	// longer if gatherIntervals report intervals take longer.
	enoughReturned = 0.8
	gatherMost     = time.Minute
	// gatherLeast is how long it waits at least, as far as endpoints do not expire before:
	// clients that connect late are not among those that are counted. Envoy pauses for up to
	// 30 s before it connects again.
	gatherLeast     = 30 * time.Second
	gatherIntervals = 4
	// lifetimeParts bounds the wait where clients forget endpoints: clients need the rest
	// of the lifetime to come back.
	lifetimeParts = 3
)

// GatherMost returns how long a leader that has lost all plans waits for reports, where
// endpoints and resources do not expire at clients.
func GatherMost(interval time.Duration) time.Duration {
	return max(gatherMost, gatherIntervals*interval)
}

// patience is how long to gather for.
func (l *Loop) patience() time.Duration {
	most := GatherMost(l.opts.timing().Interval)
	for _, life := range l.set.Lifetimes() {
		for _, ends := range []time.Duration{life.Stale, life.TTL} {
			if ends > 0 {
				most = min(most, ends/lifetimeParts)
			}
		}
	}
	return most
}

// gathered is the behaviour of clients. A panic in pure code costs this turn only: then the
// result is empty.
func (l *Loop) gathered(now time.Time) (observed plan.Saved, returned float64) {
	before := l.Current()
	defer func() {
		if r := recover(); r != nil {
			l.metrics.panics.Inc()
			l.log.Error("reading the shares of the clients failed; the provisional plan stays in force", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			observed, returned = plan.Saved{Version: before.Version, Made: now, Paused: before.Paused}, 0
		}
	}()
	defer l.opts.Reports.Release()
	defer l.noteLoadMemory()
	return l.decider.Gather(l.turn(now, before, l.opts.Reports.Collect(now)))
}

// gather collects the behaviour of clients while the plan is provisional. Once enough of them
// have reported, or when the time is over, the loop continues from that: they keep the shares
// that they have.
func (l *Loop) gather(now time.Time) {
	observed, returned := l.gathered(now)
	waited, most := now.Sub(l.gathering), l.patience()
	if waited < min(gatherLeast, most) || returned < enoughReturned && waited < most {
		return
	}
	reason := fmt.Sprintf("all plans of the group were lost: it continues from the shares of the clients, of which %.0f%% report load", 100*returned)
	if err := l.goOnFrom(&observed, reason, false); err != nil {
		l.log.Error("no plan was made from the shares of the clients", "error", err)
		return
	}
	l.log.Info("all plans of the group were lost; it continues from the shares of the clients", "version", l.Current().VersionString(), "reporting", returned)
}

// wait waits, but not longer than ctx.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// leaveGroup saves the state of a replica as it ends. Clients keep their assignments: another
// replica serves them. The last replica ends drops first.
func (l *Loop) leaveGroup() {
	l.recorders.each(Recorder.Stopped)
	p := l.Current()
	if p == nil {
		return
	}
	if p.Drops() {
		l.publishFinal()
	}
	saved := l.toSave()
	last := job{plan: &saved, pages: l.state.pages}
	if l.decided {
		found := l.health.monitor.Save()
		last.health = &found
	}
	l.state.saver.save(last)
	l.metrics.unregister()
}

// toSave returns the state that a replica saves as it ends: the plan in force, with its drops
// even if they were ended.
func (l *Loop) toSave() plan.Saved {
	saved := l.state.toSave(l.Current())
	if kept := l.withDrops; kept != nil {
		saved.Version, saved.Made, saved.Paused, saved.Services = kept.Version, kept.Made, kept.Paused, kept.Services
	}
	saved.Reserved = l.group.Reserved() // also of the claim in which it took drops back
	return saved
}

// finalLook is how often a replica that ends while clients drop requests looks how it stands.
const finalLook = 10 * time.Millisecond

// publishFinal ends drops if no replica stays. The leader publishes a plan without drops,
// and its followers show it. If the leader left earlier, a former follower leads by now, or
// will soon.
func (l *Loop) publishFinal() {
	look := time.NewTicker(finalLook)
	defer look.Stop()
	waits := ending.New(l.decided)
	var failed error // taking drops back did, and is tried again
	for began := time.Now(); ; <-look.C {
		state, epoch := l.standing()
		if waits.TakesBack(time.Since(began), state) {
			if failed = l.takeBackDrops(epoch); failed == nil {
				return
			}
			waits.Failed()
		}
		l.receive()
		if !l.Current().Drops() { // there is nothing to take back any more
			l.undropped.Store(true)
			return
		}
		if !waits.Over(time.Since(began), state) {
			continue
		}
		if failed != nil {
			l.log.Warn("drops were not taken back before stopping", "error", failed)
		}
		return
	}
}

// standing returns how this replica, which ends, stands in its group.
func (l *Loop) standing() (s ending.State, epoch uint64) {
	role, epoch := l.group.Role()
	s = ending.State{Follows: role == Follows, Claims: role == Claims, Leads: role == Leads || role == Cares, Closing: l.group.Closing()}
	s.Last = s.Leads && l.group.Last()
	return s, epoch
}

// awaitParting shows the clients that have not left yet the last plan of the group, which
// comes once the other replicas end, too: they would go on dropping requests.
func (l *Loop) awaitParting() {
	for l.Current().Drops() {
		select {
		case <-l.group.Unserved():
			return
		case <-l.group.Changed():
			l.receive()
		}
	}
}

// takeBackDrops shows clients the plan in force without its drops. The group gets it with the
// drops, and a note that clients don't: the next leader continues with them.
func (l *Loop) takeBackDrops(epoch uint64) error {
	if !l.decided {
		if err := l.takeOver(epoch); err != nil {
			return err
		}
		l.decided = true
	}
	last := l.Current()
	if !last.Drops() { // the group has gone on from a plan that drops nothing
		l.undropped.Store(true)
		return nil
	}
	version, err := l.group.Next(true)
	if err != nil {
		return err
	}
	p := last.FinalPlan(time.Now(), version)
	kept := p.Save()
	found := l.health.monitor.Save()
	if err := l.group.Publish(p, plan.Origin{}, &found, true); err != nil {
		return err
	}
	l.log.Info("took back drops before stopping; no other replica stays", "version", p.VersionString())
	l.undropped.Store(true)
	l.withDrops = &kept
	l.show(p.WithoutDrops(p.Made, version))
	return nil
}
