//go:build !race

package group_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/control/ending"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// leaver is a member that stops while clients drop requests, as the loop of a server does: it
// waits until it may take drops back, until another one has, or until its patience ends.
type leaver struct {
	*member

	began    time.Duration
	waits    *ending.Wait
	tookOver bool            // it has made a plan of its own claim
	last     map[uint64]bool // versions in which clients drop nothing
	ended    bool
}

// stop begins the end of the member.
func (e *leaver) stop() {
	e.process(func() {
		e.publishing++ // it decides nothing more
		e.began = e.w.now
		e.tookOver = e.node.Role() == group.Leading && e.plan.Claim == e.node.Claim()
		e.waits = ending.New(e.tookOver)
		e.w.notef("%s stops", e.name)
		e.node.Announce(e.clock(), true)
		e.act()
		e.look()
	})()
}

// look is one look of the loop: control looks more often, for which the simulation would take longer.
func (e *leaver) look() {
	now, waited := e.clock(), e.w.now-e.began
	if e.waits.TakesBack(waited, e.state()) {
		e.takeBack()
	}
	if !e.last[e.served] && !e.waits.Over(waited, e.state()) {
		e.w.after(50*time.Millisecond, e.process(e.look))
		return
	}
	e.w.notef("%s leaves with version %d", e.name, e.served)
	e.node.Leave(now)
	e.ended = true // and shows its clients what comes until it has none
}

func (e *leaver) state() ending.State {
	now, role := e.clock(), e.node.Role()
	leads := role == group.Leading || role == group.Caretaker
	return ending.State{
		Follows: role == group.Follower, Claims: role == group.Gathering || role == group.Claiming, Leads: leads,
		Last: leads && e.node.AllLeave(now), Closing: e.node.Closing(now),
	}
}

// takeBack publishes the group's last plan; one that has not led takes over first.
func (e *leaver) takeBack() {
	if !e.tookOver {
		if _, err := e.node.Publish(e.clock(), e.content(true), false); err != nil {
			e.waits.Failed()
			return
		}
		e.tookOver = true
		e.act()
	}
	p, err := e.node.Publish(e.clock(), e.content(true), true)
	if err != nil {
		e.waits.Failed()
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
		var all []*leaver
		for _, m := range w.members {
			if !killed[m] {
				e := &leaver{member: m, last: last}
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
