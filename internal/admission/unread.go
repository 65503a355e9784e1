package admission

import (
	"context"
	"encoding/binary"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

const messageHead = 5 // of gRPC: a flag and the size

// gRPC's memory for a frame with data, about: a buffer of its own, which comes from a pool of few
// sizes unless it is small, and its place in a list that grows by doubling. gRPC joins many small
// ones in a row later. Messages ignores this, because usual clients send none.
const (
	frameOverhead = 128
	pooledFrom    = 1 << 10
	poolSmall     = 4 << 10
	poolLarge     = 16 << 10 // the largest frame that gRPC accepts
)

// messageOverhead is the most memory of a whole message in the list of those unread.
const messageOverhead = 32

// costOf returns the memory of a frame with so much payload.
func costOf(payload int) int64 {
	switch {
	case payload < pooledFrom:
		return frameOverhead + int64(payload)
	case payload <= poolSmall:
		return frameOverhead + poolSmall
	default:
		return frameOverhead + poolLarge
	}
}

// Unread is the data of a stream that its client sent and its handler has not taken.
type Unread struct {
	conn *messageConn // its lock guards the fields below

	head     [messageHead]byte // of the message that is coming in
	have     uint8             // bytes of the head; 0: no message has begun
	finished bool              // the client sends no more
	gone     bool              // the stream has ended
	adopted  bool              // the handler calls Taken for its messages
	left     uint32            // bytes of the message to come
	part     int64             // cost of the frames of the message that is coming in
	frame    int64             // of these the cost of the newest frame

	// Whole messages in order: those at the front that cost the same, the others,
	// and the cost of all of them.
	front  alike
	others []alike
	cost   int64
	grown  int64 // of cost: the memory of the message that the handler is taking, beyond its bytes on the wire
	kept   int64 // the memory that the handler keeps of messages that it has taken
}

// alike is a number of messages that cost the same.
type alike struct {
	messages int64
	each     int64
}

// held is the memory of gRPC for the stream, and of its handler.
func (u *Unread) held() int64 { return u.part + u.cost + u.kept }

// take takes data of a stream, a piece of a frame, which may end messages and begin others.
func (u *Unread) take(b []byte, f *frames) {
	if f.fresh {
		u.frame = costOf(f.size)
		u.part += u.frame
	}
	for len(b) > 0 {
		if u.have < messageHead {
			n := copy(u.head[u.have:], b)
			u.have += uint8(n) //nolint:gosec // at most 5
			b = b[n:]
			if u.have < messageHead {
				return
			}
			u.left = binary.BigEndian.Uint32(u.head[1:])
		}
		n := min(int(u.left), len(b))
		u.left -= uint32(n) //nolint:gosec // not above left
		b = b[n:]
		if u.left == 0 {
			u.ended(len(b) > 0 || f.left > f.padding)
		}
	}
}

// ended notes that the message is whole. gRPC holds a frame until all of it was
// read: it counts with the last message that has a part in it.
func (u *Unread) ended(frameGoesOn bool) {
	cost := u.part
	u.have, u.part = 0, 0
	if frameGoesOn {
		cost -= u.frame
		u.part = u.frame
	}
	if !u.adopted {
		return
	}
	cost += messageOverhead
	u.cost += cost
	last := &u.front
	if n := len(u.others); n > 0 {
		last = &u.others[n-1]
	}
	switch {
	case u.front.messages == 0:
		u.front = alike{1, cost}
	case last.each == cost:
		last.messages++
	default:
		u.others = append(u.others, alike{1, cost})
	}
}

// Waits says that the message which the handler is taking takes so many bytes while it waits for
// its turn. A compressed message takes many times its bytes on the wire.
func (u *Unread) Waits(bytes int) {
	if u == nil {
		return
	}
	c := u.conn
	c.mu.Lock()
	if more := int64(bytes) - u.front.each - u.grown; more > 0 && !c.gone && !u.gone && u.front.messages > 0 {
		u.grown += more
		u.cost += more
		c.hold(more)
	}
	c.mu.Unlock()
	c.all.relieve(c.left)
}

// Keeps says how many bytes the handler keeps from now on of messages that it has taken.
func (u *Unread) Keeps(bytes int) {
	if u == nil {
		return
	}
	c := u.conn
	c.mu.Lock()
	if !c.gone && !u.gone {
		c.hold(int64(bytes) - u.kept)
		u.kept = int64(bytes)
	}
	c.mu.Unlock()
	c.all.relieve(c.left)
}

// Taken says that the handler of the stream has taken a message.
func (u *Unread) Taken() {
	if u == nil {
		return
	}
	c := u.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || u.gone || u.front.messages == 0 {
		return
	}
	c.hold(-u.front.each - u.grown)
	u.cost -= u.front.each + u.grown
	u.grown = 0
	if u.front.messages--; u.front.messages == 0 && len(u.others) > 0 {
		u.front = u.others[0]
		if u.others = u.others[1:]; len(u.others) == 0 {
			u.others = nil
		}
	}
}

type unreadKey struct{}

// WithUnread notes in the context of a stream that has just been opened its unread data; its
// handler has to report the messages that it takes. It is for [tap.ServerInHandle], on
// connections that come by [Messages.Over]. Data that no handler takes counts only while it is
// incomplete.
func WithUnread(ctx context.Context) context.Context {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx
	}
	info, ok := p.AuthInfo.(followedInfo)
	if !ok {
		return ctx
	}
	c := info.conn
	c.mu.Lock()
	u := c.newest
	c.newest = nil
	if u != nil {
		u.adopted = true
	}
	c.mu.Unlock()
	if u == nil {
		return ctx
	}
	return context.WithValue(ctx, unreadKey{}, u)
}

// UnreadOf returns the unread data of the stream with this context, nil if it is not counted.
func UnreadOf(ctx context.Context) *Unread {
	u, _ := ctx.Value(unreadKey{}).(*Unread)
	return u
}

// followedInfo is that of a connection whose messages are counted.
type followedInfo struct {
	credentials.AuthInfo

	conn *messageConn
}

// TLSInfo returns the TLS state of a peer, and whether it connects by TLS.
func TLSInfo(p *peer.Peer) (credentials.TLSInfo, bool) {
	info := p.AuthInfo
	if f, ok := info.(followedInfo); ok {
		info = f.AuthInfo
	}
	out, ok := info.(credentials.TLSInfo)
	return out, ok
}

// The parts of HTTP/2 frames (RFC 9113, sections 4.1 and 6) that show where messages begin and
// end.
const (
	frameHead   = 9
	prefaceSize = 24 // of a client, before its first frame

	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameContinuation = 9

	flagEndStream  = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
)

// frames follows the frames of one direction of a connection.
type frames struct {
	skip int // bytes to pass before the next head
	head [frameHead]byte
	have int // bytes of the head

	kind, flags byte
	stream      uint32
	size        int  // of the payload
	left        int  // bytes of the payload to come
	padding     int  // of them at the end
	padded      bool // the next byte tells padding
	fresh       bool // no piece was passed on
	stop        bool // walk ends with this frame
}

// endsStream reports whether the frame is the last one of its sender on a stream.
func (f *frames) endsStream() bool {
	return (f.kind == frameData || f.kind == frameHeaders) && f.flags&flagEndStream != 0
}

// walk tells visit of the payload in b, piece by piece: data of DATA frames, and
// of all others that they are there. The last piece of a frame, which may be
// empty, has end set. Where visit sets stop, walk returns at the end of the frame.
// It returns how many bytes it has passed.
func (f *frames) walk(all []byte, visit func(f *frames, data []byte, end bool)) int {
	b := all
	for {
		n := min(f.skip, len(b))
		f.skip -= n
		b = b[n:]
		if f.stop && f.skip == 0 {
			f.stop = false
			return len(all) - len(b)
		}
		if f.have < frameHead {
			n = copy(f.head[f.have:], b)
			f.have += n
			b = b[n:]
			if f.have < frameHead {
				return len(all)
			}
			f.begin()
		}
		if f.padded {
			if len(b) == 0 {
				return len(all)
			}
			f.padding, f.padded = min(int(b[0]), f.left-1), false
			f.left--
			b = b[1:]
		}
		n = min(max(f.left-f.padding, 0), len(b))
		f.left -= n
		end := f.left == f.padding
		if n > 0 || end {
			visit(f, b[:n], end)
			f.fresh = false
		}
		b = b[n:]
		if !end {
			return len(all)
		}
		f.skip, f.have = f.left, 0
	}
}

// begin reads a head.
func (f *frames) begin() {
	size := int(binary.BigEndian.Uint32(f.head[:4]) >> 8)
	f.kind, f.flags, f.stream = f.head[3], f.head[4], binary.BigEndian.Uint32(f.head[5:])&^(1<<31)
	f.fresh, f.size, f.left, f.padding, f.padded = true, size, size, 0, f.kind == frameData && f.flags&flagPadded != 0 && size > 0
	if f.kind != frameData {
		f.padding = size // no handler reads it
	}
}
