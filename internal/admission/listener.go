package admission

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// Limits of a listener.
type Limits struct {
	Rate    *Rate // of new connections; nil = none
	Most    int   // open connections; one address may have half of them
	Pool    *Pool // bounds them together with those of other listeners; nil = it does not
	Metrics *Metrics
}

// Listen limits the connections of a listener: those beyond it are closed at
// once, before anything is read or any certificate shown. Clients of gRPC and
// Envoy then wait, with jitter, before they try again.
func Listen(l net.Listener, limits Limits) net.Listener {
	if limits.Metrics == nil {
		limits.Metrics = NewMetrics(nil)
	}
	return &listener{Listener: l, limits: limits, open: map[string]int{}}
}

type listener struct {
	net.Listener

	limits Limits

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
		if refused := l.enter(address); refused != "" {
			l.limits.Metrics.connection(refused)
			_ = c.Close() // nothing was written that could be lost
			continue
		}
		return &conn{Conn: c, listener: l, address: address}, nil
	}
}

func (l *listener) enter(address string) Reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.total >= l.limits.Most:
		return Connections
	case l.open[address] >= max(1, l.limits.Most/2):
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
	l.limits.Metrics.connections.Inc()
	return ""
}

func (l *listener) leave(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	l.limits.Pool.release()
	if l.open[address]--; l.open[address] == 0 {
		delete(l.open, address)
	}
	l.limits.Metrics.connections.Dec()
}

// conn tells its listener when it is closed.
type conn struct {
	net.Conn

	listener *listener
	address  string
	closing  sync.Once
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closing.Do(func() { c.listener.leave(c.address) })
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
