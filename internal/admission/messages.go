package admission

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/mem"
)

const (
	messageHead = 5 // of gRPC: a flag and the size
	// frameCost is what gRPC keeps of a frame besides its bytes, about.
	frameCost = 128
)

// Messages bounds what messages take that have begun to arrive and are not whole
// yet. gRPC keeps what there is of each, up to the largest message that it takes,
// for as long as the stream is open; nobody else sees it before it is whole. It
// may be used by several goroutines.
type Messages struct {
	most    int64
	closed  func(peer net.Addr, bytes int64)
	pace    func(address string, streams int) time.Duration
	metrics *Metrics
	used    atomic.Int64

	mu   sync.Mutex
	open map[*messageConn]struct{}
}

// NewMessages bounds them to so many bytes over all connections. Where they take
// more, the largest connection of the address that holds most is closed, and
// closed told of it.
func NewMessages(most int64, m *Metrics, closed func(peer net.Addr, bytes int64)) *Messages {
	return &Messages{most: most, metrics: m, closed: closed, open: map[*messageConn]struct{}{}}
}

// Pace asks, before streams that an address opens are handed on, how long that has
// to wait. Meanwhile nothing of their connection is read, so that a client which
// opens and resets them without end is slowed down, and no other. It is to be
// called before the first connection.
func (m *Messages) Pace(wait func(address string, streams int) time.Duration) { m.pace = wait }

// Used is how many bytes they take now.
func (m *Messages) Used() int64 { return m.used.Load() }

// Follow counts the messages that a client of gRPC sends over a connection, which
// has to be used by way of what it gives, from its first byte on. See [Messages.Over].
func (m *Messages) Follow(c net.Conn) net.Conn {
	f := &messageConn{Conn: c, all: m, address: Address(c.RemoteAddr()), streams: map[uint32]partial{}, left: make(chan struct{})}
	f.in.skip = prefaceSize
	f.visitIn, f.visitOut = f.received, f.sent
	m.mu.Lock()
	m.open[f] = struct{}{}
	m.mu.Unlock()
	if tcp := tcpOf(c); tcp != nil {
		if ready := newReadyReader(tcp); ready != nil {
			return &readyConn{f, ready}
		}
	}
	return f
}

// Around is a connection that reads and writes what the one beneath it does.
type Around interface {
	Beneath() net.Conn
}

// tcpOf is the socket that a connection reads from, nil if what it reads is not
// what the socket has, as with TLS.
func tcpOf(c net.Conn) *net.TCPConn {
	for {
		around, ok := c.(Around)
		if !ok {
			tcp, _ := c.(*net.TCPConn)
			return tcp
		}
		c = around.Beneath()
	}
}

// readyConn is a connection that gRPC need not give a buffer of 32 KB for as long as
// it has nothing to say: gRPC knows plain sockets, but not what is around them.
type readyConn struct {
	*messageConn

	ready *readyReader
}

// ReadOnReady is what gRPC looks for: it takes the buffer from the pool when there
// is something to read.
func (c *readyConn) ReadOnReady(size int, pool mem.BufferPool) (buffer *[]byte, n int, err error) {
	if buffer, n, err = c.ready.read(size, pool); n > 0 {
		c.follow((*buffer)[:n])
	}
	return buffer, n, err
}

// relieve closes connections until there is room.
func (m *Messages) relieve() {
	for m.used.Load() > m.most {
		c := m.heaviest()
		if c == nil {
			return
		}
		bytes := c.leave()
		_ = c.Conn.Close() // whoever uses it sees
		m.metrics.connection(PartMessages)
		m.closed(c.RemoteAddr(), bytes)
	}
}

// heaviest is the largest connection of the address that holds most.
func (m *Messages) heaviest() *messageConn {
	m.mu.Lock()
	defer m.mu.Unlock()
	by := map[string]int64{}
	for c := range m.open {
		by[c.address] += c.held.Load()
	}
	var out *messageConn
	var most [2]int64
	for c := range m.open {
		if of := [2]int64{by[c.address], c.held.Load()}; of[1] > 0 && (of[0] > most[0] || of[0] == most[0] && of[1] > most[1]) {
			out, most = c, of
		}
	}
	return out
}

// messageConn follows the messages of a connection.
type messageConn struct {
	net.Conn

	all               *Messages
	address           string
	visitIn, visitOut func(f *frames, data []byte, end bool)
	held              atomic.Int64 // bytes of messages that are not whole

	mu      sync.Mutex // reading, writing and closing are done by different goroutines
	in, out frames
	streams map[uint32]partial // that are open
	opened  int                // streams, by what was read last
	left    chan struct{}      // closed when it is gone
	gone    bool
}

// Read implements net.Conn.
func (c *messageConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.follow(b[:n])
	}
	return n, err
}

// follow counts what was read.
func (c *messageConn) follow(b []byte) {
	c.mu.Lock()
	c.opened = 0
	c.in.walk(b, c.visitIn)
	opened := c.opened
	c.mu.Unlock()
	c.all.relieve()
	if opened == 0 || c.all.pace == nil {
		return
	}
	if wait := c.all.pace(c.address, opened); wait > 0 {
		select {
		case <-time.After(wait):
		case <-c.left:
		}
	}
}

// Write implements net.Conn.
func (c *messageConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.out.walk(b, c.visitOut)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *messageConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// SyscallConn implements syscall.Conn where the connection has it.
func (c *messageConn) SyscallConn() (syscall.RawConn, error) { return rawConn(c.Conn) }

// leave takes all that it holds out of the count.
func (c *messageConn) leave() (bytes int64) {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes = c.held.Load()
	c.hold(-bytes)
	if !c.gone {
		close(c.left)
	}
	c.gone, c.streams = true, nil
	return bytes
}

func (c *messageConn) hold(bytes int64) {
	c.held.Add(bytes)
	c.all.used.Add(bytes)
}

// received takes a piece of a frame that the client sent.
func (c *messageConn) received(f *frames, data []byte, end bool) {
	if c.gone {
		return
	}
	p, open := c.streams[f.stream]
	switch {
	case f.kind == frameHeaders && !open:
		c.streams[f.stream] = p
		c.opened++
	case f.kind == frameData && open && len(data) > 0: // what comes after its end is not kept
		before := p.held
		p.take(data, f.fresh)
		c.streams[f.stream] = p
		c.hold(p.held - before)
	}
	c.ended(f, end)
}

// sent takes a piece of a frame that the server sent.
func (c *messageConn) sent(f *frames, _ []byte, end bool) { c.ended(f, end) }

// ended forgets a stream that a frame ends: gRPC does, too.
func (c *messageConn) ended(f *frames, end bool) {
	if !end {
		return
	}
	if f.kind == frameReset || (f.kind == frameData || f.kind == frameHeaders) && f.flags&flagEndStream != 0 {
		c.hold(-c.streams[f.stream].held) // none of a stream that is not known
		delete(c.streams, f.stream)
	}
}

// partial is a message that is not whole.
type partial struct {
	head [messageHead]byte
	have int    // bytes of the head; 0: no message has begun
	left uint32 // bytes of the message to come
	held int64
	paid bool // the cost of the frame is in held
}

// take takes what came of a stream, which may end messages and begin others, and
// which may begin a frame.
func (p *partial) take(b []byte, frame bool) {
	p.held += int64(len(b))
	p.paid = p.paid && !frame
	for len(b) > 0 {
		if p.have < messageHead {
			n := copy(p.head[p.have:], b)
			p.have += n
			b = b[n:]
			if p.have < messageHead {
				break
			}
			p.left = binary.BigEndian.Uint32(p.head[1:])
		}
		n := min(int(p.left), len(b))
		p.left -= uint32(n) //nolint:gosec // not above left
		b = b[n:]
		if p.left == 0 {
			p.have, p.held, p.paid = 0, int64(len(b)), false
		}
	}
	if p.have > 0 && !p.paid {
		p.held, p.paid = p.held+frameCost, true
	}
}
