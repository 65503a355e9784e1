package rawclient

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/net/http2"
)

// Message is a message to be sent on a stream.
type Message struct {
	Stream int
	Body   []byte // what is left to send of it

	begun bool
}

// Send has messages sent on streams, in order, as the server takes them. It
// may be called while Run runs; the bodies must not change until they are sent.
func (c *Conn) Send(messages []Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		c.queue(m.Stream, m.Body, true)
	}
	return c.flush()
}

// queue writes what fits into the server's windows and keeps the rest for
// later; what is not shared is copied.
func (c *Conn) queue(i int, body []byte, shared bool) {
	m := Message{Stream: i, Body: body}
	if len(c.waiting) == 0 && c.write(&m) {
		return
	}
	if !shared {
		m.Body = bytes.Clone(m.Body)
	}
	c.waiting = append(c.waiting, m)
}

func (c *Conn) writeWaiting() {
	done := 0
	for done < len(c.waiting) && c.write(&c.waiting[done]) {
		done++
	}
	c.waiting = c.waiting[done:]
}

// write appends a message, in as many frames as it takes, and reports whether
// all of it fitted into the windows.
func (c *Conn) write(m *Message) bool {
	s := &c.streams[m.Stream]
	if !m.begun {
		// The head goes with the first byte, or waits with it.
		if min(c.window, s.window) <= messageHead {
			return false
		}
		m.begun = true
		piece := min(messageHead+len(m.Body), maxFrame, c.window, s.window)
		c.frameHead(http2.FrameData, 0, idOf(m.Stream), piece)
		c.out = append(c.out, 0)
		c.out = binary.BigEndian.AppendUint32(c.out, uint32(len(m.Body))) //nolint:gosec // far below 4 GiB
		c.spend(s, messageHead)
		c.body(s, m, piece-messageHead)
	}
	for len(m.Body) > 0 {
		piece := min(len(m.Body), maxFrame, c.window, s.window)
		if piece <= 0 {
			return false
		}
		c.frameHead(http2.FrameData, 0, idOf(m.Stream), piece)
		c.body(s, m, piece)
	}
	return true
}

func (c *Conn) body(s *stream, m *Message, n int) {
	c.out = append(c.out, m.Body[:n]...)
	m.Body = m.Body[n:]
	c.spend(s, n)
}

func (c *Conn) spend(s *stream, n int) {
	c.window -= n
	s.window -= n
}

func (c *Conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.raw.Write(c.out)
	c.out = c.out[:0]
	return err
}

// message appends a whole message with its head.
func (c *Conn) message(body []byte) {
	c.out = append(c.out, 0)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(len(body))) //nolint:gosec // far below 4 GiB
	c.out = append(c.out, body...)
}

func setting(id http2.SettingID, v uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, uint16(id)), v)
}

// frame appends a frame to what is to be written.
func (c *Conn) frame(t http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	c.frameHead(t, flags, id, len(payload))
	c.out = append(c.out, payload...)
}

func (c *Conn) frameHead(t http2.FrameType, flags http2.Flags, id uint32, n int) {
	c.out = append(c.out, byte(n>>16), byte(n>>8), byte(n), byte(t), byte(flags)) //nolint:gosec // three bytes of a length
	c.out = binary.BigEndian.AppendUint32(c.out, id)
}

// give lets the server send so much more on a stream; 0 is the connection.
func (c *Conn) give(id uint32, n int) {
	c.frame(http2.FrameWindowUpdate, 0, id, binary.BigEndian.AppendUint32(nil, uint32(n))) //nolint:gosec // at most 2^31-1
}
