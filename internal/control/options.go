package control

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Defaults of Options.
const (
	DefaultTick     = 5 * time.Second
	DefaultInterval = 5 * time.Second
	// DefaultHoldOff is the least time between two plans that only carry a
	// topology or health change: the first is published at once, a burst
	// coalesces.
	DefaultHoldOff = 100 * time.Millisecond
)

// Topology is where services and the operator's health marks come from.
type Topology interface {
	// State returns the present topology and health. Both are immutable.
	State() (*isobar.Topology, health.Table)
	// Changed signals that State gives something new. Capacity 1: several
	// changes may come as one signal.
	Changed() <-chan struct{}
}

// Reports is where load reports come from.
type Reports interface {
	// Collect returns the reports of each stream since the last call. The windows are valid until
	// Release or the next call.
	Collect(now time.Time) []load.StreamWindow
	// Release says that the windows are no longer needed: they may take much memory.
	Release()
	// Refresh asks clients for reports on the services of the present topology.
	Refresh()
}

// Clients is the stream layer: it gets each plan's views, and returns the subscriptions in a list that the caller owns.
type Clients interface {
	Publish(set *view.Set)
	Subscriptions() []load.Subscription
}

// State keeps the plan across restarts.
type State interface {
	// LoadPlan returns the last good plan; nil without error when there is none.
	LoadPlan() (*plan.Saved, error)
	// SavePlan returns when the plan is durable.
	SavePlan(saved plan.Saved) error
	// LoadHealth and SaveHealth do the same for the state of health.
	LoadHealth() (*health.SavedMonitor, error)
	SaveHealth(saved health.SavedMonitor) error
	// LoadHistory and SavePage do the same for changes of plans: a page at a time, of which the
	// last plan.MaxPages are kept.
	LoadHistory() ([]plan.Page, error)
	SavePage(page plan.Page) error
}

// Timing holds the settings that a reload of the configuration may change.
type Timing struct {
	Tick        time.Duration    // between decisions; 0 = 5 s
	Interval    time.Duration    // at which clients report; 0 = 5 s
	Degradation plan.Degradation // the effects of missing inputs; its zero values are the defaults
}

// Boot is the time since the machine was booted, which changes of the clock do not affect.
type Boot struct {
	ID string // differs after each boot; "" = not known
	Up time.Duration
}

// Options of a Loop. Topology, Reports, Clients, State and Views are required.
type Options struct {
	Timing  func() Timing // asked at every tick; nil = the defaults
	HoldOff time.Duration // between reapplied plans; default 100 ms
	// SurveyEvery is asked how often to play the loss of each zone; nil, or 0 =
	// never.
	SurveyEvery func() time.Duration

	Topology Topology
	// Outdated lists how old the topology of services is, where it is not that of
	// now; nil = it always is.
	Outdated func(now time.Time) []plan.InputAge
	// Ordered tells what operators ordered of endpoints after a revision of the topology, up to
	// another: an origin without a trigger if nothing. nil = they never do.
	Ordered  func(after, upTo uint64) plan.Origin
	Checkers Checkers // nil = no health discovery
	Reports  Reports
	// LoadMemory is how much memory what clients report may use after a decision, in bytes;
	// 0 = load.DefaultMemory.
	LoadMemory int
	Clients    Clients
	State      State
	// Group is the group of replicas that the server belongs to; nil = it is alone.
	Group Group
	// Views makes the views of a plan; previous is nil for the first.
	Views func(p *plan.Plan, previous *view.Set) *view.Set

	// Boot tells since when the machine is up; nil = it is not known.
	Boot func() Boot

	// Changed is called with every change of the plan, in order, by the loop: it must return at
	// once. nil = it is not called.
	Changed func(c plan.Change)

	// Silent lists the clients of a service that report no load, for metrics; nil = none.
	Silent func(service string) []plan.SilentClients
	// ExceptionsOnly reports whether only localities that need attention have metrics; nil = all have.
	ExceptionsOnly func() bool

	Log        *slog.Logger
	Registerer prometheus.Registerer // nil = no metrics
}

// complete checks the required options and sets defaults for the others.
func (o *Options) complete() error {
	if o.Topology == nil || o.Reports == nil || o.Clients == nil || o.State == nil || o.Views == nil {
		return errors.New("control: Topology, Reports, Clients, State and Views are required")
	}
	if o.Checkers == nil {
		o.Checkers = nobody{}
	}
	if o.Timing == nil {
		o.Timing = func() Timing { return Timing{} }
	}
	o.HoldOff = orDefault(o.HoldOff, DefaultHoldOff)
	if o.Boot == nil {
		o.Boot = func() Boot { return Boot{} }
	}
	if o.Changed == nil {
		o.Changed = func(plan.Change) {}
	}
	if o.Silent == nil {
		o.Silent = func(string) []plan.SilentClients { return nil }
	}
	if o.ExceptionsOnly == nil {
		o.ExceptionsOnly = func() bool { return false }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// timing returns the settings in force.
func (o *Options) timing() Timing {
	t := o.Timing()
	return Timing{Tick: orDefault(t.Tick, DefaultTick), Interval: orDefault(t.Interval, DefaultInterval), Degradation: t.Degradation}
}

func orDefault(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}
