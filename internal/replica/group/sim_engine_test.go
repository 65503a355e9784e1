//go:build !race

package group_test

import (
	"errors"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// engine is a linearizable engine with leases: what etcd is to the group.
type engine struct {
	w        *world
	holder   group.Identity
	until    time.Duration // the lease
	claim    group.Claim
	present  map[string]presence
	down     bool
	slow     time.Duration
	cut      map[int]bool // members that can't reach it
	restored time.Duration
	backup   struct {
		holder group.Identity
		claim  group.Claim
		taken  bool
	}
}

type presence struct {
	reaches int
	until   time.Duration
}

// ask plays a request: it may be lost on the way there or back.
func (e *engine) ask(m *member, r group.Request) {
	w := e.w
	self, asked := m.self, m.clock()
	answer := func(a group.Answer) {
		if a.Err == nil && (e.cut[m.index] || w.rng.Float64() < w.loss) {
			m.unheard = w.now
			return // the operation happened, and nobody knows
		}
		m.answered(self, asked, r.ID, a)
	}
	if e.slow > 0 { // a short pause beside makes the answer too late
		m.unheard = w.now
	}
	way := w.between(time.Millisecond, 20*time.Millisecond) + e.slow/2
	w.after(way, func() {
		if e.down || e.cut[m.index] || w.rng.Float64() < w.loss {
			m.unheard = w.now
			if w.rng.IntN(2) == 0 { // else it hangs until the node gives up
				answer(group.Answer{Err: errors.New("the engine is unavailable")})
			}
			return
		}
		a := group.Answer{Standing: e.apply(self, r)}
		w.after(w.between(time.Millisecond, 20*time.Millisecond)+e.slow/2, func() { answer(a) })
	})
}

func (m *member) answered(self group.Identity, asked time.Duration, id uint64, a group.Answer) {
	if m.node == nil || m.self != self {
		return
	}
	m.process(func() {
		if a.Err != nil {
			m.unheard = m.w.now
		} else if m.clock()-asked < engineTimeout {
			m.fenced = max(m.fenced, a.Standing.Claim.Epoch)
		}
		m.node.Answered(m.clock(), id, a)
	})()
}

func (e *engine) rolledBack() bool { return e.restored > 0 }

// apply runs an operation at one moment.
func (e *engine) apply(self group.Identity, r group.Request) group.Standing {
	w := e.w
	if w.now >= e.until {
		e.holder = group.Identity{}
	}
	mine := e.holder == self
	switch r.Op {
	case group.OpRead:
	case group.OpAcquire:
		if e.holder == (group.Identity{}) || mine {
			if !mine {
				w.notef("%s wins the engine", self)
			}
			e.holder, e.until = self, w.now+leaseTTL
		} else {
			e.present[self.Name] = presence{r.Reaches, w.now + leaseTTL}
		}
	case group.OpRenew:
		if mine {
			e.until = w.now + leaseTTL
		}
	case group.OpRelease:
		if mine {
			e.holder = group.Identity{}
		}
	case group.OpClaim:
		if mine && e.claim == r.Previous {
			e.write(r.Claim)
		}
	}
	s := group.Standing{Holder: e.holder, Claim: e.claim}
	for _, m := range w.members {
		if p, ok := e.present[m.name]; ok && w.now < p.until && m.name != e.holder.Name {
			s.Present = append(s.Present, group.Presence{Name: m.name, Reaches: p.reaches, Age: w.now + leaseTTL - p.until})
		}
	}
	return s
}

// write takes a claim. Epochs and versions of claims never repeat.
func (e *engine) write(c group.Claim) {
	w := e.w
	for other := range w.claims {
		if other.Epoch >= c.Epoch && other != c {
			w.violatef("%s is claimed after %s", c, other)
		}
		if other != c && c.First <= other.Last() && other.First <= c.Last() {
			w.violatef("the blocks of %s and %s overlap", c, other)
		}
		if c.First < other.First+group.BlockSize {
			w.violatef("%s begins less than a block above %s", c, other)
		}
	}
	w.notef("the engine has %s", c)
	w.counts.claims++
	w.claims[c] = true
	e.claim = c
}

// grants reports whether the member may decide in the claim at this moment.
func (e *engine) grants(m *member, c group.Claim) bool {
	if e.rolledBack() && e.w.now-e.restored < 2*leaseTTL {
		return true // until the leaders notice
	}
	return e.holder == m.self && e.w.now < e.until && e.claim == c
}
