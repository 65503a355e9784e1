package control

import (
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Checkers are the designated health checkers, behind the stream layer.
type Checkers interface {
	// Collect returns the new reports of checkers.
	Collect(now time.Time) []health.Report
	// Connected lists the checkers that are connected.
	Connected(now time.Time) []health.Checker
	// Ended returns the checkers that ended soon after a new designation.
	Ended() []health.Ended
	// Designate sends checkers their designations. It does not wait.
	Designate(topology *isobar.Topology, designations []health.Designation)
	// Changed signals that Collect or Connected give something new that should
	// not wait for the next tick. Capacity 1.
	Changed() <-chan struct{}
}

// nobody stands in for a missing health discovery service.
type nobody struct{}

func (nobody) Collect(time.Time) []health.Report                { return nil }
func (nobody) Connected(time.Time) []health.Checker             { return nil }
func (nobody) Ended() []health.Ended                            { return nil }
func (nobody) Designate(*isobar.Topology, []health.Designation) {}
func (nobody) Changed() <-chan struct{}                         { return nil }

// healthWatch collects the reports of checkers, and has its monitor decide. It is owned by the
// loop's goroutine.
type healthWatch struct {
	opts      *Options
	recorders *recorders
	ignored   func(reports int)
	save      func(job)
	unsaved   func() bool                 // something can't be saved now
	shown     *atomic.Pointer[healthView] // where scrapes find it
	inGroup   bool                        // followers designate by plans, too

	monitor    *health.Monitor
	due        time.Time             // when health should be looked at again
	seen       time.Time             // when it was
	clients    *health.ClientReports // the load reports' evidence at the last tick; nil once the monitor has it
	shownAt    time.Time             // when metrics were last updated
	saved      time.Time
	dirty      bool          // verdicts or drains changed since
	designated time.Duration // the report interval that checkers were told
}

// begin has the monitor continue from the state of an earlier process, or of another one.
func (h *healthWatch) begin(from *health.SavedMonitor, now time.Time) {
	t := h.opts.timing()
	h.monitor = health.NewMonitor(t.Interval, t.Tick, *from, now)
}

// observe collects the reports of checkers and reports whether to publish now: clients or, in a
// group, checkers of followers should know of a change.
func (h *healthWatch) observe(now time.Time) (publish bool) {
	t := h.opts.timing()
	h.monitor.Retime(t.Interval, t.Tick)
	topology, operators := h.opts.Topology.State()
	event := health.Event{
		Now: now, Topology: topology, Operators: operators,
		Reports: h.opts.Checkers.Collect(now), Connected: h.opts.Checkers.Connected(now), Ended: h.opts.Checkers.Ended(),
		Clients: h.clients,
	}
	h.clients = nil
	h.recorders.each(func(r Recorder) { r.Observe(&event, t.Interval, t.Tick) })
	r := h.monitor.Observe(event)
	if r.Designate || t.Interval != h.designated {
		h.opts.Checkers.Designate(r.Topology, h.monitor.Placement().Designations)
		h.designated = t.Interval
	}
	h.ignored(r.Ignored)
	for _, service := range r.Suspected {
		h.opts.Log.Warn("checkers exit when they begin to probe a service; assigning it to one checker at a time", "service", service)
	}
	h.due = r.Next
	h.dirty = h.dirty || r.Publish || r.Barred
	if age := now.Sub(h.saved); age >= saveEvery || ((h.dirty || h.unsaved()) && age >= saveHealthEvery) {
		saved := h.monitor.Save()
		h.save(job{health: &saved})
		h.saved, h.dirty = now, false
	}
	if now.Sub(h.shownAt) >= showHealthEvery {
		h.show()
		h.shownAt = now
	}
	h.seen = time.Now() // the others get the time between two looks, not the duration of one
	return r.Publish || r.Designate && h.inGroup
}

// changed has the loop collect the reports of checkers: now, or soon if it did so just before. In
// an incident hundreds of them change within a second, and each look goes over all services.
func (h *healthWatch) changed(now time.Time) (look bool) {
	next := h.seen.Add(healthEvery)
	if !now.Before(next) {
		return true
	}
	if next.Before(h.due) {
		h.due = next
	}
	return false
}

const (
	// healthEvery is how long changes that checkers report wait for each other.
	healthEvery = 50 * time.Millisecond
	// showHealthEvery bounds how often between two ticks the values of metrics are counted again:
	// all endpoints are counted.
	showHealthEvery = time.Second
)

// saveHealthEvery bounds how often the votes of checkers are written: all of them are, and
// flapping endpoints must not keep a disk busy. Checkers report again the votes that a killed
// process loses by it.
const saveHealthEvery = 5 * time.Second

// feedReports passes the evidence of load reports to health: if clients' requests fail
// there, too, a mass failure is not the fault of the checkers; if they succeed, health
// holds the mass failure.
func (h *healthWatch) feedReports(p *plan.Plan) {
	h.clients = &health.ClientReports{}
	for _, s := range p.Services {
		if len(s.Spec.HealthChecks) > 0 {
			for _, at := range s.Serving() {
				h.clients.Served = append(h.clients.Served, health.Served{Service: s.Spec.Name, Locality: at})
			}
			for _, at := range s.FailingIn() {
				h.clients.Failed = append(h.clients.Failed, health.Served{Service: s.Spec.Name, Locality: at})
			}
		}
		if len(s.Deviations.Unreachable) > 0 {
			h.release(s.Spec.Name, s.Deviations.Unreachable...)
		}
	}
}

// release believes a mass flip of a service, in some localities or in all.
func (h *healthWatch) release(service string, localities ...isobar.Locality) bool {
	h.recorders.each(func(r Recorder) { r.Release(service, localities) })
	return h.monitor.VerdictTable().Release(service, localities...)
}

// ages tells the planner how old verdicts are.
func (h *healthWatch) ages() (out []plan.InputAge) {
	for _, a := range h.monitor.VerdictTable().Ages() {
		if a.Checked {
			out = append(out, plan.InputAge{Service: a.Service, Kind: plan.InputHealth, Age: load.Age{Some: a.Some, Most: a.Most}})
		}
	}
	return out
}

// show stores the values of metrics for scrapes.
func (h *healthWatch) show() {
	table := h.monitor.VerdictTable()
	view := healthView{summaries: map[string]health.Summary{}, alarms: len(table.Alarms()), shortfalls: len(h.monitor.Placement().Shortfalls),
		silent: len(h.monitor.Silent()), suspects: h.monitor.Suspected(),
	}
	for _, name := range table.Services() {
		view.summaries[name] = table.Summary(name)
	}
	h.shown.Store(&view)
}

// healthView is a snapshot for metrics. Immutable.
type healthView struct {
	summaries          map[string]health.Summary
	alarms, shortfalls int
	silent             int // checkers that are connected and say nothing
	suspects           int // services that checkers end on
}
