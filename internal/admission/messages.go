package admission

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// Messages bounds the memory of messages that gRPC holds: incomplete messages, up to the largest
// size that it accepts on each stream, and whole messages that no handler has taken. It also
// bounds the memory that handlers keep of messages, and the bodies of requests over HTTP
// ([Body]). It may be used by several goroutines.
type Messages struct {
	most    int64
	closed  func(peer net.Addr, bytes int64)
	pace    func(address string, streams int) time.Duration
	metrics *Metrics
	used    atomic.Int64

	mu   sync.Mutex
	open map[holder]struct{}
}

// holder is one that holds messages: a connection, or a request over HTTP.
type holder interface {
	// of returns the address under which it counts, and its memory, in bytes.
	of() (address string, bytes int64)
	// end ends it, and returns its address and its memory.
	end() (from net.Addr, bytes int64)
}

// The usable part of the limit: the heap grows to twice the memory in use before Go's collector
// runs, and pools keep returned buffers for a while.
const (
	usedParts = 2
	ofParts   = 5
)

// NewMessages limits them so that they make the process no larger than memory bytes, over all
// connections: the heap grows to a multiple of the memory in use. Above the limit, the largest
// connection of the address that holds most is closed, and closed is called with its address and
// the memory that it held.
func NewMessages(memory int64, m *Metrics, closed func(peer net.Addr, bytes int64)) *Messages {
	return &Messages{most: memory / ofParts * usedParts, metrics: m, closed: closed, open: map[holder]struct{}{}}
}

// Pace asks, before streams that an address opens are handed on, how long that has
// to wait. Meanwhile nothing of their connection is read, so that a client which
// opens and resets them without end is slowed down, and no other. It is to be
// called before the first connection.
func (m *Messages) Pace(wait func(address string, streams int) time.Duration) { m.pace = wait }

// Used is how many bytes they take now, as gRPC holds them.
func (m *Messages) Used() int64 { return m.used.Load() }

// Most is how many bytes they may take.
func (m *Messages) Most() int64 { return m.most }

// followed returns the connection for gRPC, and its follower.
func (m *Messages) followed(c net.Conn) (net.Conn, *messageConn) {
	f := m.follow(c)
	if tcp := tcpOf(c); tcp != nil {
		if ready := newReadyReader(tcp); ready != nil {
			return &readyConn{f, ready}, f
		}
	}
	return f, f
}

func (m *Messages) follow(c net.Conn) *messageConn {
	f := &messageConn{Conn: c, all: m, address: Address(c.RemoteAddr()), streams: map[uint32]*Unread{}, left: make(chan struct{})}
	f.in.skip = prefaceSize
	f.visitIn, f.visitOut = f.received, f.sent
	m.enter(f)
	return f
}

// relieve closes connections until the memory is below the limit.
func (m *Messages) relieve() {
	for m.used.Load() > m.most {
		h := m.heaviest()
		if h == nil {
			return
		}
		from, bytes := h.end()
		m.metrics.refuse(ofClients, PartMessages)
		m.closed(from, bytes)
	}
}

// heaviest is the largest holder of the address that holds most.
func (m *Messages) heaviest() holder {
	m.mu.Lock()
	defer m.mu.Unlock()
	by := map[string]int64{}
	for h := range m.open {
		address, bytes := h.of()
		by[address] += bytes
	}
	var out holder
	var most [2]int64
	for h := range m.open {
		address, bytes := h.of()
		if of := [2]int64{by[address], bytes}; bytes > 0 && (of[0] > most[0] || of[0] == most[0] && bytes > most[1]) {
			out, most = h, of
		}
	}
	return out
}

func (m *Messages) enter(h holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[h] = struct{}{}
}

func (m *Messages) leave(h holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, h)
}

// of implements holder.
func (c *messageConn) of() (address string, bytes int64) { return c.address, c.held.Load() }

// end implements holder.
func (c *messageConn) end() (from net.Addr, bytes int64) {
	bytes = c.leave()
	_ = c.Conn.Close() // reads and writes fail then, which ends the connection for gRPC, too
	return c.RemoteAddr(), bytes
}

// Body is the memory of a request over HTTP: the part of its body that was read, and the part
// that its handler keeps while it waits.
type Body struct {
	all    *Messages
	from   net.Addr
	cancel func()

	mu   sync.Mutex
	kept int64
	gone bool
}

// Body counts the memory of a client's request over HTTP. Close it with the request. If messages
// take too much, cancel may be called, which has to end the request.
func (m *Messages) Body(from net.Addr, cancel func()) *Body {
	b := &Body{all: m, from: from, cancel: cancel}
	m.enter(b)
	return b
}

// Waits says that the request keeps so many bytes while it waits.
func (b *Body) Waits(bytes int) { b.Keeps(bytes) }

// Keeps says how many bytes are kept of the request from now on.
func (b *Body) Keeps(bytes int) {
	b.mu.Lock()
	if !b.gone {
		b.all.used.Add(int64(bytes) - b.kept)
		b.kept = int64(bytes)
	}
	b.mu.Unlock()
	b.all.relieve()
}

// Close says that nothing is kept any more.
func (b *Body) Close() { b.leave() }

func (b *Body) leave() (bytes int64) {
	b.all.leave(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes = b.kept
	b.all.used.Add(-bytes)
	b.kept, b.gone = 0, true
	return bytes
}

// of implements holder.
func (b *Body) of() (address string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Address(b.from), b.kept
}

// end implements holder.
func (b *Body) end() (from net.Addr, bytes int64) {
	if bytes = b.leave(); bytes > 0 { // else it has ended by itself
		b.cancel()
	}
	return b.from, bytes
}

// Over counts the messages of all connections that come by these credentials. It
// stands above TLS, where frames can be read.
func (m *Messages) Over(c credentials.TransportCredentials) credentials.TransportCredentials {
	return counted{c, m}
}

type counted struct {
	credentials.TransportCredentials

	messages *Messages
}

// ServerHandshake implements credentials.TransportCredentials.
func (c counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	followed, f := c.messages.followed(conn)
	return followed, followedInfo{info, f}, nil
}

// Clone implements credentials.TransportCredentials.
func (c counted) Clone() credentials.TransportCredentials {
	return counted{c.TransportCredentials.Clone(), c.messages}
}
