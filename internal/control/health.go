package control

import (
	"context"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// Checkers are the designated health checkers, behind the stream layer.
type Checkers interface {
	// Collect hands over what checkers newly reported.
	Collect(now time.Time) []health.Report
	// Connected lists the checkers that are connected.
	Connected(now time.Time) []health.Checker
	// Ended hands over which checkers ended soon after they were told what to probe.
	Ended() []health.Ended
	// Designate tells checkers what to probe. It does not wait.
	Designate(topology *isobar.Topology, designations []health.Designation)
	// Changed signals that Collect or Connected give something new that should
	// not wait for the next tick. Capacity 1.
	Changed() <-chan struct{}
}

// nobody stands in where there is no health discovery.
type nobody struct{}

func (nobody) Collect(time.Time) []health.Report                { return nil }
func (nobody) Connected(time.Time) []health.Checker             { return nil }
func (nobody) Ended() []health.Ended                            { return nil }
func (nobody) Designate(*isobar.Topology, []health.Designation) {}
func (nobody) Changed() <-chan struct{}                         { return nil }

// startHealth brings back what an earlier process knew.
func (l *Loop) startHealth(now time.Time) error {
	saved, err := l.opts.State.LoadHealth()
	if err != nil {
		return err
	}
	if saved == nil {
		saved = &health.SavedKeeper{}
	}
	t := l.timing()
	l.keeper = health.NewKeeper(t.Interval, t.Tick, *saved, now)
	l.observeHealth(now)
	return nil
}

// observeHealth takes in what checkers say and tells whether clients should be
// told of a change now.
func (l *Loop) observeHealth(now time.Time) (publish bool) {
	t := l.timing()
	l.keeper.Retime(t.Interval, t.Tick)
	topology, operators := l.opts.Topology.State()
	event := health.Event{
		Now: now, Topology: topology, Operators: operators,
		Reports: l.opts.Checkers.Collect(now), Connected: l.opts.Checkers.Connected(now), Ended: l.opts.Checkers.Ended(),
		Clients: l.clients,
	}
	l.clients = nil
	l.tell(func(r Recorder) { r.Observe(&event, t.Interval, t.Tick) })
	r := l.keeper.Observe(event)
	if r.Designate || t.Interval != l.designated {
		l.opts.Checkers.Designate(r.Topology, l.keeper.Placement().Designations)
		l.designated = t.Interval
	}
	l.metrics.ignored.Add(float64(r.Ignored))
	for _, service := range r.Suspected {
		l.opts.Log.Warn("checkers end when they are told to probe a service: it is given to one at a time", "service", service)
	}
	l.healthDue = r.Next
	l.healthDirty = l.healthDirty || r.Publish || r.Barred
	if age := now.Sub(l.healthSaved); age >= saveEvery || (l.healthDirty && age >= saveHealthEvery) {
		saved := l.keeper.Save()
		l.saver.save(job{health: &saved})
		l.healthSaved, l.healthDirty = now, false
	}
	if now.Sub(l.healthShown) >= showHealthEvery {
		l.showHealth()
		l.healthShown = now
	}
	l.healthSeen = time.Now() // the time between two looks, not of one, is what others have
	return r.Publish
}

// checkersChanged has the loop look at what checkers say: now, or soon where it
// looked just before. In an incident hundreds of them say something else than before
// within a second, and each look goes over all services.
func (l *Loop) checkersChanged(now time.Time) (look bool) {
	next := l.healthSeen.Add(healthEvery)
	if !now.Before(next) {
		return true
	}
	if next.Before(l.healthDue) {
		l.healthDue = next
	}
	return false
}

const (
	// healthEvery is how long changes that checkers report wait for each other.
	healthEvery = 50 * time.Millisecond
	// showHealthEvery bounds how often between two ticks what metrics show is
	// counted anew: all endpoints are.
	showHealthEvery = time.Second
)

// saveHealthEvery bounds how often what checkers found is written: all of it
// is, and flapping endpoints must not keep a disk busy. What a killed process
// loses by it the checkers tell anew.
const saveHealthEvery = 5 * time.Second

// believe feeds what load reports prove back into health: a mass flip that
// clients confirm by failing to land requests there is no fault of the
// checkers, and one where their requests succeed is not believed.
func (l *Loop) believe() {
	l.clients = &health.ClientReports{}
	for _, s := range l.Current().Services {
		if len(s.Spec.HealthChecks) > 0 {
			for _, at := range s.Serving() {
				l.clients.Served = append(l.clients.Served, health.Served{Service: s.Spec.Name, Locality: at})
			}
		}
		if len(s.Findings.Unreachable) > 0 {
			l.release(s.Spec.Name, s.Findings.Unreachable...)
		}
	}
}

// Health tells what is known of a service's health, or of all services that
// have health checks for an empty name. The loop answers between two turns.
func (l *Loop) Health(ctx context.Context, service string) ([]health.ServiceReport, error) {
	return ask(ctx, l, func() []health.ServiceReport { return l.keeper.Report(service) })
}

// HealthOverview is Health of all services, without their endpoints: it takes far
// less of the loop's time.
func (l *Loop) HealthOverview(ctx context.Context) ([]health.ServiceReport, error) {
	return ask(ctx, l, func() []health.ServiceReport { return l.keeper.Overview() })
}

// Release believes a held mass flip of a service, as an operator says; false if
// nothing is held.
func (l *Loop) Release(ctx context.Context, service string) (bool, error) {
	return ask(ctx, l, func() bool {
		released := l.release(service)
		if released && l.observeHealth(time.Now()) {
			l.rebase()
		}
		return released
	})
}

// showHealth leaves what metrics show where scrapes find it.
func (l *Loop) showHealth() {
	book := l.keeper.VerdictTable()
	view := healthView{summaries: map[string]health.Summary{}, alarms: len(book.Alarms()), shortfalls: len(l.keeper.Placement().Shortfalls),
		silent: len(l.keeper.Silent()), suspects: l.keeper.Suspected(),
	}
	for _, name := range book.Services() {
		view.summaries[name] = book.Summary(name)
	}
	l.healthView.Store(&view)
}

// healthView is a snapshot for metrics. Immutable.
type healthView struct {
	summaries          map[string]health.Summary
	alarms, shortfalls int
	silent             int // checkers that are connected and say nothing
	suspects           int // services that checkers end on
}
