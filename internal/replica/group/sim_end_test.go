package group_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// ending is a member that stops while clients drop requests, as the loop of a server does: it
// waits until it may take drops back, until another one has, or until its patience ends.
type ending struct {
	*member

	began, won time.Duration
	decided    bool
	last       map[uint64]bool // versions in which clients drop nothing
	ended      bool
}

// stop begins the end of the member.
func (e *ending) stop() {
	e.process(func() {
		e.publishing++ // it decides nothing more
		e.began, e.won = e.w.now, e.w.now
		e.decided = e.node.Role() == group.Leading && e.plan.Claim == e.node.Claim()
		e.w.notef("%s stops", e.name)
		e.node.Announce(e.clock(), true)
		e.act()
		e.look()
	})()
}

// look is one look of the loop: control looks more often, for which the simulation would take longer.
func (e *ending) look() {
	now, role := e.clock(), e.node.Role()
	if role == group.Follower {
		e.won = e.w.now
	}
	if (role == group.Leading || role == group.Caretaker) && e.node.AllLeave(now) {
		e.takeBack()
	}
	if !e.last[e.served] && e.w.now < e.patience() {
		e.w.after(50*time.Millisecond, e.process(e.look))
		return
	}
	e.w.notef("%s leaves with version %d", e.name, e.served)
	e.node.Leave(now)
	e.ended = true // and shows its clients what comes until it has none
}

func (e *ending) patience() time.Duration {
	most := time.Second
	switch closing := e.node.Closing(e.clock()); {
	case closing && e.decided:
		most = 3 * time.Second
	case closing:
		most = 19 * time.Second
	case e.decided:
		most = 500 * time.Millisecond
	}
	if role := e.node.Role(); role == group.Gathering || role == group.Claiming {
		most = max(most, e.won-e.began+3*time.Second)
	}
	return e.began + most
}

// takeBack publishes the group's last plan; one that has not led takes over first.
func (e *ending) takeBack() {
	if !e.decided {
		if _, err := e.node.Publish(e.clock(), e.content(true), false); err != nil {
			return
		}
		e.decided = true
		e.act()
	}
	p, err := e.node.Publish(e.clock(), e.content(true), true)
	if err != nil {
		return
	}
	e.last[p.Version] = true
	e.act()
}

// TestGroupsThatStop asserts that clients of no replica go on dropping requests once all replicas of a
// group have stopped at about the same time, some of which were killed a moment before, while the engine
// was down or not, and that no version goes back. TestPartsWithoutAReplicaThatStays asserts when a replica
// that stops may publish.
func TestGroupsThatStop(t *testing.T) {
	for i := range min(*seeds, 10_000) {
		w := newWorld(t, *first+uint64(i))
		w.stop, w.ordered = true, true
		w.run(20 * time.Second)
		killed := map[*member]bool{}
		for range w.rng.IntN(len(w.members)) {
			killed[w.members[w.rng.IntN(len(w.members))]] = true
		}
		for _, m := range w.members {
			if killed[m] {
				w.after(w.between(0, 3*time.Second), m.crash)
			}
		}
		w.run(w.now + 3*time.Second)
		if w.rng.IntN(3) == 0 { // leases do not run out in etcd meanwhile
			down := w.between(time.Second, 40*time.Second)
			w.engine.down = true
			w.run(w.now + down)
			w.engine.down, w.engine.until = false, w.now+leaseTTL
			w.run(w.now + 4*time.Second)
		}
		last := map[uint64]bool{}
		var all []*ending
		for _, m := range w.members {
			if !killed[m] {
				e := &ending{member: m, last: last}
				all = append(all, e)
				w.after(w.between(0, 300*time.Millisecond), e.stop)
			}
		}
		w.run(w.now + 40*time.Second)
		for _, e := range all {
			if !e.ended || !last[e.served] {
				w.violatef("%s has ended: %t; its clients are left with version %d, which drops", e.name, e.ended, e.served)
			}
		}
		for _, f := range w.failed {
			t.Error(f)
		}
		if t.Failed() {
			return
		}
	}
}
