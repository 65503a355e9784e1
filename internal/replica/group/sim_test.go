//go:build !race

package group_test

import (
	"container/heap"
	"crypto/sha256"
	"fmt"
	"hash"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// leaseTTL is the lease of the simulated engine. Nodes give up 3 s before it.
const leaseTTL = 10 * time.Second

// engineTimeout is the default after which a node gives an answer up.
const engineTimeout = 3 * time.Second

// world is a group in virtual time: the real nodes, and around them a network, an
// engine, disks and clients that lose, delay and reorder. One seed decides
// everything that happens, so a seed that fails does so again in the same way.
type world struct {
	tb      testing.TB
	seed    uint64
	rng     *rand.Rand
	now     time.Duration
	queue   events
	seq     uint64
	hash    hash.Hash // of everything that happened
	members []*member
	clients []*client
	cut     map[[2]int]bool // from, to: messages are lost
	loss    float64
	slow    time.Duration // added to each message
	engine  engine
	stop    bool // no more faults
	ordered bool // messages arrive in the order in which they were sent, as on one stream

	contents  map[uint64][32]byte  // by version
	claims    map[group.Claim]bool // that the engine ever had
	published map[group.Claim]int  // decisions, by claim
	failed    []string             // what broke a rule
	counts    struct{ publications, claims, refused, closed, unconfirmed, steppedDown, cared, removals int }
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

type events []event

func (e *events) Len() int { return len(*e) }
func (e *events) Less(i, j int) bool {
	a, b := &(*e)[i], &(*e)[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}
func (e *events) Swap(i, j int) { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }
func (e *events) Push(x any)    { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now + d, w.seq, do})
}

func (w *world) notef(format string, args ...any) {
	_, _ = fmt.Fprintf(w.hash, "%d "+format+"\n", append([]any{w.now}, args...)...)
	if testing.Verbose() && *trace {
		w.tb.Logf("%8.3f "+format, append([]any{w.now.Seconds()}, args...)...)
	}
}

func (w *world) violatef(format string, args ...any) {
	text := fmt.Sprintf("seed %d, at %v: "+format, append([]any{w.seed, w.now}, args...)...)
	w.notef("VIOLATION %s", text)
	w.failed = append(w.failed, text)
}

func (w *world) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.rng.Int64N(int64(to-from)+1))
}

func newWorld(tb testing.TB, seed uint64) *world {
	tb.Helper()
	w := &world{
		tb: tb, seed: seed, rng: rand.New(rand.NewPCG(seed, 24)), hash: sha256.New(),
		cut: map[[2]int]bool{}, contents: map[uint64][32]byte{}, claims: map[group.Claim]bool{}, published: map[group.Claim]int{},
	}
	w.engine.w, w.engine.present, w.engine.cut = w, map[string]presence{}, map[int]bool{}
	size := 3
	if w.rng.IntN(4) == 0 {
		size = 5
	}
	for i := range size {
		m := &member{w: w, index: i, name: fmt.Sprintf("isobar-%d", i), rate: 1 + (w.rng.Float64()-0.5)/50, offset: w.between(0, time.Hour)}
		w.members = append(w.members, m)
	}
	for _, m := range w.members {
		w.after(w.between(0, 3*time.Second), m.start)
	}
	for i := range 6 {
		c := &client{w: w, name: i, delta: i%3 == 2}
		w.clients = append(w.clients, c)
		w.after(w.between(0, 5*time.Second), c.connect)
	}
	return w
}

// run plays what happens until the time.
func (w *world) run(until time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= until && len(w.failed) == 0 {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	w.now = until
}

// member is one replica: its process, which may be down or paused, and its disk.
type member struct {
	w      *world
	index  int
	name   string
	rate   float64 // of its clock
	offset time.Duration

	node        *group.Node // nil while the process is down
	self        group.Identity
	incarnation uint64
	paused      bool
	waiting     []func() // what comes while it is paused
	timer       uint64   // counts up: only the newest timer counts
	leaving     bool
	publishing  uint64

	disk    group.Saved // what a crash leaves
	written uint64      // counts writes
	fenced  uint64      // the highest epoch that the engine named to this process
	served  uint64      // the version that clients see
	plan    group.Plan
	began   time.Duration       // when it first served a plan of that claim
	lists   services            // in the plan that clients see
	since   [size]time.Duration // of each service of lists: from when on, without a break
	unheard time.Duration       // when the engine last failed it
}

// clock is the member's own: another rate and another zero than the world's.
func (m *member) clock() time.Duration {
	return m.offset + time.Duration(float64(m.w.now)*m.rate)
}

// deliver runs do in the process, at once or when its pause ends.
func (m *member) deliver(do func()) {
	if m.paused {
		m.waiting = append(m.waiting, do)
		return
	}
	do()
}

func (m *member) start() {
	if m.node != nil {
		return
	}
	m.incarnation++
	m.self = group.Identity{Name: m.name, Incarnation: m.incarnation}
	var peers []string
	for _, p := range m.w.members {
		if p != m {
			peers = append(peers, p.name)
		}
	}
	node, err := group.NewNode(group.Options{Self: m.self, Peers: peers}, m.disk, m.clock())
	if err != nil {
		m.w.violatef("%s does not start: %v", m.name, err)
		return
	}
	m.node, m.paused, m.waiting, m.leaving = node, false, nil, false
	m.fenced, m.served, m.plan, m.unheard = 0, 0, group.Plan{}, -time.Hour
	m.lists = 0
	if p := node.Plan(); p != nil {
		m.serve(p)
	}
	m.w.notef("%s starts with version %d", m.name, m.served)
	m.tick()
	m.publishing++
	m.publishLater(m.publishing)
}

func (m *member) crash() {
	if m.node == nil {
		return
	}
	m.w.notef("%s crashes", m.name)
	m.node, m.waiting, m.paused = nil, nil, false
	m.written++ // writes under way are lost
	for _, c := range m.w.clients {
		c.lost(m)
	}
}

// process runs do in this incarnation of the process only.
func (m *member) process(do func()) func() {
	self := m.self
	return func() {
		if m.node == nil || m.self != self {
			return
		}
		m.deliver(func() {
			if m.node != nil && m.self == self {
				do()
				m.tick()
			}
		})
	}
}

// tick lets the node do what is due, and sets the timer for what follows.
func (m *member) tick() {
	m.node.Tick(m.clock())
	m.act()
	m.timer++
	timer := m.timer
	wait := max(0, time.Duration(float64(m.node.Due()-m.clock())/m.rate)+time.Microsecond)
	run := m.process(func() {})
	m.w.after(wait, func() {
		if m.timer == timer {
			run()
		}
	})
}

func (m *member) act() {
	for _, a := range m.node.Take() {
		m.carryOut(a)
	}
}

func (m *member) carryOut(a group.Action) {
	w := m.w
	switch {
	case a.Request != nil:
		w.engine.ask(m, *a.Request)
	case a.Send != nil:
		m.send(a.Send)
	case a.Save != nil:
		m.save(a.Save)
	case a.Serve != nil:
		if e := a.Serve.Claim.Epoch; e < m.fenced {
			w.violatef("%s serves epoch %d after the engine named epoch %d to it", m.name, e, m.fenced)
		}
		m.serve(a.Serve)
	case a.Role != nil:
		w.notef("%s becomes %s", m.name, *a.Role)
	case a.Refused != nil:
		w.counts.refused++
		w.notef("%s refuses version %d of %s: %s", m.name, a.Refused.Version, a.Refused.From, a.Refused.Reason)
	case a.Alarm != nil:
		w.notef("%s alarms: %s", m.name, a.Alarm.Text)
	}
}

// serve shows a plan to the clients of this member.
func (m *member) serve(p *group.Plan) {
	w := m.w
	if known, ok := w.contents[p.Version]; ok && known != p.Digest {
		w.violatef("version %d has two contents", p.Version)
	}
	w.contents[p.Version] = p.Digest
	if p.Version < m.served {
		w.violatef("%s goes back from version %d to %d", m.name, m.served, p.Version)
	}
	if !w.claims[p.Claim] {
		w.violatef("%s serves a plan of %s, which the engine never had", m.name, p.Claim)
	}
	if p.Claim != m.plan.Claim {
		m.began = w.now
	}
	m.served, m.plan = p.Version, *p
	m.list(servicesOf(p))
	w.notef("%s serves version %d", m.name, p.Version)
	for _, c := range w.clients {
		if c.at == m && c.served {
			c.sees(m)
		}
	}
}

func (m *member) save(s *group.Saved) {
	if !s.Plan.IsZero() && !m.w.claims[s.Plan.Claim] {
		m.w.violatef("%s saves a plan of %s, which the engine never had", m.name, s.Plan.Claim)
	}
	m.written++
	written, saved := m.written, *s
	m.w.after(m.w.between(0, 300*time.Millisecond), func() {
		if m.written == written { // else a newer write replaced it, or a crash lost it
			m.disk = saved
		}
	})
}

func (m *member) send(s *group.Send) {
	w := m.w
	to := w.member(s.To)
	if w.cut[[2]int{m.index, to.index}] || w.rng.Float64() < w.loss {
		return
	}
	message := s.Message
	arrive := func() {
		if to.node == nil || w.cut[[2]int{m.index, to.index}] {
			return
		}
		to.process(func() {
			if err := to.node.Received(to.clock(), m.name, message); err != nil {
				w.violatef("%s refuses a message of %s: %v", to.name, m.name, err)
			}
		})()
	}
	delay := w.between(time.Millisecond, 40*time.Millisecond) + w.slow
	if w.ordered {
		delay = 20 * time.Millisecond
	}
	if w.rng.IntN(100) == 0 && !w.stop {
		delay += w.between(0, 3*time.Second)
	}
	w.after(delay, arrive)
	if w.rng.IntN(200) == 0 && !w.ordered {
		w.after(delay+w.between(0, time.Second), arrive) // once more
	}
}

func (w *world) member(name string) *member {
	for _, m := range w.members {
		if m.name == name {
			return m
		}
	}
	panic("no member " + name)
}

// publishLater has the member decide now and then, as its loop would.
func (m *member) publishLater(run uint64) {
	m.w.after(m.w.between(100*time.Millisecond, 2*time.Second), m.process(func() {
		if run != m.publishing {
			return
		}
		m.publish()
		m.publishLater(run)
	}))
}

func (m *member) publish() {
	w := m.w
	reapply := m.node.Role() == group.Caretaker
	if _, err := m.node.Next(m.clock(), reapply); err != nil {
		return
	}
	p, err := m.node.Publish(m.clock(), m.content(reapply), reapply)
	if err != nil {
		w.violatef("%s may publish, and can't: %v", m.name, err)
		return
	}
	w.counts.publications++
	w.notef("%s publishes version %d of epoch %d, reapply %v", m.name, p.Version, p.Claim.Epoch, reapply)
	if reapply {
		w.counts.cared++
		if w.now-m.unheard > 10*time.Second {
			w.violatef("%s publishes as caretaker, though the engine did not fail it", m.name)
		}
	} else if !w.engine.grants(m, p.Claim) {
		w.violatef("%s decides with %s, and the engine has %s of %s", m.name, p.Claim, w.engine.claim, w.engine.holder)
	}
	// The process may stop between the check and what clients see.
	if w.rng.IntN(60) == 0 && !w.stop {
		m.pause(w.between(0, 30*time.Second))
		actions := m.node.Take()
		m.waiting = append(m.waiting, func() {
			for _, a := range actions {
				m.carryOut(a)
			}
		})
	}
}

func (m *member) pause(d time.Duration) {
	if m.node == nil || m.paused {
		return
	}
	m.w.notef("%s is paused for %v", m.name, d)
	m.paused = true
	self := m.self
	m.w.after(d, func() {
		if m.node == nil || m.self != self || !m.paused {
			return
		}
		m.w.notef("%s goes on", m.name)
		m.paused = false
		waiting := m.waiting
		m.waiting = nil
		for _, do := range waiting {
			m.deliver(do)
		}
		m.process(func() {})()
	})
}
