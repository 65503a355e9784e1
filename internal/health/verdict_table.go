package health

import (
	"math"
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

// Observation is what happened since the last one.
type Observation struct {
	Now       time.Time
	Reports   []Report  // in the order of arrival
	Checkers  []Checker // at least those that reported; a Roster's will do
	Placement Placement // in force
	Topology  *isobar.Topology
	Operators Table // what operators set
	// Clients is what load reports tell; nil = what they told last.
	Clients *ClientReports
}

// Outcome is what an observation changed.
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
// A verdict changes when a strict majority of the fresh votes on an endpoint,
// at least two and in as many zones as the service asks for, say the same:
// healthy, degraded, or down (unhealthy, timeout or draining). Otherwise it
// stays and grows old. Votes are fresh for 3 report intervals. A checker that
// has not seen an endpoint healthy since it was designated, or since it
// connected, may vote it down only after it had the time to probe it often
// enough: checkers begin with unhealthy. They begin anew with an endpoint that
// moves to another locality or is probed elsewhere.
//
// An endpoint without a verdict has its configured status; but one that is
// added to a service that has verdicts gets no traffic until its first one, or
// for 30 s, as long as another endpoint is healthy and in use.
//
// If more than half of a service's endpoints (and at least 3) are voted down
// within five minutes, or the time that one failure needs to be seen by all where that
// is longer, the network of the checkers may be at fault. These are held for 2 report intervals, and then
// believed if a quorum of the checkers that say so see most of what is in other
// localities up (of what other services have here, if they probe nothing
// there), unless the requests of clients succeed in the endpoint's locality. If not they
// stay held, with an alarm, until the votes change or Release is called. Where requests of
// clients succeed, endpoints that went down earlier count, too. Recoveries are never held. Endpoints that were added and
// never came up, and those that operators took out of use, are no part of it.
type VerdictTable struct {
	interval time.Duration
	epoch    time.Time
	now      instant
	swept    instant
	sight    sight // as of the last sweep

	topology  *isobar.Topology
	overrides []Override
	placement Placement
	checkers  []known // by index, sorted by id
	services  []*serviceVotes
	verdicts  *Verdicts
}

// instant is a time since the table's epoch, in nanoseconds.
type instant int64

const never instant = math.MinInt64

// known is a checker as votes refer to it.
type known struct {
	id    string
	zone  isobar.Locality
	since time.Time // of its stream; zero when it is not connected
	voted time.Time // when it last said something that counts
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

// NewVerdictTable returns a table; saved is what an earlier process knew, the zero value
// if there was none.
func NewVerdictTable(s Settings, saved Saved, now time.Time) *VerdictTable {
	b := &VerdictTable{interval: s.ReportInterval, epoch: now, swept: never}
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

// Verdicts gives what is believed now; equal pointers hold the same.
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
		l.judge(b, &b.sight, all)
		b.write(l)
	}
	out.Changed = before.Changed(b.verdicts)
	return out
}

// write publishes what changed of a service.
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

// sameLists tells whether the designations are those of before: lists are
// immutable, and Place keeps those that did not change.
func sameLists(a, b []Designation) bool {
	return slices.EqualFunc(a, b, func(a, b Designation) bool {
		return a.Checker == b.Checker && len(a.Endpoints) == len(b.Endpoints) && (len(a.Endpoints) == 0 || &a.Endpoints[0] == &b.Endpoints[0])
	})
}

func (b *VerdictTable) at(t time.Time) instant {
	if t.IsZero() {
		return never
	}
	return instant(t.Sub(b.epoch))
}

func (b *VerdictTable) time(i instant) time.Time {
	if i == never {
		return time.Time{}
	}
	return b.epoch.Add(time.Duration(i))
}

func (b *VerdictTable) since(i instant) time.Duration { return time.Duration(b.now - i) }

func (b *VerdictTable) votesOf(service string) *serviceVotes {
	i, found := slices.BinarySearchFunc(b.services, service, func(l *serviceVotes, name string) int { return strings.Compare(l.name, name) })
	if !found {
		return nil
	}
	return b.services[i]
}

func (b *VerdictTable) checker(id string) (int32, bool) {
	i, found := slices.BinarySearchFunc(b.checkers, id, func(k known, id string) int { return strings.Compare(k.id, id) })
	return int32(i), found //nolint:gosec // fleets have fewer than 2^31 checkers
}

// meet notes which checkers are connected. A stream that is new makes its
// checker begin anew.
func (b *VerdictTable) meet(checkers []Checker) {
	for i := range checkers {
		c := &checkers[i]
		if k, found := b.checker(c.ID); found {
			b.checkers[k].zone = c.Zone()
			if !c.Since.IsZero() {
				b.checkers[k].since = c.Since // which is earlier after the clock was set back
			}
		}
	}
}
