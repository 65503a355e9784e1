package replay

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// WhatIf decides what a trace tells of under another configuration: the same
// demand, health and orders, but its own plans. What clients would have done
// under them, a trace can't know.
type WhatIf struct {
	change  func(*isobar.Topology) *isobar.Topology
	current *plan.Plan

	from *isobar.Topology
	to   *isobar.Topology // changed from it
}

// NewWhatIf makes one for a change of the topology, which leaves the one that it
// is given as it is.
func NewWhatIf(change func(*isobar.Topology) *isobar.Topology) *WhatIf {
	return &WhatIf{change: change}
}

// Next decides a step that was played, and gives the plan before and the one
// that follows; next is nil where nothing was decided. It begins with the shares
// that were in force when the recording began. Where an operator returned to an
// earlier version it stays with its own weights and is paused as the recording
// is.
func (w *WhatIf) Next(s *Step) (before, next *plan.Plan, err error) {
	defer recoverPanic(&err)
	if s.First || w.current == nil {
		w.current = s.Before
	}
	if s.Plan == nil {
		return w.current, nil, nil
	}
	if s.Turn.Topology != w.from {
		w.from, w.to = s.Turn.Topology, w.change(s.Turn.Topology)
	}
	turn := *s.Turn
	turn.Topology, turn.Previous, turn.Version = w.to, w.current, w.current.Version+1
	if next, err = turn.Replan(s.Plan); err != nil {
		return nil, nil, err
	}
	before, w.current = w.current, next
	return before, next, nil
}
