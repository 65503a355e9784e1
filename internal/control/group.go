package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// GroupRole is what a loop may do in a group of replicas.
type GroupRole uint8

// The roles of a loop in its group.
const (
	// Follows: it shows the leader's plans to its clients, and makes none.
	Follows GroupRole = iota
	// Leads: it makes plans.
	Leads
	// Cares: it led, the election engine is out of reach, and others still follow it. It
	// carries weights over to new health, and decides nothing.
	Cares
)

// Group is the group of replicas that the server belongs to.
type Group interface {
	// Changed signals that Role or Received give something new. Capacity 1.
	Changed() <-chan struct{}
	// Role returns what the loop may do now, and in which epoch.
	Role() (role GroupRole, epoch uint64)
	// Received returns the newest plan of another replica; nil where there is none.
	Received() *plan.Opened
	// Assume prepares a new leader: it reads what operators wrote, and puts it in force
	// in the topology with the configuration of the group. It returns the newest plan of
	// the group, which the leader goes on from, nil where there is none; and what
	// operators paused.
	Assume() (base *plan.Opened, paused plan.Pauses, err error)
	// Paused makes what Current pauses durable for the group.
	Paused(ctx context.Context) error
	// Next returns the version of the next plan. reapply says that the plan only carries
	// weights over. An error says that the replica may not publish.
	Next(reapply bool) (uint64, error)
	// Publish hands a plan to the group, with what the keeper knows of health. Only if it
	// succeeds may clients get the plan.
	Publish(p *plan.Plan, o plan.Origin, found *health.SavedKeeper, reapply bool) error
	// Reserved is the highest version that this epoch may use: a single server that goes
	// on from the state begins above it.
	Reserved() uint64
	// Report sends what clients told this replica to the leader. health says that only
	// what checkers told is sent, which does not wait for a tick.
	Report(now time.Time, healthOnly bool)
	// Designate tells the checkers of this replica what the leader wants them to probe.
	Designate(o *plan.Opened)
}

// ErrFollower answers operators on a replica that does not lead its group.
var ErrFollower = errors.New("this replica follows another one, which decides")

// runInGroup is Run for a replica of a group.
func (l *Loop) runInGroup(ctx context.Context) error {
	if err := l.startInGroup(); err != nil {
		close(l.left)
		return err
	}
	defer l.saver.close()
	defer close(l.left)
	for ctx.Err() == nil {
		role, epoch := l.opts.Group.Role()
		if role != Leads {
			l.follow(ctx)
			continue
		}
		if err := l.takeOver(epoch); err != nil {
			l.log.Error("this replica leads its group, but can't make the first plan", "epoch", epoch, "error", err)
			wait(ctx, l.timing().Tick)
			continue
		}
		l.log.Info("this replica decides for its group", "epoch", epoch, "version", l.Current().VersionString())
		l.decided = true
		l.decide(ctx, epoch)
		l.decided = ctx.Err() != nil
		l.log.Info("this replica decides no more", "epoch", epoch)
	}
	l.leaveGroup()
	return nil
}

// startInGroup prepares what leaders and followers have. A plan that this replica
// had before is shown as it is.
func (l *Loop) startInGroup() error {
	saved, err := l.opts.State.LoadPlan()
	if err != nil {
		return fmt.Errorf("control: the saved plan: %w", err)
	}
	if saved == nil {
		saved = &plan.Saved{}
	}
	l.startHistory(saved)
	l.saver = newSaver(l.opts.State, l.log, l.metrics)
	l.writing.Store(l.saver)
	now := time.Now()
	l.decider = decider{plan.NewDecider(l.timing().Interval, nil, now), l}
	if err := l.startHealth(now); err != nil {
		l.saver.close()
		return fmt.Errorf("control: the saved health: %w", err)
	}
	l.receive()
	return nil
}

// follow shows the leader's plans, and sends it what clients tell, until this
// replica leads or ctx ends.
func (l *Loop) follow(ctx context.Context) {
	tick := newTicker(l.timing().Tick)
	defer tick.timer.Stop()
	soon := time.NewTimer(time.Hour)
	defer soon.Stop()
	for {
		now := time.Now()
		l.beat.Store(&now)
		asked := l.asked
		if l.Current() == nil { // there is nothing to answer from
			asked = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-l.opts.Group.Changed():
			if role, _ := l.opts.Group.Role(); role == Leads {
				return
			}
			l.receive()
		case <-l.opts.Topology.Changed(): // the leader decides whether it counts
		case <-l.opts.Checkers.Changed():
			soon.Reset(healthEvery)
		case <-soon.C:
			l.opts.Group.Report(time.Now(), true)
		case do := <-asked:
			l.learnHealth()
			do()
		case <-l.retimed:
			tick.retime(l.timing().Tick)
		case <-tick.timer.C:
			started := time.Now()
			l.opts.Group.Report(started, false)
			tick.ticked(started, l.timing().Tick)
		}
	}
}

// receive shows the newest plan of the group to clients, if it is news.
func (l *Loop) receive() {
	o := l.opts.Group.Received()
	before := l.Current()
	if o == nil || before != nil && o.Plan.Version <= before.Version {
		return
	}
	if change, ok := plan.Changed(before, o.Plan, o.Origin); ok {
		l.note(change)
	}
	l.show(o.Plan)
	l.told = &o.Health
	l.opts.Group.Designate(o)
	if l.worthSaving(before, o.Plan) {
		saved := o.Saved
		saved.Reserved, saved.LastChange = l.opts.Group.Reserved(), l.history.Last()
		l.saver.save(job{plan: &saved, pages: l.pages})
		l.lastSaved, l.pages = o.Plan.Made, nil
	}
	if now := time.Now(); now.Sub(l.healthSaved) >= saveEvery {
		l.saver.save(job{health: &o.Health})
		l.healthSaved = now
	}
}

// learnHealth brings what operators are shown of health to what the leader told last.
func (l *Loop) learnHealth() {
	if l.told == nil {
		return
	}
	t := l.timing()
	l.keeper, l.told = health.NewKeeper(t.Interval, t.Tick, *l.told, time.Now()), nil
}

// takeOver begins to decide: it goes on from the newest plan of the group, as a
// server that was restarted does from the one that it saved.
func (l *Loop) takeOver(epoch uint64) error {
	base, paused, err := l.opts.Group.Assume()
	if err != nil {
		return err
	}
	now := time.Now()
	saved := &plan.Saved{}
	found := health.SavedKeeper{}
	if base != nil {
		*saved = base.Saved
		found = base.Health
	} else {
		single, err := l.opts.State.LoadPlan()
		if err != nil {
			return fmt.Errorf("the saved plan: %w", err)
		}
		if single != nil {
			saved = single
		}
		if kept, err := l.opts.State.LoadHealth(); err == nil && kept != nil {
			found = *kept
		}
	}
	saved.Paused = paused
	t := l.timing()
	l.decider = decider{plan.NewDecider(t.Interval, saved.Demand(), now), l}
	l.keeper = health.NewKeeper(t.Interval, t.Tick, found, now)
	l.told = nil
	l.designated = 0 // checkers are told again
	l.observeHealth(now)
	version, err := l.opts.Group.Next(false)
	if err != nil {
		return err
	}
	topology, operators := l.opts.Topology.State()
	first, err := plan.Restore(saved, topology, l.keeper.Table(operators), now, version)
	if err != nil {
		return fmt.Errorf("the first plan: %w", err)
	}
	l.lastRebase, l.operators = now, operators
	change := plan.Restored(saved, first)
	change.Reason = fmt.Sprintf("this replica leads its group from epoch %d on", epoch)
	if err := l.handOut(first, plan.Origin{Trigger: change.Trigger, Reason: change.Reason}, false); err != nil {
		return err
	}
	l.note(change)
	l.publish(first)
	return nil
}

// handOut hands a plan to the group before clients get it. A single server needs
// nobody's leave.
func (l *Loop) handOut(p *plan.Plan, o plan.Origin, reapply bool) error {
	if l.opts.Group == nil {
		return nil
	}
	if found := time.Now(); l.found == nil || found.Sub(l.foundAt) >= saveHealthEvery {
		kept := l.keeper.Save()
		l.found, l.foundAt = &kept, found
	}
	return l.opts.Group.Publish(p, o, l.found, reapply)
}

// version returns the version of the plan that follows another.
func (l *Loop) version(before *plan.Plan, reapply bool) (uint64, error) {
	if l.opts.Group == nil {
		return before.Version + 1, nil
	}
	return l.opts.Group.Next(reapply)
}

// stays reports whether a loop that decides in an epoch may go on, and whether it
// may take decisions. A single server always may.
func (l *Loop) stays(epoch uint64) (goesOn, decides bool) {
	if l.opts.Group == nil {
		return true, true
	}
	role, now := l.opts.Group.Role()
	return role != Follows && now == epoch, role == Leads
}

// groupChanged signals another role; nil, which never does, for a single server.
func (l *Loop) groupChanged() <-chan struct{} {
	if l.opts.Group == nil {
		return nil
	}
	return l.opts.Group.Changed()
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

// leaveGroup saves what a replica knows as it ends. Clients keep what they have:
// another replica serves them.
func (l *Loop) leaveGroup() {
	l.tell(Recorder.Stopped)
	p := l.Current()
	if p == nil {
		return
	}
	saved := l.toSave(p)
	saved.Reserved = l.opts.Group.Reserved()
	last := job{plan: &saved, pages: l.pages}
	if l.decided {
		found := l.keeper.Save()
		last.health = &found
	}
	l.saver.save(last)
	l.metrics.unregister()
}
