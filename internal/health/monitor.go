package health

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// Monitor combines the parts of health and their reactions: the placement of endpoints on
// checkers, the verdicts from votes, the drained localities, and when a change may be published.
// It is owned by one goroutine.
type Monitor struct {
	hold      time.Duration
	roster    *Roster
	table     *VerdictTable
	drains    *Drains
	pushes    *Coalescer
	checked   *isobar.Topology // the last in which a service with health checks changed
	placement Placement
	silent    bool // checkers are, or no longer: their work has to be placed again
	suspects  suspects
	published *Verdicts // the health that clients have; it may lag behind the table
}

// SavedMonitor is the part of a Monitor that survives a restart.
type SavedMonitor struct {
	Placement Placement    `json:"placement"`
	Checkers  []Checker    `json:"checkers,omitempty"`
	Verdicts  Saved        `json:"book"` // as states of earlier versions call it
	Drains    []SavedDrain `json:"drains,omitempty"`
	// Suspects are services that checkers ended on: a restart must not give them
	// to all checkers again.
	Suspects []SavedSuspect `json:"suspects,omitempty"`
}

// Shift moves all times of a state that was just decoded: those of another machine, whose clock may
// be wrong, keep their distance to each other.
func (s *SavedMonitor) Shift(by time.Duration) {
	shift := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
	for i := range s.Checkers {
		shift(&s.Checkers[i].Since)
		shift(&s.Checkers[i].LastSeen)
	}
	for i := range s.Verdicts.Endpoints {
		e := &s.Verdicts.Endpoints[i]
		for _, t := range []*time.Time{&e.Since, &e.Confirmed, &e.Waiting} {
			shift(t)
		}
		for j := range e.Votes {
			shift(&e.Votes[j].Since)
			shift(&e.Votes[j].Heard)
		}
	}
	for i := range s.Drains {
		shift(&s.Drains[i].Since)
	}
	for i := range s.Suspects {
		shift(&s.Suspects[i].Last)
	}
}

// NewMonitor makes a monitor. report is the interval at which checkers report,
// tick the time between decisions of the planner; saved is the zero value where
// there was no earlier process.
func NewMonitor(report, tick time.Duration, saved SavedMonitor, now time.Time) *Monitor {
	return &Monitor{
		hold:      report,
		roster:    NewRoster(report, saved.Checkers, now),
		table:     NewVerdictTable(Settings{ReportInterval: report}, saved.Verdicts, now),
		drains:    RestoreDrains(saved.Drains),
		pushes:    NewCoalescer(tick),
		placement: saved.Placement,
		suspects:  restoreSuspects(saved.Suspects),
	}
}

// Retime takes over changed intervals; see [NewMonitor].
func (k *Monitor) Retime(report, tick time.Duration) {
	if report > 0 {
		k.hold, k.roster.hold, k.table.interval = report, report, report
	}
	if tick > 0 {
		k.pushes.tick = tick
	}
}

// Event holds the changes since the last one.
type Event struct {
	Now       time.Time
	Topology  *isobar.Topology
	Operators Table     // the marks of operators
	Reports   []Report  // in the order of arrival
	Connected []Checker // now
	Ended     []Ended   // checkers that did
	// Clients holds the health that load reports show; nil = as before.
	Clients *ClientReports
}

// Reaction says what an event requires of the caller.
type Reaction struct {
	Table     Table // for the planner: operators over verdicts, and drains
	Publish   bool  // the health for clients has changed: reapply now
	Designate bool  // designations have changed: send them to checkers, by Topology
	Topology  *isobar.Topology
	Ignored   int // reports that do not count
	// Suspected lists the services that checkers ended on often enough to be
	// suspected from now on, sorted.
	Suspected []string
	// Barred says that the suspected services changed: save them soon.
	Barred bool
	Next   time.Time
}

// Observe takes an event. It should be called when reports or checkers came,
// when the topology changed, when Reaction.Next has come, and at least once per
// report interval.
func (k *Monitor) Observe(e Event) Reaction {
	first := k.checked == nil
	moved := first || !sameChecked(k.checked, e.Topology)
	if moved {
		k.checked = onlyChecked(e.Topology)
	}
	r := Reaction{Designate: moved, Topology: k.checked}
	barred, suspected := k.suspects.observe(&suspicion{Event: &e, topology: k.checked, voters: k.table.voters})
	r.Suspected, r.Barred = suspected, barred
	if k.roster.Observe(e.Now, e.Connected) || moved || k.silent || barred {
		checkers := k.roster.Checkers()
		next := Place(PlacementInput{Topology: k.checked, Checkers: checkers, Previous: k.placement, Bars: k.suspects.bars(checkers)})
		r.Designate = r.Designate || !next.Equal(&k.placement)
		k.placement = next
	}
	out := k.table.Observe(Observation{
		Now: e.Now, Reports: e.Reports, Checkers: k.roster.Checkers(), Placement: k.placement, Topology: k.checked, Operators: e.Operators,
		Clients: e.Clients,
	})
	r.Ignored = out.Ignored
	k.silent = k.roster.Listen(e.Now, func(id string) bool { return len(k.placement.Of(id)) > 0 }, k.table.Voted)
	due := k.pushes.Ready(e.Now)
	for _, service := range out.Changed {
		if !first && k.pushes.Due(e.Now, service) {
			due = append(due, service)
		}
	}
	if first {
		k.published = k.table.Verdicts() // also those that an earlier process found
	} else {
		// Changes by the topology or operators are pushed at once, and are no flapping.
		k.published = k.published.Adopt(k.table.Verdicts(), append(out.Moved, due...)...)
	}
	drained := k.drains.Observe(e.Now, e.Topology, e.Operators.WithVerdicts(k.published))
	r.Publish = first || len(due) > 0 || len(drained) > 0
	r.Table = k.Table(e.Operators)
	r.Next = k.next(e.Now)
	return r
}

// Table returns the health for the planner, with the operators' present marks.
func (k *Monitor) Table(operators Table) Table {
	return operators.WithVerdicts(k.published).WithDrained(k.drains.Current())
}

// next is when Observe should be called again, whatever happens until then.
func (k *Monitor) next(now time.Time) time.Time {
	if k.silent {
		return now
	}
	at := now.Add(k.hold)
	for _, next := range []func() (time.Time, bool){k.pushes.Next, k.roster.Next} {
		if t, ok := next(); ok && t.Before(at) {
			at = t
		}
	}
	return at
}

// Placement returns the designations of checkers.
func (k *Monitor) Placement() Placement { return k.placement }

// Silent lists the connected checkers that do not report on their designated endpoints, so that
// others probe these; sorted by id.
func (k *Monitor) Silent() []Checker { return k.roster.Silent() }

// Suspected counts the services that are suspected of ending their checkers.
func (k *Monitor) Suspected() int { return len(k.suspects.list) }

// VerdictTable returns the votes and verdicts behind it all, for reading and Release.
func (k *Monitor) VerdictTable() *VerdictTable { return k.table }

// Drained lists the localities of a service that are drained.
func (k *Monitor) Drained(service string) []isobar.Locality { return k.drains.Current().Of(service) }

// Save extracts the state that survives a restart.
func (k *Monitor) Save() SavedMonitor {
	return SavedMonitor{
		Placement: k.placement, Checkers: slices.Clone(k.roster.Checkers()),
		Verdicts: k.table.Save(), Drains: k.drains.Save(), Suspects: k.suspects.save(),
	}
}

// sameChecked reports whether two topologies have the same services with health checks, by the
// identity of their parts, which are immutable: a change of any other service must not cost the
// work of all checked services.
func sameChecked(a, b *isobar.Topology) bool {
	if a == b {
		return true
	}
	if a.Network != b.Network {
		return false
	}
	i, j := 0, 0
	for {
		i, j = nextChecked(a, i), nextChecked(b, j)
		switch {
		case i == len(a.Services) || j == len(b.Services):
			return i == len(a.Services) && j == len(b.Services)
		case !sameService(&a.Services[i], &b.Services[j]):
			return false
		}
		i, j = i+1, j+1
	}
}

// onlyChecked leaves out services without health checks: they may change for long while the
// others stay, and their old endpoints would stay in memory.
func onlyChecked(t *isobar.Topology) *isobar.Topology {
	out := *t
	out.Services = nil
	for i := nextChecked(t, 0); i < len(t.Services); i = nextChecked(t, i+1) {
		out.Services = append(out.Services, t.Services[i])
	}
	return &out
}

func nextChecked(t *isobar.Topology, from int) int {
	for from < len(t.Services) && len(t.Services[from].HealthChecks) == 0 {
		from++
	}
	return from
}

func sameService(a, b *isobar.Service) bool {
	return a.Name == b.Name && a.Checkers == b.Checkers && SameProbes(a, b)
}

// SameProbes reports whether two services, both with health checks, have the same checks and the
// same endpoints, by the identity of these, which are immutable.
func SameProbes(a, b *isobar.Service) bool {
	return identical(a.HealthChecks, b.HealthChecks) && identical(a.Localities, b.Localities)
}

// identical reports whether two slices are the same memory.
func identical[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
