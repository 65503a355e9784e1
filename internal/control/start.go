package control

import (
	"fmt"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// start publishes the first plan: the saved one rebased on now, else the
// baseline.
func (l *Loop) start() error {
	now := time.Now()
	saved, err := l.opts.State.LoadPlan()
	if err != nil {
		return fmt.Errorf("control: the saved plan: %w", err)
	}
	if saved == nil {
		saved = &plan.Saved{}
	}
	l.startHistory(saved)
	l.decider = decider{plan.NewDecider(l.timing().Interval, saved.Demand(), now), l}
	l.saver = newSaver(l.opts.State, l.log, l.metrics)
	l.writing.Store(l.saver)
	l.clock.begin(now, saved.Made)
	version := beyond(saved, max(saved.Reserved, saved.Version), now, l.opts.Boot())
	_ = l.reserve(*saved, version) // it is told, and serving goes on
	if err := l.startHealth(now); err != nil {
		l.saver.close()
		return fmt.Errorf("control: the saved health: %w", err)
	}
	topology, operators := l.opts.Topology.State()
	first, err := plan.Restore(saved, topology, l.keeper.Table(operators), now, version)
	if err != nil {
		l.saver.close()
		return fmt.Errorf("control: the first plan: %w", err)
	}
	l.lastRebase = now
	l.note(plan.Restored(saved, first))
	l.publish(first)
	return nil
}
