package testhelp

import (
	"context"
	"net"
	"sync"
)

// Pipe is a listener in memory for HTTP in a bubble of virtual time. net/http
// sets deadlines that are long over to interrupt a read, and bufconn makes timers
// of them; where two connections of a bubble do so at once, the race detector of
// Go 1.26 crashes. The ends of a net.Pipe need no timer for that. As with a socket,
// a client has written when its bytes are on their way: a server may answer
// and hang up before it has read all of them.
type Pipe struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewPipe is to be called in the bubble.
func NewPipe() *Pipe {
	return &Pipe{dialed: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (p *Pipe) Accept() (net.Conn, error) {
	select {
	case <-p.closed:
		return nil, net.ErrClosed
	case c := <-p.dialed:
		return c, nil
	}
}

// Close implements net.Listener.
func (p *Pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *Pipe) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// DialContext connects to the listener, and returns when that has accepted.
func (p *Pipe) DialContext(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.dialed <- far:
		c := &sender{Conn: near}
		c.changed.L = &c.mu
		go c.send()
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// sender is the client's end of a connection: what is written waits in it for
// the server to read it.
type sender struct {
	net.Conn

	mu      sync.Mutex
	changed sync.Cond // of what follows
	waiting []byte
	closed  bool
}

func (c *sender) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	c.waiting = append(c.waiting, b...)
	c.changed.Signal()
	return len(b), nil
}

// Close drops what the server has not read.
func (c *sender) Close() error {
	c.mu.Lock()
	c.closed = true
	c.changed.Signal()
	c.mu.Unlock()
	return c.Conn.Close()
}

// send passes on what is written until either end is closed.
func (c *sender) send() {
	for {
		b := c.next()
		if b == nil {
			return
		}
		if _, err := c.Conn.Write(b); err != nil {
			return // the reader knows
		}
	}
}

// next waits for bytes to send; nil says that there will be none.
func (c *sender) next() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) == 0 && !c.closed {
		c.changed.Wait()
	}
	if c.closed {
		return nil
	}
	b := c.waiting
	c.waiting = nil
	return b
}
