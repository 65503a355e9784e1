package health

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// class is the part of a status on which votes have to agree: the reasons for being down may
// differ.
type class uint8

const (
	undecided class = iota
	classHealthy
	classDegraded
	classDown
	classes
)

func classOf(h isobar.HealthStatus) class {
	switch {
	case h == isobar.Healthy:
		return classHealthy
	case h == isobar.Degraded:
		return classDegraded
	case down(h):
		return classDown
	default:
		return undecided
	}
}

// lost reports whether clients lose an endpoint of this class: gRPC sends nothing to degraded
// endpoints either, and plans count them as no capacity ([isobar.HealthStatus.Usable]).
func (c class) lost() bool { return c == classDegraded || c == classDown }

// loss says in a word what an endpoint of a class is that clients lose.
func (c class) loss() string {
	if c == classDegraded {
		return "degraded"
	}
	return "down"
}

// tally is the count of fresh votes on an endpoint.
type tally struct {
	fresh int          // votes, also those that do not count
	votes [classes]int // that count, by class
	zones [classes]int // that they are in
}

// voting is the context in which votes count: the time and the checkers.
type voting struct {
	interval time.Duration // of reports
	epoch    time.Time
	now      instant
	checkers []known // by index, sorted by id
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

func (b *voting) at(t time.Time) instant {
	if t.IsZero() {
		return never
	}
	return instant(t.Sub(b.epoch))
}

func (b *voting) time(i instant) time.Time {
	if i == never {
		return time.Time{}
	}
	return b.epoch.Add(time.Duration(i))
}

func (b *voting) since(i instant) time.Duration { return time.Duration(b.now - i) }

func (b *voting) freshFor() time.Duration { return freshIntervals * b.interval }

func (b *voting) checker(id string) (int32, bool) {
	i, found := slices.BinarySearchFunc(b.checkers, id, func(k known, id string) int { return strings.Compare(k.id, id) })
	return int32(i), found //nolint:gosec // fleets have fewer than 2^31 checkers
}

// fresh reports whether a vote is recent enough, and of its checker's present
// stream.
func (b *voting) fresh(v *vote) bool {
	return v.status != isobar.Unknown && v.listed != never && b.since(v.heard) <= b.freshFor() &&
		v.stream.Equal(b.checkers[v.checker].since)
}

// counts reports whether a fresh vote counts: a checker that has never seen the endpoint healthy
// begins with unhealthy, without having probed.
func (b *voting) counts(v *vote, r rule) bool {
	return classOf(v.status) != classDown || v.healthy || b.since(v.listed) >= r.grace
}

// count counts the votes that use lets pass; nil = all.
func (b *voting) count(r *record, rules rule, use func(*vote) bool) tally {
	var t tally
	for i := range r.votes {
		v := &r.votes[i]
		if !b.fresh(v) {
			continue
		}
		t.fresh++
		if !b.usable(v, rules, use) {
			continue
		}
		c := classOf(v.status)
		t.votes[c]++
		if !b.zoneVoted(r.votes[:i], v, rules, use) {
			t.zones[c]++
		}
	}
	return t
}

func (b *voting) usable(v *vote, rules rule, use func(*vote) bool) bool {
	return b.fresh(v) && b.counts(v, rules) && (use == nil || use(v))
}

// zoneVoted reports whether one of others says the same from the same zone.
func (b *voting) zoneVoted(others []vote, v *vote, rules rule, use func(*vote) bool) bool {
	for i := range others {
		o := &others[i]
		if classOf(o.status) == classOf(v.status) && b.checkers[o.checker].zone == b.checkers[v.checker].zone && b.usable(o, rules, use) {
			return true
		}
	}
	return false
}

// agreed returns the class that a strict majority of the fresh votes, in enough
// zones, agrees on.
func (t *tally) agreed(r rule) class {
	for c := classHealthy; c < classes; c++ {
		if 2*t.votes[c] > t.fresh && t.votes[c] >= r.least && t.zones[c] >= r.domains {
			return c
		}
	}
	return undecided
}

// divided reports whether votes that count contradict each other.
func (t *tally) divided() bool {
	return t.votes[classDown] > 0 && t.votes[classHealthy]+t.votes[classDegraded] > 0
}

// judge changes verdicts by the votes: of all endpoints, or only of those on
// which a vote changed. In a mass flip these are no longer for themselves.
func (l *serviceVotes) judge(b *voting, s *sight, all bool) {
	if !all && !l.dirty {
		return
	}
	all, l.dirty = all || l.mass.active, false
	var candidates []*record
	for i := range l.records {
		r := &l.records[i]
		if !all && !r.dirty {
			continue
		}
		r.dirty = false
		if l.weigh(b, r) {
			candidates = append(candidates, r)
		}
	}
	l.judgeLosses(b, s, candidates)
}

// weigh judges one endpoint, and reports whether clients are to lose it if that is not part of a
// mass flip.
func (l *serviceVotes) weigh(b *voting, r *record) (candidate bool) {
	t := b.count(r, l.rule, nil)
	agreed, current := t.agreed(l.rule), classOf(r.status)
	r.held, r.leaving, r.quorum = false, undecided, agreed != undecided && agreed == current
	if r.quorum {
		r.confirmed = b.now
	}
	switch {
	case !t.divided():
		r.disputed = never
	case r.disputed == never:
		r.disputed = b.now
	}
	if r.pending && b.since(r.appeared) >= firstVerdict {
		r.pending, l.changed = false, true
	}
	if agreed == undecided || agreed == current {
		return false
	}
	if agreed.lost() && current != classDown && !r.expected() {
		r.leaving = agreed
		return true
	}
	l.flip(b, r, agreed)
	return false
}

// flip changes the verdict.
func (l *serviceVotes) flip(b *voting, r *record, to class) {
	contradicted := l.reached(r.locality) || r.stillOpposed(b)
	r.status, r.since, r.confirmed = b.label(r, l.rule, to), b.now, b.now
	r.quorum, r.pending, r.held, r.leaving = true, false, false, undecided
	r.proven = r.proven || to != classDown
	r.opposed = contradicted && (to.lost() || r.opposed)
	l.judged, l.changed = true, true
}

// label says how an endpoint is down: as most of the votes say.
func (b *voting) label(r *record, rules rule, c class) isobar.HealthStatus {
	if c == classHealthy {
		return isobar.Healthy
	}
	if c == classDegraded {
		return isobar.Degraded
	}
	n, of := 0, [isobar.Degraded + 1]int{}
	for i := range r.votes {
		if v := &r.votes[i]; classOf(v.status) == classDown && b.fresh(v) && b.counts(v, rules) {
			of[v.status]++
			n++
		}
	}
	for _, h := range []isobar.HealthStatus{isobar.Timeout, isobar.Draining} {
		if 2*of[h] > n {
			return h
		}
	}
	return isobar.Unhealthy
}

// path reports whether an endpoint's votes have been divided for longer than a
// failure takes to be seen by all.
func (b *voting) path(r *record, rules rule) bool {
	return r.disputed != never && b.since(r.disputed) >= rules.window+time.Duration(freshIntervals)*b.interval
}
