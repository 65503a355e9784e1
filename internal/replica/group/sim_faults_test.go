//go:build !race

package group_test

import (
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// client holds a stream to one replica at a time, and shows the newest version
// that it has seen.
type client struct {
	w      *world
	name   int
	at     *member
	served bool
	delta  bool   // it shows no version
	seen   uint64 // of a client that shows versions
	knows  services
	visit  uint64 // counts connections
}

// connect goes to a replica at random, as one DNS name does.
func (c *client) connect() {
	w := c.w
	c.visit++
	m := w.members[w.rng.IntN(len(w.members))]
	if m.node == nil {
		c.at = nil
		w.after(w.between(200*time.Millisecond, 2*time.Second), c.again(c.visit))
		return
	}
	c.at, c.served = m, false
	visit := c.visit
	c.admit(visit, m.self, w.now)
	w.after(w.between(5*time.Second, 40*time.Second), c.again(visit)) // it moves now and then
}

func (c *client) again(visit uint64) func() {
	return func() {
		if c.visit == visit {
			c.connect()
		}
	}
}

// admit asks the replica until it serves or closes the connection.
func (c *client) admit(visit uint64, self group.Identity, since time.Duration) {
	w := c.w
	m := c.at
	m.process(func() {
		if c.visit != visit || m.self != self {
			return
		}
		switch v := m.node.Admit(m.clock(), c.shows(), w.now-since); v {
		case group.Serve:
			c.served = true
			w.notef("client %d is served version %d by %s", c.name, m.served, m.name)
			c.sees(m)
		case group.Wait:
			w.after(200*time.Millisecond, func() {
				if c.visit == visit && c.at == m && m.node != nil { // it may have restarted meanwhile, without this client
					c.admit(visit, self, since)
				}
			})
		case group.Close:
			w.counts.closed++
			w.notef("client %d with version %d is sent away by %s, which has %d", c.name, c.seen, m.name, m.served)
			w.after(w.between(100*time.Millisecond, time.Second), c.again(visit))
		}
	})()
}

// shows is the version that the client shows on a new stream. Clients of delta
// streams show none.
func (c *client) shows() uint64 {
	if c.delta {
		return 0
	}
	return c.seen
}

// sees takes in what the replica serves. What its plan lacks the client keeps,
// unless the replica may tell that it is absent.
func (c *client) sees(m *member) {
	if !c.delta && m.served < c.seen {
		c.w.violatef("client %d goes back from version %d to %d", c.name, c.seen, m.served)
	}
	c.seen = m.served
	if absent := c.knows &^ m.lists; absent != 0 && m.node.Removes(m.clock()) {
		c.w.removed(m, absent)
		c.knows &^= absent
	}
	c.knows |= m.lists
}

// lost tells that a replica is gone.
func (c *client) lost(m *member) {
	if c.at == m {
		c.at, c.served = nil, false
		c.w.after(c.w.between(10*time.Millisecond, 2*time.Second), c.again(c.visit))
	}
}

// trouble lets faults happen until the world stops them.
func (w *world) trouble() {
	w.after(w.between(time.Second, 15*time.Second), func() {
		if w.stop {
			return
		}
		w.fault()
		w.trouble()
	})
}

func (w *world) fault() {
	m := w.members[w.rng.IntN(len(w.members))]
	length := w.between(500*time.Millisecond, 40*time.Second)
	switch w.rng.IntN(13) {
	case 0, 1:
		w.crashFor(m, length, false)
	case 2:
		w.crashFor(m, length, w.rng.IntN(3) == 0)
	case 3, 4:
		m.pause(length)
	case 5:
		w.partition(length)
	case 6: // one direction of one connection
		other := w.members[w.rng.IntN(len(w.members))]
		w.cutFor([][2]int{{m.index, other.index}}, length)
	case 7:
		w.notef("the engine is down for %v", length)
		w.engine.down = true
		w.after(length, func() { w.engine.down = false })
	case 8:
		w.notef("%s can't reach the engine for %v", m.name, length)
		w.engine.cut[m.index] = true
		w.after(length, func() { delete(w.engine.cut, m.index) })
	case 9:
		w.engine.slow = 2 * time.Second
		w.notef("the engine is slow for %v", length)
		w.after(length, func() { w.engine.slow = 0 })
	case 10:
		w.loss, w.slow = w.rng.Float64()*0.4, w.between(0, time.Second)
		w.notef("the network loses %.2f and takes %v for %v", w.loss, w.slow, length)
		w.after(length, func() { w.loss, w.slow = 0, 0 })
	case 11:
		w.leave(m, length)
	case 12:
		m.process(func() {
			if m.node.StepDown(m.clock()) {
				w.counts.steppedDown++
				w.notef("%s steps down", m.name)
			}
		})()
	}
}

func (w *world) crashFor(m *member, length time.Duration, disk bool) {
	m.crash()
	if disk {
		w.notef("%s loses its disk", m.name)
		m.disk = group.Saved{}
	}
	w.after(length, m.start)
}

// leave stops a member in order: it hands over, and ends when it has.
func (w *world) leave(m *member, length time.Duration) {
	m.process(func() {
		w.notef("%s leaves", m.name)
		m.node.Leave(m.clock())
		self := m.self
		w.after(2*time.Second, func() {
			if m.node != nil && m.self == self {
				m.crash()
				w.after(length, m.start)
			}
		})
	})()
}

// partition splits the members in two, in both directions or one.
func (w *world) partition(length time.Duration) {
	side := map[int]bool{}
	for _, m := range w.members {
		side[m.index] = w.rng.IntN(2) == 0
	}
	oneWay := w.rng.IntN(3) == 0
	var cut [][2]int
	for _, a := range w.members {
		for _, b := range w.members {
			if side[a.index] && !side[b.index] {
				cut = append(cut, [2]int{a.index, b.index})
				if !oneWay {
					cut = append(cut, [2]int{b.index, a.index})
				}
			}
		}
	}
	w.cutFor(cut, length)
}

func (w *world) cutFor(cut [][2]int, length time.Duration) {
	w.notef("cut for %v: %v", length, cut)
	for _, c := range cut {
		w.cut[c] = true
	}
	w.after(length, func() {
		for _, c := range cut {
			delete(w.cut, c)
		}
	})
}

// heal ends all faults. Processes that are down start again.
func (w *world) heal() {
	w.notef("all faults end")
	w.stop = true
	w.cut, w.loss, w.slow = map[[2]int]bool{}, 0, 0
	w.engine.down, w.engine.slow, w.engine.cut = false, 0, map[int]bool{}
	for _, m := range w.members {
		if m.node == nil {
			m.start()
		}
	}
}

// restore replaces the state of the engine with an older one, as
// an operator who restores a backup does. Its leases restart.
func (w *world) restore() {
	e := &w.engine
	if !e.backup.taken {
		return
	}
	w.notef("the engine is restored with %s", e.backup.claim)
	e.restored = w.now
	e.claim, e.holder, e.until = e.backup.claim, e.backup.holder, w.now+leaseTTL
}

func (w *world) backup() {
	e := &w.engine
	e.backup.claim, e.backup.holder, e.backup.taken = e.claim, e.holder, true
}
