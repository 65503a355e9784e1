package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Frame is what an observer sees after each decision.
type Frame struct {
	At   time.Duration
	Plan *plan.Plan
}

// run is the state of a simulation.
type run struct {
	sc       *Scenario
	clients  []*client
	arriving []arrival // reports on their way, by arrival
	decider  *plan.Decider
	plan     *plan.Plan
	pushed   []published
}

type arrival struct {
	due    time.Duration
	window load.StreamWindow
}

// published is when the assignment in force of a source was published, and
// whether it was since acknowledged.
type published struct {
	assignment *isobar.Assignment
	acked      time.Time
}

// Run simulates a scenario and shows each decision to the observer; an error
// of the observer ends the run.
func Run(sc *Scenario, observe func(Frame) error) error {
	r, err := newRun(sc)
	if err != nil {
		return err
	}
	step := sc.Step
	if step <= 0 {
		step = sc.Interval / 10
	}
	nextTick := sc.Tick
	for at := time.Duration(0); at < sc.Length; at += step {
		now := at + step
		for _, c := range r.clients {
			c.deliver(at)
			c.flow(sc, at, step)
			if !c.Silent && (now-c.Phase)%sc.Interval < step && now > c.reported {
				r.send(c, now)
			}
		}
		if now < nextTick {
			continue
		}
		nextTick += sc.Tick
		if err := r.decide(now); err != nil {
			return err
		}
		if err := observe(Frame{At: now, Plan: r.plan}); err != nil {
			return err
		}
	}
	return nil
}

func newRun(sc *Scenario) (*run, error) {
	r := &run{sc: sc, decider: plan.NewDecider(sc.Interval, nil, start)}
	for i := range sc.Clients {
		r.clients = append(r.clients, &client{Client: sc.Clients[i], id: load.StreamID(i + 1)})
	}
	first, err := r.decider.Rebase(r.turn(0))
	if err != nil {
		return nil, err
	}
	r.publish(first, 0)
	return r, nil
}

// send puts a client's report on its way.
func (r *run) send(c *client, now time.Duration) {
	due := now + r.sc.ReportDelay
	r.arriving = append(r.arriving, arrival{due: due, window: load.StreamWindow{
		Stream: c.id, Opened: start,
		Node:    load.Node{ID: fmt.Sprintf("client-%d", c.id), Cluster: "sim", Locality: c.Source, Agent: load.AgentEnvoy},
		Reports: []load.Report{c.report(now, start.Add(due))},
	}})
}

// decide is one turn of the loop.
func (r *run) decide(now time.Duration) error {
	turn := r.turn(now)
	turn.Windows = r.collect(now)
	p, err := r.decider.Tick(turn)
	if err != nil {
		return err
	}
	r.publish(p, now)
	return nil
}

func (r *run) turn(now time.Duration) *plan.Turn {
	t := &plan.Turn{
		Now: start.Add(now), Interval: r.sc.Interval, Watched: r.watched(now),
		Topology: r.sc.Topology, Previous: r.plan, Version: 1,
	}
	if r.plan != nil {
		t.Version = r.plan.Version + 1
	}
	if r.sc.Health != nil {
		t.Health = r.sc.Health(now)
	}
	return t
}

// collect gives every open stream's window, also empty ones, as a server does.
func (r *run) collect(now time.Duration) []load.StreamWindow {
	var out []load.StreamWindow
	for _, c := range r.clients {
		if c.Silent {
			continue
		}
		w := load.StreamWindow{
			Stream: c.id, Opened: start,
			Node: load.Node{ID: fmt.Sprintf("client-%d", c.id), Cluster: "sim", Locality: c.Source, Agent: load.AgentEnvoy},
		}
		for _, a := range r.arriving {
			if a.window.Stream == c.id && a.due <= now {
				w.Reports = append(w.Reports, a.window.Reports...)
			}
		}
		out = append(out, w)
	}
	r.arriving = slices.DeleteFunc(r.arriving, func(a arrival) bool { return a.due <= now })
	return out
}

// watched tells who watches what, and since when they obey.
func (r *run) watched(now time.Duration) []plan.Watched {
	var out []plan.Watched
	for _, c := range r.clients {
		i := slices.IndexFunc(out, func(w plan.Watched) bool { return w.Service == c.Service && w.Source == c.Source })
		if i < 0 {
			i = len(out)
			out = append(out, plan.Watched{Service: c.Service, Source: c.Source})
			if r.plan != nil {
				out[i].Acked = r.acked(r.plan.Assignment(c.Service, c.Source), now)
			}
		}
		out[i].Streams++
	}
	return out
}

func (r *run) acked(a *isobar.Assignment, now time.Duration) time.Time {
	for _, p := range r.pushed {
		if p.assignment == a && !p.acked.After(start.Add(now)) {
			return p.acked
		}
	}
	return time.Time{}
}

// publish pushes what changed.
func (r *run) publish(p *plan.Plan, now time.Duration) {
	for _, c := range r.clients {
		a := p.Assignment(c.Service, c.Source)
		if a == nil || (r.plan != nil && r.plan.Assignment(c.Service, c.Source) == a) {
			continue
		}
		c.pending = append(c.pending, push{due: now + r.sc.PushDelay, shares: sharesOf(a)})
	}
	r.remember(p, now)
	r.plan = p
}

// remember keeps when each assignment in force is acknowledged.
func (r *run) remember(p *plan.Plan, now time.Duration) {
	var keep []published
	for _, s := range p.Services {
		for i := range s.Result.Sources {
			a := s.Result.Sources[i].Assignment
			j := slices.IndexFunc(r.pushed, func(x published) bool { return x.assignment == a })
			if j >= 0 {
				keep = append(keep, r.pushed[j])
			} else {
				keep = append(keep, published{assignment: a, acked: start.Add(now + r.sc.PushDelay)})
			}
		}
	}
	r.pushed = keep
}

func sharesOf(a *isobar.Assignment) []share {
	var out []share
	if len(a.Priorities) == 0 {
		return nil
	}
	for _, lw := range a.Priorities[0] {
		out = append(out, share{locality: lw.Locality, share: a.Share(lw.Locality)})
	}
	return out
}
