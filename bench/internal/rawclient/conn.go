package rawclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Sizes of HTTP/2.
const (
	frameHead      = 9
	messageHead    = 5 // of gRPC: compressed or not, length
	maxFrame       = 16 << 10
	defaultWindow  = 65_535
	largestWindow  = 1<<31 - 1
	refillWindowAt = 1 << 29
	maxBatch       = 64 << 10 // written at once
	dialTimeout    = 20 * time.Second
)

// Handler is told what comes in on the streams of a connection, from the
// goroutine of Run. The message is valid during the call only. What it returns
// is sent on the stream; nil sends nothing.
type Handler interface {
	Message(stream int, message []byte) (reply []byte, err error)
}

// Conn is one connection with a fixed number of streams.
type Conn struct {
	raw     net.Conn
	in      *bufio.Reader
	framer  *http2.Framer // reads only
	handler Handler
	method  string

	mu       sync.Mutex // guards what follows; Run holds it but for reading
	out      []byte     // written at the next flush
	encoder  *hpack.Encoder
	headers  bytes.Buffer
	window   int // what the server still takes on the connection
	perNew   int // initial window of a stream
	consumed int // received and not yet given back to the server
	streams  []stream
	waiting  []Message // in order, for the window
}

type stream struct {
	window    int
	partly    []byte // beginning of a message
	neglected bool   // nobody takes what it is sent; see Neglect
}

// Dial connects and opens n streams of a method, each of which begins with a
// message. Each gets a window of its own in which everything fits; further
// streams on the connection have the window that HTTP/2 gives unasked.
func Dial(ctx context.Context, address, method string, n int, first func(stream int) []byte, h Handler) (*Conn, error) {
	c, err := connect(ctx, address, method, n, h)
	if err != nil {
		return nil, err
	}
	c.frame(http2.FrameSettings, 0, 0, nil)
	c.give(0, largestWindow-defaultWindow)
	if err := c.begin(first, largestWindow-defaultWindow); err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends the connection and with it Run.
func (c *Conn) Close() error { return c.raw.Close() }

func idOf(i int) uint32 { return uint32(2*i + 1) } //nolint:gosec // few streams

func indexOf(id uint32) int { return int(id-1) / 2 }

// open sends the request headers of a stream.
func (c *Conn) open(i int) {
	c.headers.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: c.method},
		{Name: ":authority", Value: "bench"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	} {
		if err := c.encoder.WriteField(f); err != nil {
			panic(err) // a bytes.Buffer takes everything
		}
	}
	c.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, idOf(i), c.headers.Bytes())
}

// Run serves the connection until it or a stream ends; it never returns nil.
func (c *Conn) Run() error {
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return err
		}
		if err := c.took(f); err != nil {
			return err
		}
	}
}

// took handles a frame and writes what it leads to. Acknowledgements are
// gathered for as long as frames are at hand.
func (c *Conn) took(f http2.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.handle(f); err != nil {
		return err
	}
	if len(c.waiting) > 0 {
		c.writeWaiting()
	}
	if c.in.Buffered() > 0 && len(c.out) < maxBatch {
		return nil
	}
	return c.flush()
}

func (c *Conn) handle(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.data(indexOf(f.StreamID), f.Data())
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			c.window += int(f.Increment)
		} else {
			c.streams[indexOf(f.StreamID)].window += int(f.Increment)
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			c.frame(http2.FramePing, http2.FlagPingAck, 0, f.Data[:])
		}
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			for i := range c.streams {
				c.streams[i].window += int(v) - c.perNew
			}
			c.perNew = int(v)
		}
		c.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
	case *http2.MetaHeadersFrame:
		if f.StreamEnded() {
			return ended(f)
		}
	case *http2.RSTStreamFrame:
		return fmt.Errorf("the server reset a stream: %v", f.ErrCode)
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server goes away: %v %s", f.ErrCode, f.DebugData())
	}
	return nil
}

// ended tells why the server ended a stream.
func ended(f *http2.MetaHeadersFrame) error {
	var code, text string
	for _, h := range f.Fields {
		switch h.Name {
		case "grpc-status":
			code = h.Value
		case "grpc-message":
			text = h.Value
		}
	}
	return fmt.Errorf("the server ended a stream: status %s: %s", code, text)
}

// data takes the bytes of a frame and hands over the messages that they end.
func (c *Conn) data(i int, b []byte) error {
	if c.consumed += len(b); c.consumed >= refillWindowAt {
		c.give(0, c.consumed)
		c.consumed = 0
	}
	s := &c.streams[i]
	if s.neglected {
		return nil
	}
	if len(s.partly) > 0 {
		s.partly = append(s.partly, b...)
		b = s.partly
	}
	for len(b) >= messageHead {
		n := messageHead + int(binary.BigEndian.Uint32(b[1:messageHead]))
		if len(b) < n {
			break
		}
		reply, err := c.handler.Message(i, b[messageHead:n])
		if err != nil {
			return err
		}
		if reply != nil {
			c.queue(i, reply, false)
		}
		b = b[n:]
	}
	if len(b) == 0 {
		s.partly = nil // messages in pieces are rare: don't keep the room
		return nil
	}
	s.partly = append(s.partly[:0:0], b...)
	return nil
}

// Ended reports whether an error of Run only says that the connection was closed.
func Ended(err error) bool { return errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) }
