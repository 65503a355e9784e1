package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
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
	table    *load.Table
	evidence *load.Evidence
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
	settings := load.Settings{Interval: sc.Interval}
	r := &run{sc: sc, table: load.NewTable(settings, nil, start), evidence: load.NewEvidence(settings)}
	for i := range sc.Clients {
		r.clients = append(r.clients, &client{Client: sc.Clients[i], id: load.StreamID(i + 1)})
	}
	return r, r.next(plan.Input{Trigger: assign.Rebase}, 0)
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
	r.table.Merge(r.collect(now))
	at := start.Add(now)
	snapshot := r.table.Snapshot(at)
	in := plan.Input{Trigger: assign.Tick, Load: snapshot}
	for i := range snapshot.Services {
		name := snapshot.Services[i].Name
		if before, ok := r.plan.Service(name); ok {
			capacity, sites := before.Known()
			r.table.SetCapacity(name, capacity)
			r.evidence.SetSites(name, sites)
			in.Findings = append(in.Findings, r.evidence.Observe(at, &snapshot.Services[i], r.planned(before, now)))
		}
	}
	return r.next(in, now)
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

// planned is what the evidence compares landings with.
func (r *run) planned(s *plan.Service, now time.Duration) []load.PlannedSource {
	var out []load.PlannedSource
	for i := range s.Result.Sources {
		src := &s.Result.Sources[i]
		p := load.PlannedSource{Source: src.Source, Acked: r.acked(src.Assignment, now)}
		for l, v := range src.Shares {
			if v > 0 {
				p.Shares = append(p.Shares, load.PlannedShare{Locality: s.Sites[l].Group.Locality, Share: v})
			}
		}
		for _, c := range r.clients {
			if c.Service == s.Spec.Name && c.Source == src.Source {
				p.Streams++
			}
		}
		out = append(out, p)
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

// next makes a plan and pushes what changed.
func (r *run) next(in plan.Input, now time.Duration) error {
	in.Now, in.Topology, in.Previous, in.Version = start.Add(now), r.sc.Topology, r.plan, 1
	if r.plan != nil {
		in.Version = r.plan.Version + 1
	}
	if r.sc.Health != nil {
		in.Health = r.sc.Health(now)
	} else {
		in.Health = health.Table{}
	}
	in.Subscribed = r.subscribed()
	p, err := plan.Next(in)
	if err != nil {
		return err
	}
	for _, c := range r.clients {
		a := p.Assignment(c.Service, c.Source)
		if a == nil || (r.plan != nil && r.plan.Assignment(c.Service, c.Source) == a) {
			continue
		}
		c.pending = append(c.pending, push{due: now + r.sc.PushDelay, shares: sharesOf(a)})
	}
	r.remember(p, now)
	r.plan = p
	return nil
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

func (r *run) subscribed() []plan.Subscription {
	var out []plan.Subscription
	for _, s := range r.sc.Topology.Services {
		var sources []isobar.Locality
		for _, c := range r.clients {
			if c.Service == s.Name {
				sources = append(sources, c.Source)
			}
		}
		slices.SortFunc(sources, isobar.Locality.Compare)
		for _, l := range slices.Compact(sources) {
			out = append(out, plan.Subscription{Service: s.Name, Source: l})
		}
	}
	return out
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
