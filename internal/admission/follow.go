package admission

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/mem"
)

// messageConn follows the messages of a connection.
type messageConn struct {
	net.Conn

	all               *Messages
	address           string
	visitIn, visitOut func(f *frames, data []byte, end bool)
	held              atomic.Int64 // memory of gRPC for its messages, bytes
	// kept was read from the connection beneath, and gRPC has not been given it
	// yet. Only the goroutine that reads uses it.
	kept []byte

	mu      sync.Mutex // reading, writing, taking and closing are done by different goroutines
	in, out frames
	streams map[uint32]*Unread // that are open
	newest  *Unread            // of the stream that the last read bytes open
	opened  int                // streams, by the last read bytes
	left    chan struct{}      // closed when it is gone
	gone    bool
}

// Read implements net.Conn. What it returns ends where a stream has been opened:
// gRPC then looks at that stream, and at no other, before it reads on, which tells
// [WithUnread] which one it is.
func (c *messageConn) Read(b []byte) (int, error) {
	if len(c.kept) > 0 {
		return c.readKept(b), nil
	}
	n, err := c.Conn.Read(b)
	if n == 0 {
		return 0, err
	}
	return c.keep(b[:n], err)
}

// keep follows the read bytes, and keeps those after a stream has been opened. The connection
// beneath fails again if it has failed.
func (c *messageConn) keep(b []byte, err error) (int, error) {
	n := c.follow(b)
	if n == len(b) {
		return n, err
	}
	c.kept = append([]byte(nil), b[n:]...)
	return n, nil
}

// readKept reads the kept bytes.
func (c *messageConn) readKept(b []byte) int {
	n := c.follow(c.kept[:min(len(b), len(c.kept))])
	copy(b, c.kept[:n])
	if c.kept = c.kept[n:]; len(c.kept) == 0 {
		c.kept = nil
	}
	return n
}

// follow counts the read bytes, up to where a stream has been opened, and returns their number.
func (c *messageConn) follow(b []byte) int {
	c.mu.Lock()
	c.opened = 0
	n := c.in.walk(b, c.visitIn)
	opened := c.opened
	c.mu.Unlock()
	c.all.relieve(c.left)
	if opened == 0 || c.all.pace == nil {
		return n
	}
	if wait := c.all.pace(c.address, opened); wait > 0 {
		select {
		case <-time.After(wait):
		case <-c.left:
		}
	}
	return n
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
	c.all.leave(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes = c.held.Load()
	c.hold(-bytes)
	if !c.gone {
		close(c.left)
	}
	c.gone, c.streams, c.newest = true, nil, nil
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
	u := c.streams[f.stream]
	switch {
	case f.kind == frameHeaders && u == nil:
		u = &Unread{conn: c}
		c.streams[f.stream], c.newest = u, u
		c.opened++
	case f.kind == frameData && u != nil && !u.finished && len(data) > 0: // gRPC does not keep bytes after the end
		before := u.held()
		u.take(data, f)
		c.hold(u.held() - before)
	}
	if (f.kind == frameHeaders || f.kind == frameContinuation) && f.flags&flagEndHeaders != 0 {
		f.stop = true
	}
	if end && u != nil {
		switch {
		case f.kind == frameReset:
			c.endStream(f.stream, u)
		case f.endsStream():
			u.finished = true // gRPC keeps earlier bytes, until the handler has read or left them
		}
	}
}

// sent takes a piece of a frame that the server sent.
func (c *messageConn) sent(f *frames, _ []byte, end bool) {
	if u := c.streams[f.stream]; end && u != nil && (f.kind == frameReset || f.endsStream()) {
		c.endStream(f.stream, u)
	}
}

// endStream forgets a stream: gRPC does, too.
func (c *messageConn) endStream(stream uint32, u *Unread) {
	c.hold(-u.held())
	u.gone, u.others = true, nil
	delete(c.streams, stream)
}

// Around is a connection that passes on the bytes of the one beneath it unchanged.
type Around interface {
	Beneath() net.Conn
}

// tcpOf is the socket that a connection reads from, nil if it reads other bytes than the socket
// has, as with TLS.
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

// readyConn is a connection to which gRPC need not give a buffer of 32 KB while no bytes arrive:
// gRPC does this for plain sockets, but not for connections around them.
type readyConn struct {
	*messageConn

	ready *readyReader
}

// ReadOnReady is the method that gRPC looks for: it takes the buffer from the pool when there is
// something to read.
func (c *readyConn) ReadOnReady(size int, pool mem.BufferPool) (buffer *[]byte, n int, err error) {
	if len(c.kept) > 0 {
		buffer = pool.Get(size)
		return buffer, c.readKept(*buffer), nil
	}
	if buffer, n, err = c.ready.read(size, pool); n > 0 {
		n, err = c.keep((*buffer)[:n], err)
	}
	return buffer, n, err
}
