package admission

import (
	"container/list"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Limits of a listener.
type Limits struct {
	Rate    *Rate // of new connections; nil = none
	Most    int   // open connections; one address may have half of them
	Pool    *Pool // bounds them together with those of other listeners; nil = it does not
	Metrics *Metrics
	What    string // the connections are in the metrics; "" = those of clients

	// Yield lets a connection above the limits replace one that has sent no whole request, or
	// whose client does not read: the oldest of the address with most connections. The server has
	// to name these, by [TrackRequests].
	Yield bool
	// Urgent reports by a client's first bytes whether its request can't wait, such as a probe.
	// Its connection is not replaced for a second, and a few of them may exceed the limits. It is
	// called only with Yield; nil = no request is urgent.
	Urgent func(head []byte) bool
}

// Bounds of urgent connections.
const (
	mostUrgent  = 8           // beyond the limits
	urgentFor   = time.Second // since it was accepted, until its request is answered
	urgentBytes = 1 << 10     // that are looked at

	urgentWait = 20 * time.Millisecond // for a connection to be closed for an urgent one
)

func (l *Limits) what() string {
	if l.What == "" {
		return ofClients
	}
	return l.What
}

// Listen limits the connections of a listener: those beyond it are closed at
// once, before anything is read or any certificate shown. Clients of gRPC and
// Envoy then wait, with jitter, before they try again.
func Listen(l net.Listener, limits Limits) net.Listener {
	if limits.Metrics == nil {
		limits.Metrics = NewMetrics(nil)
	}
	out := &listener{Listener: l, limits: limits, open: map[string]int{}}
	limits.Pool.enter(out)
	if limits.Yield {
		out.yielding = newYielding()
		deferAccept(l)
	}
	return out
}

type listener struct {
	net.Listener

	limits   Limits
	yielding *yielding // nil = no connection is replaced; its fields are guarded by mu

	mu    sync.Mutex
	total int
	open  map[string]int // by address
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := Address(c.RemoteAddr())
		entered := &conn{Conn: c, listener: l, address: address, urgentUntil: l.urgentUntil(c)}
		if refused := l.admit(entered); refused != "" {
			l.limits.Metrics.refuse(l.limits.what(), refused)
			_ = c.Close() // nothing was written that could be lost
			continue
		}
		return entered, nil
	}
}

// urgentUntil returns until when a new connection is urgent, Unix ns; 0 = it is not.
func (l *listener) urgentUntil(c net.Conn) int64 {
	if l.yielding == nil || l.limits.Urgent == nil {
		return 0
	}
	head := make([]byte, urgentBytes)
	if n := peek(c, head); n == 0 || !l.limits.Urgent(head[:n]) {
		return 0
	}
	return time.Now().Add(urgentFor).UnixNano()
}

// admit lets a connection in below the limits, or if it can replace another one. For an urgent
// one it waits a moment.
func (l *listener) admit(c *conn) Reason {
	refused := l.enterInPlace(c, 0)
	if refused == "" || c.urgentUntil == 0 {
		return refused
	}
	if refused = l.enter(c, mostUrgent); refused == "" || !l.yielding.wait() {
		return refused
	}
	return l.enterInPlace(c, mostUrgent)
}

// enterInPlace is enter, in place of another connection at the limit.
func (l *listener) enterInPlace(c *conn, more int) Reason {
	refused := l.enter(c, more)
	if refused != "" && l.evict(c.address, refused) {
		refused = l.enter(c, more)
	}
	return refused
}

// enter counts a connection, unless it is above the limits by more.
func (l *listener) enter(c *conn, more int) Reason {
	address := c.address
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.total >= l.limits.Most+more:
		return Connections
	case l.open[address] >= l.mostOfOne()+more:
		return PeerConnections
	}
	if l.limits.Rate != nil {
		if refused := l.limits.Rate.Take(address, time.Now()); refused != "" {
			return refused
		}
	}
	if !l.limits.Pool.take() {
		return Connections
	}
	l.total++
	l.open[address]++
	if l.yielding != nil {
		l.yielding.enter(c)
	}
	if l.limits.what() == ofClients {
		l.limits.Metrics.connections.Inc()
	}
	return ""
}

// mostOfOne is how many connections one address may have.
func (l *listener) mostOfOne() int { return max(1, l.limits.Most/2) }

func (l *listener) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	address := c.address
	l.total--
	if l.yielding != nil {
		l.yielding.leave(c)
		l.yielding.notify()
	}
	l.limits.Pool.release()
	if l.open[address]--; l.open[address] == 0 {
		delete(l.open, address)
	}
	if l.limits.what() == ofClients {
		l.limits.Metrics.connections.Dec()
	}
}

// conn tells its listener when it is closed.
type conn struct {
	net.Conn

	listener *listener
	address  string
	closing  sync.Once

	urgentUntil int64 // it is not replaced before, Unix ns; guarded by the listener's lock once it has entered

	waits   *list.Element // of yielding.waiting, guarded by the listener's lock; nil = it is being served
	writing atomic.Int64  // start of the present write, Unix ns; 0 = none
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closing.Do(func() { c.listener.leave(c) })
	return c.Conn.Close()
}

// Beneath implements [Around].
func (c *conn) Beneath() net.Conn { return c.Conn }

// SyscallConn implements syscall.Conn where the connection has it.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return rawConn(c.Conn) }

// rawConn is the socket of a connection, an error where it has none.
func rawConn(c net.Conn) (syscall.RawConn, error) {
	if socket, ok := c.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, syscall.EINVAL
}

// Files divides the files that the process may have open, RLIMIT_NOFILE, so that
// no flood of connections keeps operators out, or the state from being written.
type Files struct {
	Limit   int // of the process; 0 = unknown or so large that it bounds nothing
	Clients int // connections of clients, all listeners together
	Admin   int // connections of operators
}

const (
	// leastReserve files are kept for state, configuration, certificates, recordings, connections
	// to others and the runtime.
	leastReserve, mostReserve = 64, 1_024
	leastAdmin                = 16
)

// DivideFiles keeps an eighth of the files in reserve (64 to 1,024), and up to an
// eighth for the connections of operators, of which there are mostAdmin at most.
func DivideFiles(limit, mostAdmin int) Files {
	reserve := min(max(limit/8, leastReserve), mostReserve)
	admin := min(max(limit/8, leastAdmin), mostAdmin)
	return Files{Limit: limit, Admin: admin, Clients: max(1, limit-reserve-admin)}
}

// Pool bounds the connections of several listeners together.
type Pool struct {
	most int64
	open atomic.Int64

	mu        sync.Mutex
	listeners []*listener
}

// NewPool makes a pool of so many connections.
func NewPool(most int) *Pool { return &Pool{most: int64(most)} }

// Open returns how many of the connections are open, and how many may be.
func (p *Pool) Open() (open, most int) { return int(p.open.Load()), int(p.most) }

// enter makes a listener one of those that Fullest looks at.
func (p *Pool) enter(l *listener) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.listeners = append(p.listeners, l)
	}
}

// Fullest returns the address with most connections to one listener; zero without connections.
func (p *Pool) Fullest() (out Use) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.listeners {
		l.mu.Lock()
		for address, n := range l.open {
			if n > out.Used || n == out.Used && address < out.Peer {
				out = Use{address, n, l.mostOfOne()}
			}
		}
		l.mu.Unlock()
	}
	return out
}

// take reports whether one more connection was below the limit, and counts it. A nil pool has no
// limit.
func (p *Pool) take() bool {
	if p == nil {
		return true
	}
	if p.open.Add(1) > p.most {
		p.open.Add(-1)
		return false
	}
	return true
}

func (p *Pool) release() {
	if p != nil {
		p.open.Add(-1)
	}
}
