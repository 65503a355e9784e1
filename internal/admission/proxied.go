package admission

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"
)

// Bounds of the bytes that a balancer sends before a connection counts.
const (
	proxyPatience = 5 * time.Second // for the whole header
	proxyWaiting  = 4096            // connections whose header is not whole, at once
	proxyMost     = 4096            // bytes of a header of version 2 after its first 16
	proxyLine     = 107             // bytes of a header of version 1
)

// Proxied are the balancers that tell the addresses of their clients.
type Proxied struct {
	From    []netip.Prefix // addresses of the balancers
	Metrics *Metrics
	// Refused is called for a connection of a balancer whose header is missing or damaged. It may
	// be called at once by several goroutines; nil = it is not called.
	Refused func(balancer net.Addr, err error)
}

// ListenProxied returns a listener whose connections from balancers have the address of
// the client that the balancer tells in a PROXY header, version 1 or 2. A balancer has
// to tell; from other addresses nothing is read, so a header of theirs is no request.
// A balancer that sends slowly delays no other connection.
func ListenProxied(l net.Listener, p Proxied) net.Listener {
	out := &proxiedListener{Listener: l, proxied: p, next: make(chan accepted), done: make(chan struct{}), waiting: map[net.Conn]struct{}{}}
	out.work.Go(out.accept)
	return out
}

type accepted struct {
	conn net.Conn
	err  error
}

type proxiedListener struct {
	net.Listener

	proxied Proxied
	next    chan accepted
	done    chan struct{} // closed by Close
	work    sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	waiting map[net.Conn]struct{} // their header is being read
}

// Accept implements net.Listener.
func (l *proxiedListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.next:
		return a.conn, a.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It ends the connections that were not accepted.
func (l *proxiedListener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.done)
	}
	for c := range l.waiting {
		_ = c.Close() // nothing was written
	}
	l.mu.Unlock()
	l.work.Wait()
	return err
}

func (l *proxiedListener) accept() {
	for {
		c, err := l.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil || !l.trusts(c.RemoteAddr()):
			l.give(c, err)
		case l.enter(c):
			l.work.Go(func() { l.read(c) })
		default:
			l.proxied.Metrics.refuse(ofClients, Connections)
			_ = c.Close() // nothing was written
		}
	}
}

// give hands a connection to Accept.
func (l *proxiedListener) give(c net.Conn, err error) {
	select {
	case l.next <- accepted{c, err}:
	case <-l.done:
		if c != nil {
			_ = c.Close() // nothing was written
		}
	}
}

func (l *proxiedListener) trusts(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return false
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	for _, p := range l.proxied.From {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

func (l *proxiedListener) enter(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.waiting) >= proxyWaiting {
		return false
	}
	l.waiting[c] = struct{}{}
	return true
}

// read reads the header of a connection, and hands the connection on.
func (l *proxiedListener) read(c net.Conn) {
	client, err := readProxyHeader(c)
	l.mu.Lock()
	delete(l.waiting, c)
	closed := l.closed
	l.mu.Unlock()
	switch {
	case err == nil && client == nil:
		l.give(c, nil) // the balancer itself, such as its health check
	case err == nil:
		l.give(&proxiedConn{c, client}, nil)
	case closed:
		_ = c.Close() // nothing was written
	default:
		l.proxied.Metrics.refuse(ofClients, ProxyHeader)
		if l.proxied.Refused != nil {
			l.proxied.Refused(c.RemoteAddr(), err)
		}
		_ = c.Close() // nothing was written
	}
}

// readProxyHeader reads a header and nothing after it: later bytes are read from the socket. It
// returns the address of the client, nil if the balancer does not send one.
func readProxyHeader(c net.Conn) (net.Addr, error) {
	if err := c.SetReadDeadline(time.Now().Add(proxyPatience)); err != nil {
		return nil, err
	}
	data, err := proxyHeaderBytes(c)
	if err != nil {
		return nil, fmt.Errorf("incomplete PROXY header: %w", err)
	}
	h, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(data)))
	if err != nil {
		return nil, fmt.Errorf("the PROXY header: %w", err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	if h.Command.IsLocal() || h.TransportProtocol.IsUnspec() {
		return nil, nil //nolint:nilnil // the balancer tells none
	}
	client, _, ok := h.TCPAddrs()
	if !ok {
		return nil, errors.New("the PROXY header has no TCP address")
	}
	return client, nil
}

// proxyHeaderBytes reads as many bytes as a header has.
func proxyHeaderBytes(r io.Reader) ([]byte, error) {
	const fixed = 16 // bytes of version 2 before its addresses; version 1 has one less at least
	data := make([]byte, fixed-1, fixed+256)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	one := make([]byte, 1)
	next := func() error {
		_, err := io.ReadFull(r, one)
		data = append(data, one[0])
		return err
	}
	switch {
	case bytes.HasPrefix(data, proxyproto.SIGV2):
		if err := next(); err != nil {
			return nil, err
		}
		rest := int(binary.BigEndian.Uint16(data[fixed-2:]))
		if rest > proxyMost {
			return nil, fmt.Errorf("its length is %d bytes, at most %d are allowed", rest, proxyMost)
		}
		data = append(data, make([]byte, rest)...)
		_, err := io.ReadFull(r, data[fixed:])
		return data, err
	case bytes.HasPrefix(data, proxyproto.SIGV1):
		for data[len(data)-1] != '\n' {
			if len(data) == proxyLine {
				return nil, fmt.Errorf("its line is longer than %d bytes", proxyLine)
			}
			if err := next(); err != nil {
				return nil, err
			}
		}
		return data, nil
	}
	return nil, proxyproto.ErrNoProxyProtocol
}

// proxiedConn is a connection of a client through a balancer.
type proxiedConn struct {
	net.Conn

	client net.Addr
}

// RemoteAddr implements net.Conn.
func (c *proxiedConn) RemoteAddr() net.Addr { return c.client }

// Beneath implements [Around].
func (c *proxiedConn) Beneath() net.Conn { return c.Conn }

// SyscallConn implements syscall.Conn where the connection has it.
func (c *proxiedConn) SyscallConn() (syscall.RawConn, error) { return rawConn(c.Conn) }
