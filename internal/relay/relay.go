// Package relay brings what the clients and checkers of all replicas of a group tell
// before the one loop that decides. On a follower it writes what its own tell, for
// the leader; on the leader it joins that with what the leader's own tell, so that
// the loop sees one fleet.
package relay

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Reports is where load reports of this replica's own clients come from.
type Reports interface {
	Collect(now time.Time) []load.StreamWindow
	Release() // of what Collect returned
}

// Clients is the stream layer of this replica.
type Clients interface {
	Publish(set *view.Set)
	Subscriptions() []load.Subscription
}

// Checkers are the checkers of this replica.
type Checkers interface {
	Collect(now time.Time) []health.Report
	Connected(now time.Time) []health.Checker
	Ended() []health.Ended
	Designate(topology *isobar.Topology, designations []health.Designation)
	Changed() <-chan struct{}
}

// Standing is how this replica stands in its group.
type Standing interface {
	// Leads reports whether this replica decides now.
	Leads() bool
	// Version is that of the plan that clients of this replica get.
	Version() uint64
	// Tick is the time between two decisions of the leader.
	Tick() time.Duration
	// Live reports whether another replica was heard recently.
	Live(replica string) bool
}

const (
	// ReplicaGone is after what time without a word the streams of a replica count as
	// closed. Clients that come to another replica take their place before.
	ReplicaGone = 3 * time.Minute
	// CheckersHeld is for how long the checkers of a replica count as connected after it last told
	// which ones are: Envoy waits up to 30 s before it connects again.
	CheckersHeld = 45 * time.Second
)

// Bounds of what one replica may make the leader keep.
const (
	maxStreams       = 200_000
	maxWaiting       = 200_000
	maxSubscriptions = 1_000_000
	maxVotes         = 1_000_000
)

// remoteStreams is where ids of streams of other replicas begin: above those of any
// process.
const remoteStreams = load.StreamID(1) << 62

// Relay joins what all replicas tell. All methods may be called at once.
type Relay struct {
	reports  Reports
	clients  Clients
	checkers Checkers
	changed  chan struct{} // capacity 1
	standing Standing

	mu       sync.Mutex
	lastID   load.StreamID
	replicas map[string]*remote // by name
	sequence uint64             // of what this replica sends
	kept     []keptWindows      // the last of this replica's own clients, oldest first
	unkept   uint64             // windows that were not kept, or whose reports were not taken from another replica
	followed bool               // since the last Windows, another replica decided
	since    map[string]uint64  // by service, the version in which its assignments last changed
}

// remote is what another replica told.
type remote struct {
	incarnation uint64
	heard       time.Time
	unheard     bool // at the last Windows
	streams     map[uint64]*remoteStream
	waiting     []load.StreamWindow // since the last Collect
	memory      *budget             // of their reports
	subscribed  []load.Subscription
	version     uint64              // of the plan that its clients had when they were listed
	arriving    []load.Subscription // of a list that is not whole
	sequence    uint64              // of the last message; 0 = none came
	torn        bool                // a message of that list is missing
	votes       []health.Report
	ended       []health.Ended
	connected   []remoteChecker
	checkers    map[string]remoteChecker // connected, by id
	connectedAt time.Time                // when that list came
	connecting  []remoteChecker          // of a list that is not whole, and
	part        int                      // the number of its last part
}

// remoteChecker is a checker of another replica, with the number of its stream there.
type remoteChecker struct {
	health.Checker

	stream uint64
}

type remoteStream struct {
	id     load.StreamID
	window load.StreamWindow // as last told, without reports
}

// New makes a relay.
func New(reports Reports, clients Clients, checkers Checkers, standing Standing) *Relay {
	return &Relay{
		reports: reports, clients: clients, checkers: checkers, standing: standing, changed: make(chan struct{}, 1),
		lastID: remoteStreams, replicas: map[string]*remote{}, since: map[string]uint64{},
	}
}

// Unkept returns how many windows of clients were not kept for a new leader, or were taken from another replica
// without their reports, because these would take too much memory.
func (r *Relay) Unkept() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unkept
}

// Forget drops what other replicas told: this replica decides no more, or begins to.
func (r *Relay) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.replicas)
}

// Windows returns the load reports of the whole fleet; see [control.Reports]. Those of this
// replica's own clients are valid until they are released.
func (r *Relay) Windows(now time.Time) []load.StreamWindow {
	own := r.reports.Collect(now)
	out := r.ownWarm(own, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.replicas) == 0 {
		return out
	}
	out = slices.Clone(out)
	for _, name := range r.names() {
		q := r.replicas[name]
		if unheard := !r.standing.Live(name); unheard != q.unheard {
			q.unheard = unheard
			q.waiting = append(q.waiting, q.open()...)
		}
		out = append(out, merged(q.waiting)...)
		q.waiting = nil
		q.memory.release()
		if now.Sub(q.heard) > ReplicaGone {
			out = append(out, q.closeAll(now)...)
			delete(r.replicas, name)
		}
	}
	return out
}

// names lists the replicas that told something, sorted: no order of a map reaches the
// loop. r.mu is held.
func (r *Relay) names() []string {
	out := make([]string, 0, len(r.replicas))
	for name := range r.replicas {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// merged joins the windows of each stream to one.
func merged(windows []load.StreamWindow) []load.StreamWindow {
	slices.SortStableFunc(windows, func(a, b load.StreamWindow) int { return cmp.Compare(a.Stream, b.Stream) })
	out := windows[:0]
	for _, w := range windows {
		if n := len(out); n > 0 && out[n-1].Stream == w.Stream {
			last := &out[n-1]
			last.Reports = append(slices.Clone(last.Reports), w.Reports...)
			last.Closed, last.Unheard = w.Closed, w.Unheard
			continue
		}
		out = append(out, w)
	}
	return out
}

// open returns the open streams of a replica that is heard no more, or again.
func (q *remote) open() []load.StreamWindow {
	out := make([]load.StreamWindow, 0, len(q.streams))
	for _, s := range q.streams { // merged sorts them
		w := s.window
		w.Unheard = q.unheard
		out = append(out, w)
	}
	return out
}

// closeAll ends all streams of a replica that is gone.
func (q *remote) closeAll(now time.Time) []load.StreamWindow {
	out := make([]load.StreamWindow, 0, len(q.streams))
	for _, s := range q.streams {
		w := s.window
		w.Closed = now
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b load.StreamWindow) int { return cmp.Compare(a.Stream, b.Stream) })
	q.streams = nil
	return out
}

// Publish hands a set of views to this replica's own clients.
func (r *Relay) Publish(set *view.Set) {
	r.change(set)
	r.clients.Publish(set)
}

// change notes which services have other assignments in a set than in the one before.
func (r *Relay) change(set *view.Set) {
	version, err := strconv.ParseUint(set.Version(), 10, 64)
	if err != nil {
		return // no plan has such a version
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	names := set.Names()
	if len(r.since) > 2*len(names) { // of services that are gone
		clear(r.since)
	}
	for _, name := range names {
		if _, known := r.since[name]; !known || !set.Unchanged(name) {
			r.since[name] = version
		}
	}
}

// Subscriptions returns those of the whole fleet. A locality has acknowledged an
// assignment once its streams on all replicas have, and the replicas had the one
// that is in force here: plans after theirs may have changed other services only. Streams of a replica
// that is not heard have acknowledged nothing.
func (r *Relay) Subscriptions() []load.Subscription {
	own := r.clients.Subscriptions()
	version := r.standing.Version()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.replicas) == 0 {
		return own
	}
	out := slices.Clone(own)
	for _, name := range r.names() {
		q := r.replicas[name]
		for _, s := range q.subscribed {
			if changed, known := r.since[s.Service]; q.unheard || q.version < version && (!known || q.version < changed) {
				s.Acked, s.AckedAt = 0, time.Time{}
			}
			out = append(out, s)
		}
	}
	return joined(out)
}

// joined makes one subscription of those of one locality to one service.
func joined(list []load.Subscription) []load.Subscription {
	slices.SortStableFunc(list, func(a, b load.Subscription) int {
		return cmp.Or(a.Source.Compare(b.Source), strings.Compare(a.Service, b.Service))
	})
	out := list[:0]
	for _, s := range list {
		n := len(out)
		if n == 0 || out[n-1].Source != s.Source || out[n-1].Service != s.Service {
			out = append(out, s)
			continue
		}
		last := &out[n-1]
		last.Streams, last.Acked = last.Streams+s.Streams, last.Acked+s.Acked
		switch {
		case last.AckedAt.IsZero() || s.AckedAt.IsZero():
			last.AckedAt = time.Time{}
		case s.AckedAt.After(last.AckedAt):
			last.AckedAt = s.AckedAt
		}
	}
	return out
}

// Votes returns what the checkers of all replicas newly reported.
func (r *Relay) Votes(now time.Time) []health.Report {
	out := r.checkers.Collect(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.names() {
		q := r.replicas[name]
		out = append(out, q.votes...)
		q.votes = nil
	}
	return out
}

// Connected returns the checkers that are connected to any replica. One that several replicas list
// has moved: its newest stream counts.
func (r *Relay) Connected(now time.Time) []health.Checker {
	out := r.checkers.Connected(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make(map[string]int, len(out))
	for i := range out {
		seen[out[i].ID] = i
	}
	for _, name := range r.names() {
		q := r.replicas[name]
		if now.Sub(q.connectedAt) > CheckersHeld {
			continue
		}
		for i := range q.connected {
			c := q.connected[i].Checker
			if at, found := seen[c.ID]; !found {
				seen[c.ID], out = len(out), append(out, c)
			} else if c.Since.After(out[at].Since) {
				out[at] = c
			}
		}
	}
	slices.SortFunc(out, func(a, b health.Checker) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Ended returns which checkers of any replica ended soon after they were told what to
// probe.
func (r *Relay) Ended() []health.Ended {
	out := r.checkers.Ended()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.names() {
		q := r.replicas[name]
		out = append(out, q.ended...)
		q.ended = nil
	}
	return out
}

// Designate tells this replica's own checkers what to probe; other replicas tell
// theirs when they get the next plan.
func (r *Relay) Designate(t *isobar.Topology, d []health.Designation) { r.checkers.Designate(t, d) }

// Follow passes on signals of this replica's own checkers until ctx ends.
func (r *Relay) Follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.checkers.Changed():
			r.signal()
		}
	}
}

func (r *Relay) signal() {
	select {
	case r.changed <- struct{}{}:
	default: // a signal is waiting already
	}
}

// Changed signals that checkers of any replica told something. Capacity 1.
func (r *Relay) Changed() <-chan struct{} { return r.changed }
