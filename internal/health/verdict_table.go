package health

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// DefaultReportInterval is how often checkers report.
const DefaultReportInterval = 2 * time.Second

const (
	freshIntervals = 3                // report intervals that a vote stays fresh
	firstVerdict   = 30 * time.Second // that an added endpoint waits at most
	twoVotes       = 2                // least agreement, where more than one checker is asked for
)

// Settings of a VerdictTable.
type Settings struct {
	ReportInterval time.Duration // of checkers; 0 = DefaultReportInterval
}

// Observation holds the changes since the last one.
type Observation struct {
	Now       time.Time
	Reports   []Report  // in the order of arrival
	Checkers  []Checker // at least those that reported; a Roster's will do
	Placement Placement // in force
	Topology  *isobar.Topology
	Operators Table // the marks of operators
	// Clients holds the evidence from load reports; nil = as before.
	Clients *ClientReports
}

// Outcome says which parts an observation changed.
type Outcome struct {
	// Changed lists the services of which votes or time changed an endpoint's
	// verdict, sorted.
	Changed []string
	// Moved lists the services of which the topology or operators did:
	// endpoints are gone, or were added and wait. Sorted.
	Moved []string
	// Ignored counts reports that do not count: on endpoints that the checker
	// is not designated to, or with a status that there is not.
	Ignored int
}

// VerdictTable keeps the votes of designated checkers and the verdicts that follow.
//
// A verdict changes when a strict majority of the fresh votes on an endpoint, at least two and in
// as many zones as the service asks for, agree: healthy, degraded, or down (unhealthy, timeout or
// draining). Otherwise it stays and ages. Votes are fresh for 3 report intervals. A checker that
// has not seen an endpoint healthy since it was designated, or since it connected, may vote it
// down only after it had the time to probe it often enough: checkers begin with unhealthy. They
// begin again with an endpoint that moves to another locality or is probed elsewhere.
//
// An endpoint without a verdict has its configured status; but an endpoint that is added to a
// service with verdicts gets no traffic until its first one, or for 30 s, as long as another
// endpoint is healthy and in use.
//
// If more than half of a service's endpoints (and at least 3) are voted down within five minutes,
// or the time that one failure needs to be seen by all where that is longer, the network of the
// checkers may be at fault. These verdicts are held for 2 report intervals. They are then
// accepted if a quorum of the checkers that vote down sees most endpoints in other localities up
// (those of other services, if they probe nothing there), unless the requests of clients succeed
// in the endpoint's locality. Otherwise they stay held, with an alarm, until the votes change or
// Release is called. If requests of clients succeed, endpoints that went down earlier count, too.
// Recoveries are never held. Endpoints that were added and never came up, and those that
// operators took out of use, are no part of it.
type VerdictTable struct {
	voting

	swept instant
	sight sight // as of the last sweep

	topology  *isobar.Topology
	overrides []Override
	placement Placement
	services  []*serviceVotes
	verdicts  *Verdicts
}

// Voted tells when a checker last said something on an endpoint that it is
// designated to; zero if never.
func (b *VerdictTable) Voted(checker string) time.Time {
	i, found := b.checker(checker)
	if !found {
		return time.Time{}
	}
	return b.checkers[i].voted
}

// NewVerdictTable returns a table; saved is the state of an earlier process, the zero value if
// there was none.
func NewVerdictTable(s Settings, saved Saved, now time.Time) *VerdictTable {
	b := &VerdictTable{voting: voting{interval: s.ReportInterval, epoch: now}, swept: never}
	if b.interval <= 0 {
		b.interval = DefaultReportInterval
	}
	b.restore(saved)
	return b
}

// voters lists the checkers that have a fresh vote on an endpoint of a service,
// sorted.
func (b *VerdictTable) voters(service string) (out []string) {
	l := b.votesOf(service)
	if l == nil {
		return nil
	}
	for i := range l.records {
		for j := range l.records[i].votes {
			if v := &l.records[i].votes[j]; b.fresh(v) {
				insert(&out, b.checkers[v.checker].id)
			}
		}
	}
	return out
}

// Verdicts returns the present verdicts; equal pointers hold the same.
func (b *VerdictTable) Verdicts() *Verdicts { return b.verdicts }

// Observe takes reports and changes verdicts accordingly, and by the time that
// passed. It should be called when reports came, when topology, placement or
// checkers changed, and at least once per report interval.
func (b *VerdictTable) Observe(o Observation) Outcome {
	var out Outcome
	before := b.verdicts
	b.now = max(b.now, b.at(o.Now))
	synced := o.Topology != b.topology || !sameLists(o.Placement.Designations, b.placement.Designations)
	if synced {
		b.sync(&o)
	}
	moved := b.withdraw(o.Operators, synced)
	if moved {
		b.writeAll()
		out.Moved = before.Changed(b.verdicts)
		before = b.verdicts
	}
	b.learn(o.Clients)
	b.meet(o.Checkers)
	out.Ignored = b.take(o.Reports, o.Now)
	all := moved || b.swept == never || b.since(b.swept) >= b.interval/2
	if all {
		b.swept, b.sight = b.now, sight{table: b}
	}
	for _, l := range b.services {
		l.judge(&b.voting, &b.sight, all)
		b.write(l)
	}
	out.Changed = before.Changed(b.verdicts)
	return out
}

// write publishes the changes of a service.
func (b *VerdictTable) write(l *serviceVotes) {
	if l.changed {
		b.verdicts = b.verdicts.put(l.name, l.statuses())
		l.changed = false
	}
}

// writeAll publishes all services, and drops the verdicts on services that are
// gone.
func (b *VerdictTable) writeAll() {
	for _, l := range b.services {
		l.changed = true
		b.write(l)
	}
	if b.verdicts == nil {
		return
	}
	for _, s := range b.verdicts.services {
		if b.votesOf(s.name) == nil {
			b.verdicts = b.verdicts.with(s.name, nil)
		}
	}
}

// sameLists reports whether the designations are the previous ones: lists are
// immutable, and Place keeps those that did not change.
func sameLists(a, b []Designation) bool {
	return slices.EqualFunc(a, b, func(a, b Designation) bool {
		return a.Checker == b.Checker && len(a.Endpoints) == len(b.Endpoints) && (len(a.Endpoints) == 0 || &a.Endpoints[0] == &b.Endpoints[0])
	})
}

func (b *VerdictTable) votesOf(service string) *serviceVotes {
	i, found := slices.BinarySearchFunc(b.services, service, func(l *serviceVotes, name string) int { return strings.Compare(l.name, name) })
	if !found {
		return nil
	}
	return b.services[i]
}

// Release believes a mass flip of a service that is held, because an operator
// says so or because clients fail to land requests in these localities too;
// without localities, in all. It takes effect with the next Observe. False if
// nothing is held.
func (b *VerdictTable) Release(service string, localities ...isobar.Locality) bool {
	l := b.votesOf(service)
	return l != nil && l.release(localities)
}

// Alarms lists the mass flips that are held, sorted by service.
func (b *VerdictTable) Alarms() []Alarm {
	var out []Alarm
	for _, l := range b.services {
		if a := l.alarm(&b.voting); a.Held > 0 {
			out = append(out, a)
		}
	}
	return out
}

// take adds reports and counts those that are ignored.
func (b *VerdictTable) take(reports []Report, now time.Time) (ignored int) {
	var l *serviceVotes
	var checker int32
	var designated bool
	for i := range reports {
		rep := &reports[i]
		if i == 0 || rep.Checker != reports[i-1].Checker {
			checker, designated = b.checker(rep.Checker)
		}
		if l == nil || l.name != rep.Service {
			l = b.votesOf(rep.Service)
		}
		r := l.record(rep.Address)
		if r == nil || !designated || rep.Status > isobar.Degraded || !l.vote(&b.voting, r, checker, rep) {
			ignored++
			continue
		}
		b.checkers[checker].voted = now
	}
	return ignored
}
