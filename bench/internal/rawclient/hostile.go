package rawclient

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Mute connects and opens n streams as Dial does, and then reads nothing at
// all, ever: not what the streams are sent, and no ping. window is how much
// each stream and the connection may be sent before flow control stops the
// server; with a large one the buffers of the system do. The first messages
// together must fit into the 64 KiB that a server takes unasked.
func Mute(ctx context.Context, address, method string, n int, first func(stream int) []byte, window int) (*Conn, error) {
	c, err := connect(ctx, address, method, n, nil)
	if err != nil {
		return nil, err
	}
	c.frame(http2.FrameSettings, 0, 0, setting(http2.SettingInitialWindowSize, uint32(window))) //nolint:gosec // at most 2^31-1
	if window > defaultWindow {
		c.give(0, window-defaultWindow)
	}
	return c, c.begin(first, 0)
}

// Neglect opens n more streams, which begin with a message and then take
// nothing of what they are sent: their windows fill and stay full. The
// connection and its other streams go on. That is what a client of gRPC does
// that no longer receives on a stream. It returns what resets them.
func (c *Conn) Neglect(n int, first func(stream int) []byte) (reset func() error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	begin := len(c.streams)
	for i := begin; i < begin+n; i++ {
		c.streams = append(c.streams, stream{window: c.perNew, neglected: true})
		c.open(i)
		c.queue(i, first(i), true)
	}
	return func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := begin; i < begin+n; i++ {
			c.reset(i)
		}
		return c.flush()
	}, c.flush()
}

// reset resets a stream.
func (c *Conn) reset(i int) {
	c.frame(http2.FrameRSTStream, 0, idOf(i), []byte{0, 0, 0, byte(http2.ErrCodeCancel)})
}

// Resetter opens streams, sends a request on each and resets it at once.
type Resetter struct {
	conn   *Conn
	first  func(stream int) []byte
	opened int
	window atomic.Int64 // that the server gives the connection
}

// NewResetter connects.
func NewResetter(ctx context.Context, address, method string, first func(stream int) []byte) (*Resetter, error) {
	c, err := connect(ctx, address, method, 0, nil)
	if err != nil {
		return nil, err
	}
	c.frame(http2.FrameSettings, 0, 0, nil)
	r := &Resetter{conn: c, first: first}
	r.window.Store(defaultWindow)
	if err := c.flush(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	go r.read()
	return r, nil
}

// read takes what comes, so that only the resets are unusual.
func (r *Resetter) read() {
	c := r.conn
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		c.mu.Lock()
		switch f := f.(type) {
		case *http2.DataFrame:
			if n := len(f.Data()); n > 0 {
				c.give(0, n)
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				r.window.Add(int64(f.Increment))
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				c.frame(http2.FramePing, http2.FlagPingAck, 0, f.Data[:])
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				c.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
			}
		}
		err = c.flush()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Reset opens and resets n streams. A stream whose request does not fit into
// the server's window is reset without one.
func (r *Resetter) Reset(n int) error {
	c := r.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		i := r.opened
		r.opened++
		c.open(i)
		if m := r.first(i); r.window.Load() >= int64(messageHead+len(m)) {
			r.window.Add(-int64(messageHead + len(m)))
			c.frameHead(http2.FrameData, 0, idOf(i), messageHead+len(m))
			c.message(m)
		}
		c.reset(i)
	}
	return c.flush()
}

// Close ends the connection.
func (r *Resetter) Close() error { return r.conn.Close() }

// connect opens a connection on which nothing has been sent but the preface.
func connect(ctx context.Context, address, method string, n int, h Handler) (*Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	raw, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &Conn{raw: raw, handler: h, method: method, window: defaultWindow, perNew: defaultWindow, streams: make([]stream, n)}
	c.in = bufio.NewReaderSize(raw, 8<<10)
	c.framer = http2.NewFramer(nil, c.in)
	c.framer.SetReuseFrames()
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.headers)
	c.out = append(c.out, http2.ClientPreface...)
	return c, nil
}

// begin opens all streams, each with its first message and with so much more
// window than it has anyway.
func (c *Conn) begin(first func(stream int) []byte, more int) error {
	err := c.flush()
	if err == nil {
		for i := range c.streams {
			c.streams[i].window = c.perNew
			c.open(i)
			if more > 0 {
				c.give(idOf(i), more)
			}
			c.queue(i, first(i), true)
		}
		c.writeWaiting()
		err = c.flush()
	}
	if err != nil {
		return errors.Join(err, c.raw.Close())
	}
	return nil
}

// Every calls f in equal steps until it fails or ctx ends, and returns its error.
func Every(ctx context.Context, step time.Duration, f func() error) error {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := f(); err != nil {
				return err
			}
		}
	}
}
