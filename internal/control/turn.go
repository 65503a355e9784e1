package control

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// reapply carries the current weights over to the present topology and health.
func (l *Loop) reapply() {
	l.lastReapply = time.Now()
	_, _ = l.next(plan.Origin{}, l.decider.Reapply, nil, true) // it is logged, and the last plan stays
}

// tick takes one decision.
func (l *Loop) tick() {
	started := time.Now()
	l.watchClock(started)
	l.health.shownAt = time.Time{} // a tick shows the plan
	l.health.observe(started)
	if l.Current().Provisional {
		l.gather(started)
	} else {
		_, _ = l.next(plan.Origin{}, l.decideOnReports, l.opts.Reports.Collect(started), false)
		l.health.feedReports(l.Current())
	}
	took := time.Since(started)
	l.metrics.ticked(took)
	l.countTick(took)
}

// decideOnReports decides on the collected reports, and releases them.
func (l *Loop) decideOnReports(t *plan.Turn) (*plan.Plan, error) {
	defer l.opts.Reports.Release()
	defer l.noteLoadMemory()
	return l.decider.Tick(t)
}

// noteLoadMemory lets others see how much memory the load of clients uses, and logs that some
// of it was not kept.
func (l *Loop) noteLoadMemory() {
	before, m := l.LoadMemory(), l.decider.LoadMemory()
	l.loadMemory.Store(&m)
	if more := m.Refused - min(before.Refused, m.Refused); more > 0 {
		l.metrics.loadRefused.Add(float64(more))
		if now := time.Now(); now.Sub(l.unkept) >= unkeptEvery {
			l.unkept = now
			l.log.Warn("load of clients was not kept: that of one address, or of all, takes too much memory; raise xds.admission.report_megabytes",
				"entries", more, "bytes", m.Used, "limit", m.Most)
		}
	}
}

// unkeptEvery is the time between two log lines about load that was not kept.
const unkeptEvery = time.Minute

// LoadMemory returns how much memory what clients report used at the last decision; zero on a replica that
// follows.
func (l *Loop) LoadMemory() load.Memory {
	if m := l.loadMemory.Load(); m != nil {
		return *m
	}
	return load.Memory{}
}

// next makes and publishes the plan that follows. An internal error that panics in pure
// code costs this plan only: the one in force goes on serving.
func (l *Loop) next(o plan.Origin, decide func(*plan.Turn) (*plan.Plan, error), windows []load.StreamWindow, reapply bool) (p *plan.Plan, err error) {
	before := l.Current()
	version, err := l.group.version(before, reapply)
	if err != nil {
		return nil, err
	}
	defer func() { l.recorders.each(func(r Recorder) { r.Decided(before, p, err) }) }()
	defer func() {
		if r := recover(); r != nil {
			l.metrics.panics.Inc()
			l.log.Error("planning failed; the last plan stays in force", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			p, err = nil, errInternal
		}
	}()
	turn := l.turn(time.Now(), before, windows)
	turn.Version = version
	if p, err = decide(turn); err != nil {
		if o.Trigger == "" { // an operator is told
			l.log.Error("planning failed; the last plan stays in force", "error", err)
		}
		return nil, err
	}
	if o.Trigger == "" {
		o = l.ordered(before, p)
	}
	if err = l.group.handOut(p, o, l.health.monitor, reapply); err != nil {
		l.log.Warn("a plan was not published", "version", p.VersionString(), "error", err)
		return nil, err
	}
	change, ok := plan.Changed(before, p, o)
	if ok {
		l.state.note(change)
	}
	l.publish(p)
	return p, nil
}

// ordered returns why a plan is made whose topology has what operators ordered since the one
// before.
func (l *Loop) ordered(before, p *plan.Plan) plan.Origin {
	if l.opts.Ordered == nil || before.Topology == nil || p.Topology == nil || before.Topology.Revision == p.Topology.Revision {
		return plan.Origin{}
	}
	return l.opts.Ordered(before.Topology.Revision, p.Topology.Revision)
}

// turn returns the inputs of the next plan, without its version.
func (l *Loop) turn(now time.Time, before *plan.Plan, windows []load.StreamWindow) *plan.Turn {
	turn := &plan.Turn{Now: now, Windows: windows, Paused: before.Paused, Previous: before}
	// A reload puts its timing in force before its services: in this order the turn never
	// has the services of one configuration and the older timing of another.
	turn.Topology, l.decider.operators = l.opts.Topology.State()
	timing := l.opts.timing()
	turn.Interval, turn.Degradation, turn.Ages = timing.Interval, timing.Degradation, l.ages(turn.Now)
	turn.Subscribed = subscribed(l.opts.Clients.Subscriptions(), turn.Topology)
	turn.Health = l.health.monitor.Table(l.decider.operators)
	return turn
}

// publish puts a plan in force: one atomic store, then the streams.
func (l *Loop) publish(p *plan.Plan) {
	if l.group.Group != nil { // the group's claim reserves them
		l.state.reserved = l.group.Reserved()
	} else if l.state.reserveAhead(p.Version); p.Version > l.state.reserved { // the disk has failed, or hung, for long
		_ = l.state.reserve(l.state.toSave(p), p.Version) // it is told, and serving goes on
	}
	before := l.Current()
	l.undropped.Store(false) // clients may drop again
	l.withDrops = nil
	l.show(p)
	l.report(p)
	if l.state.worthSaving(before, p) {
		saved := l.state.toSave(p)
		l.state.save(&saved, p.Made)
	}
}

// show gives a plan to the streams, and to goroutines that wait for one.
func (l *Loop) show(p *plan.Plan) {
	l.set = l.opts.Views(p, l.set)
	l.opts.Reports.Refresh()
	if p.Provisional {
		l.provisional.Store(true)
	}
	l.current.Store(p)
	l.opts.Clients.Publish(l.set)
	l.provisional.Store(p.Provisional) // until here streams get the plan before
	l.waiters.wake()
}

// subscribed removes from subscriptions those to services that a topology does not have: names without a
// service, of which clients may have millions, cost the planner nothing. nil = also services that may come.
func subscribed(subscriptions []load.Subscription, topology *isobar.Topology) []load.Subscription {
	if topology == nil {
		return subscriptions
	}
	return slices.DeleteFunc(subscriptions, func(s load.Subscription) bool {
		_, found := topology.Service(s.Service)
		return !found
	})
}

// ages tells the planner how old its inputs are, but for load reports, of which
// it knows itself.
func (l *Loop) ages(now time.Time) []plan.InputAge {
	var out []plan.InputAge
	if l.opts.Outdated != nil {
		out = l.opts.Outdated(now)
	}
	return append(out, l.health.ages()...)
}

// watchClock looks at the clock, once a tick.
func (l *Loop) watchClock(now time.Time) {
	start := l.clock.start
	if back := l.clock.look(now.Sub(start), now.Round(0).Sub(start.Round(0))); back > 0 {
		l.log.Warn("the clock of this machine went back", "by", back)
	}
}

// logEvery bounds how often the same broken rule of the same service is logged.
const logEvery = time.Minute

// maxBad bounds the remembered violations.
const maxBad = 1000

// report counts and logs the violations that the check found.
func (l *Loop) report(p *plan.Plan) {
	for i := range p.Violations {
		v := &p.Violations[i]
		l.metrics.violations.WithLabelValues(v.Rule).Inc()
		if len(l.bad) > maxBad {
			clear(l.bad)
		}
		key := v.Rule + "\x00" + v.Service
		if p.Made.Sub(l.bad[key]) < logEvery {
			continue
		}
		l.bad[key] = p.Made
		l.log.Error("a plan broke an invariant and was replaced by the previous one",
			"rule", v.Rule, "service", v.Service, "source", v.Source.String(), "text", v.Text)
	}
}
