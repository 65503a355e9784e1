package main

import (
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// network is what is wrong between checkers and the gates that they probe.
type network struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every change
	hanging map[*gate]bool
	cut     map[int]*cutProcess
}

func newNetwork() *network {
	return &network{changed: make(chan struct{}), hanging: map[*gate]bool{}, cut: map[int]*cutProcess{}}
}

func (n *network) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
	close(n.changed)
	n.changed = make(chan struct{})
}

// holds tells whether what came over a connection gets no answer now, and gives
// what is closed when that may have changed.
func (n *network) holds(c *gateConn) (bool, <-chan struct{}) {
	n.mu.Lock()
	held, changed := n.hanging[c.gate], n.changed
	cut := slices.Collect(maps.Values(n.cut))
	n.mu.Unlock()
	for _, p := range cut {
		held = held || p.has(c)
	}
	return held, changed
}

// cutProcess is a process that gets no answer from any gate. The system is asked
// for all of its connections at once, and never twice at a time: asked for each
// one it takes so long on a busy machine that the gates answer nobody in time.
type cutProcess struct {
	pid int

	mu      sync.Mutex
	asked   time.Time
	sockets map[[2]int]bool // its ports, and those at the other end
}

// has tells whether a connection is one of the process.
func (p *cutProcess) has(c *gateConn) bool {
	if is, known := c.owners.Load(p); known {
		return is == true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked.Before(c.accepted) {
		p.asked = time.Now()
		p.sockets = socketsOf(p.pid)
	}
	there, ok := c.RemoteAddr().(*net.TCPAddr)
	here, ours := c.LocalAddr().(*net.TCPAddr)
	is := ok && ours && p.sockets[[2]int{there.Port, here.Port}]
	c.owners.Store(p, is)
	return is
}

// gate is a listener on loopback that can hang (it accepts connections and
// never answers) and refuse them, and goes on at the same address.
type gate struct {
	network  *network
	address  net.Addr
	accepted chan net.Conn
	done     chan struct{}
	close    func() error

	mu       sync.Mutex
	listener net.Listener // nil while it refuses
	conns    map[*gateConn]bool
}

func newGate(tb testing.TB, n *network) *gate {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	g := &gate{
		network: n, address: l.Addr(), accepted: make(chan net.Conn), done: make(chan struct{}),
		listener: l, conns: map[*gateConn]bool{},
	}
	g.close = sync.OnceValue(func() error {
		close(g.done)
		g.refuse()
		return nil
	})
	go g.accept(l)
	tb.Cleanup(func() { _ = g.close() })
	return g
}

func (g *gate) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		c := &gateConn{Conn: conn, gate: g, accepted: time.Now(), closed: make(chan struct{})}
		g.mu.Lock()
		g.conns[c] = true
		g.mu.Unlock()
		select {
		case g.accepted <- c:
		case <-g.done:
			_ = c.Close()
			return
		}
	}
}

// refuse breaks all connections, and new ones are refused.
func (g *gate) refuse() {
	g.mu.Lock()
	l := g.listener
	g.listener = nil
	conns := g.conns
	g.conns = map[*gateConn]bool{}
	g.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	for c := range conns {
		_ = c.Close()
	}
}

func (g *gate) hang() { g.network.change(func() { g.network.hanging[g] = true }) }

// fix lets the gate work again. An outgoing connection may have got its port
// meanwhile, which passes.
func (g *gate) mend(tb testing.TB) {
	tb.Helper()
	g.network.change(func() { delete(g.network.hanging, g) })
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	for range 1200 {
		if g.listener != nil {
			return
		}
		if g.listener, err = net.Listen("tcp", g.address.String()); err == nil {
			go g.accept(g.listener)
			return
		}
		g.listener = nil
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // a port of the operating system: bounded polling
	}
	tb.Fatal(err)
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case c := <-g.accepted:
		return c, nil
	case <-g.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (g *gate) Close() error { return g.close() }

// Addr implements net.Listener.
func (g *gate) Addr() net.Addr { return g.address }

// gateConn is a connection of which what comes in can be held back.
type gateConn struct {
	net.Conn

	gate     *gate
	accepted time.Time
	once     sync.Once
	closed   chan struct{}
	owners   sync.Map // of each *cutProcess that was asked whether it is: bool
}

// Read implements net.Conn.
func (c *gateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		return n, err
	}
	for {
		held, changed := c.gate.network.holds(c)
		if !held {
			return n, nil
		}
		select {
		case <-changed:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
}

// Close implements net.Conn.
func (c *gateConn) Close() error {
	err := os.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		err = c.Conn.Close()
		c.gate.mu.Lock()
		delete(c.gate.conns, c)
		c.gate.mu.Unlock()
	})
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
