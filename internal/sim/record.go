package sim

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Recorder takes down everything that the loop of a simulated Isobar gives to
// pure code, before it gets it, and what is decided. The first plan of all is
// what it begins with.
type Recorder interface {
	// Begin is given the state from which the recording goes on, to be read before
	// it returns.
	Begin(from Beginning) error
	// Tick and Rebase are told of what is to be decided. What they are given may
	// change when they have returned.
	Tick(t *plan.Turn, operators health.Table)
	Rebase(t *plan.Turn, operators health.Table)
	// Decided is told what was, or why nothing was. Plans don't change.
	Decided(before, after *plan.Plan, err error)
	// Flush is called after each decision; the run waits for it, and ends with its
	// error.
	Flush() error
}

// Beginning is the state of pure code between two turns.
type Beginning struct {
	Now       time.Time
	Decider   *plan.Decider
	Keeper    *health.Keeper // that knows nothing: health is what Operators says
	Current   *plan.Plan
	Topology  *isobar.Topology
	Operators health.Table
}

// Recorded is Isobar with a recorder that listens to one run. Its plans are made
// in one part, however large the fleet is.
func Recorded(r Recorder) Policy {
	p := Isobar()
	p.make = []maker{func(w *world) (balancer, error) {
		b := newLoop(w, 1)
		b.record = &recording{to: r}
		return b, nil
	}}
	return p
}

// recording is a recorder and how far it is; nil records nothing.
type recording struct {
	to    Recorder
	begun bool
	told  bool // of the turn that is being decided
}

func (r *recording) tick(s *shard, t *plan.Turn) {
	if r != nil && r.begun {
		r.to.Tick(t, s.w.known)
		r.told = true
	}
}

func (r *recording) rebase(s *shard, t *plan.Turn) {
	if r != nil && r.begun {
		r.to.Rebase(t, s.w.known)
		r.told = true
	}
}

// decided takes down what a shard decided, and begins with its first plan.
func (r *recording) decided(s *shard, before *plan.Plan, now time.Duration) error {
	switch {
	case r == nil:
		return nil
	case r.told:
		r.told = false
		r.to.Decided(before, s.plan, s.err)
	case s.err == nil:
		at := startTime.Add(now)
		if err := r.to.Begin(Beginning{
			Now: at, Decider: s.decider, Keeper: health.NewKeeper(s.w.sc.Interval, s.w.sc.Tick, health.SavedKeeper{}, at),
			Current: s.plan, Topology: s.topology, Operators: s.w.known,
		}); err != nil {
			return err
		}
		r.begun = true
	}
	return r.to.Flush()
}
