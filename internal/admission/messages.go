package admission

import (
	"cmp"
	"maps"
	"net"
	"slices"
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

	relieving chan struct{} // capacity 1: one caller relieves at a time

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
	return &Messages{most: memory / ofParts * usedParts, metrics: m, closed: closed, open: map[holder]struct{}{}, relieving: make(chan struct{}, 1)}
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

// relieve ends holders until the memory is below the limit: always the largest of the address that holds
// most. One caller at a time does so, and the others wait: they would take more memory meanwhile.
// A holder that was ended waits no longer, because what it has is to be freed.
func (m *Messages) relieve(ended <-chan struct{}) {
	if m.used.Load() <= m.most {
		return
	}
	select {
	case m.relieving <- struct{}{}:
	case <-ended:
		return
	}
	defer func() { <-m.relieving }()
	for m.used.Load() > m.most {
		all := m.byAddress()
		if len(all) == 0 {
			return
		}
		for len(all) > 0 && m.used.Load() > m.most {
			at := fullest(all)
			from, bytes := all[at].take().end()
			m.metrics.refuse(ofClients, PartMessages)
			m.closed(from, bytes)
			if len(all[at].holders) == 0 {
				all = slices.Delete(all, at, at+1)
			}
		}
	}
}

// weighed is a holder with its memory, in bytes.
type weighed struct {
	holder

	bytes int64
}

// addressHolders are the holders of one address that hold something, the largest last.
type addressHolders struct {
	holders []weighed
	bytes   int64
}

// take removes the largest.
func (a *addressHolders) take() holder {
	last := len(a.holders) - 1
	out := a.holders[last]
	a.holders, a.bytes = a.holders[:last], a.bytes-out.bytes
	return out.holder
}

// fullest is the address that holds most, and of several that with the largest holder.
func fullest(all []addressHolders) (at int) {
	for i := range all {
		a, most := &all[i], &all[at]
		if a.bytes > most.bytes || a.bytes == most.bytes && a.holders[len(a.holders)-1].bytes > most.holders[len(most.holders)-1].bytes {
			at = i
		}
	}
	return at
}

// byAddress lists what holds something.
func (m *Messages) byAddress() []addressHolders {
	m.mu.Lock()
	open := slices.Collect(maps.Keys(m.open))
	m.mu.Unlock()
	index := map[string]int{}
	var out []addressHolders
	for _, h := range open {
		address, bytes := h.of()
		if bytes <= 0 {
			continue
		}
		i, known := index[address]
		if !known {
			i = len(out)
			index[address], out = i, append(out, addressHolders{})
		}
		out[i].holders, out[i].bytes = append(out[i].holders, weighed{h, bytes}), out[i].bytes+bytes
	}
	for i := range out {
		slices.SortFunc(out[i].holders, func(x, y weighed) int { return cmp.Compare(x.bytes, y.bytes) })
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
	// Reads and writes fail then, which ends the connection for gRPC, too. TLS may wait for a client that does
	// not read, while other clients wait for this memory.
	go func() { _ = c.Conn.Close() }()
	return c.RemoteAddr(), bytes
}

// Body is the memory of a request over HTTP: the part of its body that was read, and the part
// that its handler keeps while it waits.
type Body struct {
	all    *Messages
	from   net.Addr
	cancel func()

	ended chan struct{} // closed when it is gone

	mu   sync.Mutex
	kept int64
	gone bool
}

// Body counts the memory of a client's request over HTTP. Close it with the request. If messages
// take too much, cancel may be called, which has to end the request.
func (m *Messages) Body(from net.Addr, cancel func()) *Body {
	b := &Body{all: m, from: from, cancel: cancel, ended: make(chan struct{})}
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
	b.all.relieve(b.ended)
}

// Close says that nothing is kept any more.
func (b *Body) Close() { b.leave() }

func (b *Body) leave() (bytes int64) {
	b.all.leave(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes = b.kept
	b.all.used.Add(-bytes)
	if !b.gone {
		close(b.ended)
	}
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
