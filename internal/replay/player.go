package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replay/deep"
)

// Player has pure code decide again the inputs of a trace.
type Player struct {
	in   *Reader
	sums summer

	decider   *plan.Decider
	monitor   *health.Monitor
	current   *plan.Plan
	topology  *isobar.Topology
	operators health.Table
	segments  int
	first     bool // nothing of the present one was decided
	copy      *copying
}

// NewPlayer plays what the reader reads.
func NewPlayer(in *Reader) *Player { return &Player{in: in} }

// Step is a decision that was taken again.
type Step struct {
	How     string    // HowTick, HowReapply or HowRollback
	Now     time.Time // when it was taken
	Turn    *plan.Turn
	Before  *plan.Plan // in force until then
	Plan    *plan.Plan // the decision; nil where it failed
	Decided *Decided   // what was recorded of it; nil where the trace ends here
	// Difference tells the first thing in which Plan is not what was recorded;
	// empty when it is the same.
	Difference string
	// First says that a recording begins with it, so that Before was not played.
	First bool
}

// About tells who recorded what is played now.
func (p *Player) About() About { return p.in.About() }

// Segments counts the recordings in the trace so far.
func (p *Player) Segments() int { return p.segments }

// Next plays until the next decision. It returns io.EOF at the end of the trace,
// and an error that wraps ErrCut where the trace is cut: then all that is whole
// was played.
func (p *Player) Next() (s *Step, err error) {
	defer recoverPanic(&err)
	for {
		e, err := p.in.next()
		if err != nil {
			return nil, err
		}
		if err := p.copy.take(p, e); err != nil {
			return nil, err
		}
		switch e := e.(type) {
		case *Start:
			p.start(e)
		case *isobar.Topology:
			p.topology = e
		case *operators:
			p.operators = e.Table
		case *observed:
			if err := p.observe(e); err != nil {
				return nil, err
			}
		case *released:
			p.monitor.VerdictTable().Release(e.Service, e.Localities...)
		case *turned:
			if s, err := p.decide(e); s != nil || err != nil {
				return s, err
			}
		case *Decided:
			return nil, fmt.Errorf("%w: a decision without its inputs", ErrDamaged)
		case *End:
		}
	}
}

// start takes over where a recording begins.
func (p *Player) start(s *Start) {
	p.decider, p.monitor, p.current = s.Decider, s.Monitor, s.Current
	p.topology, p.operators, p.sums = s.Topology, s.Operators, summer{}
	p.segments++
	p.first = true
}

// observe tells the monitor of an event.
func (p *Player) observe(o *observed) (err error) {
	defer recoverPanic(&err)
	p.monitor.Retime(o.Report, o.Tick)
	e := o.Event
	e.Topology, e.Operators = p.topology, p.operators
	p.monitor.Observe(e)
	return nil
}

// recoverPanic turns a panic into an error. A forged trace or pure code may cause one.
func recoverPanic(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("internal error: %v", r)
	}
}

// decide takes a decision again and holds it against what follows; nil where
// the recording was cut before that, and another one follows.
func (p *Player) decide(t *turned) (*Step, error) {
	t.Turn.Topology, t.Turn.Health, t.Turn.Previous = p.topology, p.monitor.Table(p.operators), p.current
	s := &Step{How: t.How, Now: t.Turn.Now, Turn: &t.Turn, Before: p.current}
	var failed error
	if err := p.copy.turn(p, t); err != nil {
		return nil, err
	}
	if s.Plan, failed = p.take(t); failed == nil {
		p.current = s.Plan
	}
	if err := p.copy.decided(s, failed); err != nil {
		return nil, err
	}
	e, err := p.in.next()
	switch {
	case errors.Is(err, ErrCut) || errors.Is(err, io.EOF):
		return nil, err // nobody knows what was decided
	case err != nil:
		return nil, err
	}
	switch e := e.(type) {
	case *Start:
		if err := p.copy.take(p, e); err != nil {
			return nil, err
		}
		p.start(e)
		return nil, nil //nolint:nilnil // as it says
	case *Decided:
		s.Decided, s.First, p.first = e, p.first, false
		return s, p.compare(s, failed)
	case *End:
		return nil, fmt.Errorf("%w: it ends before a decision", ErrCut)
	default:
		return nil, fmt.Errorf("%w: a turn without its decision", ErrDamaged)
	}
}

func (p *Player) take(t *turned) (next *plan.Plan, err error) {
	defer recoverPanic(&err)
	switch t.How {
	case HowTick:
		return p.decider.Tick(&t.Turn)
	case HowReapply:
		return p.decider.Reapply(&t.Turn)
	case HowRollback:
		if t.History == nil {
			return nil, errors.New("there is no earlier plan to return to")
		}
		return p.decider.Rollback(&t.Turn, t.History, t.Version, t.Service)
	default:
		return nil, fmt.Errorf("unknown kind of decision %q", t.How)
	}
}

// compare tells where a decision is not the one that was recorded.
func (p *Player) compare(s *Step, failed error) error {
	d := s.Decided
	switch {
	case failed != nil && d.Failed == "":
		s.Difference = "planning failed: " + failed.Error()
		return nil
	case failed == nil && d.Failed != "":
		s.Difference = "planning failed then: " + d.Failed
		return nil
	case d.Failed != "":
		return nil
	}
	sum, services, err := p.sums.sum(s.Plan)
	if err != nil {
		return err
	}
	if sum != d.Sum {
		s.Difference = difference(s, services)
	}
	return nil
}

// difference names the first thing that differs.
func difference(s *Step, services [][8]byte) string {
	d := s.Decided
	if s.Plan.Version != d.Version {
		return fmt.Sprintf("version %d, recorded was %d", s.Plan.Version, d.Version)
	}
	if len(services) != len(d.Services) {
		return fmt.Sprintf("%d services, recorded were %d", len(services), len(d.Services))
	}
	for i, sum := range services {
		if bytes.Equal(sum[:], d.Services[i][:]) {
			continue
		}
		name := s.Plan.Services[i].Spec.Name
		change, _ := plan.Changed(s.Before, s.Plan, plan.Origin{})
		return fmt.Sprintf("service %q: %s", name, shareDifference(changeOf(&change, name), changeOf(d.Change, name)))
	}
	return "totals over all services"
}

func changeOf(c *plan.Change, service string) *plan.ServiceChange {
	if c == nil {
		return nil
	}
	i := slices.IndexFunc(c.Services, func(s plan.ServiceChange) bool { return s.Service == service })
	if i < 0 {
		return nil
	}
	return &c.Services[i]
}

// shareDifference tells where two changes of the same shares end differently.
func shareDifference(is, was *plan.ServiceChange) string {
	switch {
	case is == nil && was == nil:
		return "the same shares, but another explanation"
	case is == nil:
		return "its shares stay, recorded was a change: " + was.Reason
	case was == nil:
		return "its shares change, recorded was none: " + is.Reason
	case is.After != was.After:
		return fmt.Sprintf("drop %v, recorded was %v", is.After, was.After)
	case !slices.Equal(is.Sites, was.Sites):
		return "other localities than recorded"
	}
	for i := range is.Sources {
		if i >= len(was.Sources) || is.Sources[i].Source != was.Sources[i].Source {
			return fmt.Sprintf("the shares of source %s change, recorded was no change of them", is.Sources[i].Source)
		}
		a, b := is.Sources[i].After, was.Sources[i].After
		for l := range min(len(a), len(b), len(is.Sites)) {
			if a[l] != b[l] {
				return fmt.Sprintf("source %s to %s: share %.2f%%, recorded was %.2f%%",
					is.Sources[i].Source, is.Sites[l], float64(a[l])/100, float64(b[l])/100)
			}
		}
	}
	return "the same shares, but another explanation"
}

// WhatIf decides the inputs of a trace under another configuration: the same
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

// Next decides a step that was played, and returns the plan before and the one
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

// summer makes digests of plans that follow each other: services that stay as
// they are cost nothing.
type summer struct {
	digester deep.Digester
	last     map[*plan.Service]deep.Sum
}

// sum tells the digest of a plan without its topology, which is input, and of
// each of its services.
func (s *summer) sum(p *plan.Plan) (deep.Sum, [][8]byte, error) {
	defer s.digester.Forget()
	sums := make(map[*plan.Service]deep.Sum, len(p.Services))
	services := make([][8]byte, len(p.Services))
	whole := struct {
		Head     plan.Plan
		Services []deep.Sum
	}{*p, make([]deep.Sum, len(p.Services))}
	whole.Head.Topology, whole.Head.Services = nil, nil
	for i, service := range p.Services {
		sum, known := s.last[service]
		if !known {
			part := struct {
				Name    string
				Service plan.Service
			}{service.Spec.Name, *service}
			part.Service.Spec = nil
			var err error
			if sum, err = s.digester.Sum(&part); err != nil {
				return deep.Sum{}, nil, err
			}
		}
		sums[service], whole.Services[i] = sum, sum
		copy(services[i][:], sum[:])
	}
	s.last = sums
	sum, err := s.digester.Sum(&whole)
	return sum, services, err
}
