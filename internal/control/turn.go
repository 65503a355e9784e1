package control

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/xds"
)

// rebase carries the current weights over to the present topology and health.
func (l *Loop) rebase() {
	l.lastRebase = time.Now()
	_, _ = l.next(plan.Origin{}, l.decider.Rebase, nil, true) // it is logged, and the last plan stays
}

// tick takes one decision.
func (l *Loop) tick() {
	started := time.Now()
	l.watchClock(started)
	l.healthShown = time.Time{} // a tick shows what there is
	l.observeHealth(started)
	_, _ = l.next(plan.Origin{}, l.decider.Tick, l.opts.Reports.Collect(started), false)
	l.believe()
	l.countTick(time.Since(started))
}

// next makes and publishes the plan that follows. An internal error that panics in pure
// code costs this plan only: the one in force goes on serving.
func (l *Loop) next(o plan.Origin, decide func(*plan.Turn) (*plan.Plan, error), windows []load.StreamWindow, reapply bool) (p *plan.Plan, err error) {
	before := l.Current()
	version, err := l.version(before, reapply)
	if err != nil {
		return nil, err
	}
	defer func() { l.tell(func(r Recorder) { r.Decided(before, p, err) }) }()
	defer func() {
		if r := recover(); r != nil {
			l.metrics.panics.Inc()
			l.log.Error("planning failed, the last plan stays", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			p, err = nil, errInternal
		}
	}()
	turn := &plan.Turn{Now: time.Now(), Windows: windows, Paused: before.Paused, Previous: before, Version: version}
	// A reload puts its timing in force before its services: in this order the turn never
	// has the services of one configuration and the older timing of another.
	turn.Topology, l.operators = l.opts.Topology.State()
	timing := l.timing()
	turn.Interval, turn.Degradation, turn.Ages = timing.Interval, timing.Degradation, l.ages(turn.Now)
	turn.Watched = watched(l.opts.Clients.Subscriptions(), turn.Topology)
	turn.Health = l.keeper.Table(l.operators)
	if p, err = decide(turn); err != nil {
		if o.Trigger == "" { // an operator is told
			l.log.Error("planning failed, the last plan stays", "error", err)
		}
		return nil, err
	}
	if err = l.handOut(p, o, reapply); err != nil {
		l.log.Warn("a plan was not published", "version", p.VersionString(), "error", err)
		return nil, err
	}
	change, ok := plan.Changed(before, p, o)
	if ok {
		l.note(change)
	}
	l.publish(p)
	return p, nil
}

// publish puts a plan in force: one atomic store, then the streams.
func (l *Loop) publish(p *plan.Plan) {
	if l.opts.Group != nil { // the group's claim reserves them
		l.reserved = l.opts.Group.Reserved()
	} else if l.reserveAhead(p.Version); p.Version > l.reserved { // the disk has failed, or hung, for long
		_ = l.reserve(l.toSave(p), p.Version) // it is told, and serving goes on
	}
	before := l.Current()
	l.show(p)
	l.report(p)
	if l.worthSaving(before, p) {
		saved := l.toSave(p)
		l.saver.save(job{plan: &saved, pages: l.pages})
		l.lastSaved, l.pages = p.Made, nil
	}
}

// show tells the streams of a plan, and whoever waits for one.
func (l *Loop) show(p *plan.Plan) {
	l.set = l.opts.Views(p, l.set)
	l.opts.Reports.Refresh()
	l.current.Store(p)
	l.opts.Clients.Publish(l.set)
	l.waiters.wake()
}

// watched tells the planner who watches which services of a topology: names of none, of
// which clients may have millions, cost it nothing. nil = also services that may come.
func watched(subscriptions []xds.Subscription, topology *isobar.Topology) []plan.Watched {
	n := 0
	known := func(s *xds.Subscription) bool {
		if topology == nil {
			return true
		}
		_, found := topology.Service(s.Service)
		return found
	}
	for i := range subscriptions {
		if known(&subscriptions[i]) {
			n++
		}
	}
	out := make([]plan.Watched, 0, n)
	for i := range subscriptions {
		if s := &subscriptions[i]; known(s) {
			out = append(out, plan.Watched{Service: s.Service, Source: s.Locality, Streams: s.Streams, Acked: s.AckedAt})
		}
	}
	return out
}

// ages tells the planner how old its inputs are, but for load reports, of which
// it knows itself.
func (l *Loop) ages(now time.Time) []plan.InputAge {
	var out []plan.InputAge
	if l.opts.Outdated != nil {
		out = l.opts.Outdated(now)
	}
	for _, a := range l.keeper.VerdictTable().Ages() {
		if a.Checked {
			out = append(out, plan.InputAge{Service: a.Service, Kind: plan.InputHealth, Age: plan.Age{Some: a.Some, Most: a.Most}})
		}
	}
	return out
}
