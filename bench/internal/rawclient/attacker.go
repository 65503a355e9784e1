package rawclient

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Attacker is a connection on which anything can be sent. It keeps to the window
// of the connection, which the server gives back at once, and to nothing else. One
// goroutine may use it.
type Attacker struct {
	raw     net.Conn
	out     *bufio.Writer
	encoder *hpack.Encoder
	headers bytes.Buffer
	next    uint32

	mu     sync.Mutex
	given  *sync.Cond // something has changed below
	window int
	more   map[uint32]int // by which windows of streams were enlarged
	err    error
}

// Way is how connections are made.
type Way struct {
	From netip.Addr  // local address; the zero value is any
	TLS  *tls.Config // nil = plaintext
}

// Dial connects.
func (w *Way) Dial(ctx context.Context, address string, protocols ...string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout}
	if w.From.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.From, 0))
	}
	if w.TLS == nil {
		return d.DialContext(ctx, "tcp", address)
	}
	config := w.TLS.Clone()
	config.NextProtos = protocols
	return (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, "tcp", address)
}

// NewAttacker connects. If it is deaf it reads nothing that the server sends but
// for windows, and answers nothing.
func NewAttacker(ctx context.Context, way *Way, address string, deaf bool) (*Attacker, error) {
	raw, err := way.Dial(ctx, address, http2.NextProtoTLS)
	if err != nil {
		return nil, err
	}
	a := &Attacker{raw: raw, out: bufio.NewWriterSize(raw, maxBatch), next: 1, window: defaultWindow, more: map[uint32]int{}}
	a.given = sync.NewCond(&a.mu)
	a.encoder = hpack.NewEncoder(&a.headers)
	_, _ = a.out.WriteString(http2.ClientPreface) // Flush returns the error
	a.Frame(http2.FrameSettings, 0, 0, nil)
	if !deaf {
		go a.read()
	} else {
		a.window = largestWindow
	}
	return a, a.Flush()
}

// read takes what comes, until the connection ends.
func (a *Attacker) read() {
	framer := http2.NewFramer(nil, bufio.NewReaderSize(a.raw, 4<<10))
	framer.SetReuseFrames()
	for {
		f, err := framer.ReadFrame()
		a.mu.Lock()
		if w, ok := f.(*http2.WindowUpdateFrame); ok && w.StreamID == 0 {
			a.window += int(w.Increment)
		} else if ok {
			a.more[w.StreamID] += int(w.Increment)
		}
		a.err = err
		a.given.Broadcast()
		a.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Open opens a stream, with further headers.
func (a *Attacker) Open(method string, more ...[2]string) (id uint32) {
	a.headers.Reset()
	fields := [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "bench"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	}
	for _, f := range append(fields, more...) {
		_ = a.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a bytes.Buffer takes everything
	}
	id, a.next = a.next, a.next+2
	block := a.headers.Bytes()
	kind := http2.FrameHeaders
	for {
		piece := block[:min(len(block), maxFrame)]
		block = block[len(piece):]
		flags := http2.Flags(0)
		if len(block) == 0 {
			flags = http2.FlagHeadersEndHeaders
		}
		a.Frame(kind, flags, id, piece)
		if len(block) == 0 {
			return id
		}
		kind = http2.FrameContinuation
	}
}

// Data sends bytes on a stream in frames of a size, once the window of the
// window of the connection allows.
func (a *Attacker) Data(id uint32, data []byte, frame int) error {
	for len(data) > 0 {
		piece := data[:min(len(data), frame)]
		data = data[len(piece):]
		if err := a.spend(len(piece)); err != nil {
			return err
		}
		a.Frame(http2.FrameData, 0, id, piece)
	}
	return nil
}

// Message sends the first bytes of a stream, as far and as soon as its window allows
// for them. Only an attacker that is not deaf learns of that.
func (a *Attacker) Message(id uint32, data []byte) error {
	sent := 0
	for len(data) > 0 {
		if err := a.Flush(); err != nil {
			return err
		}
		a.mu.Lock()
		for a.err == nil && sent >= defaultWindow+a.more[id] {
			a.given.Wait()
		}
		n, err := min(len(data), maxFrame, defaultWindow+a.more[id]-sent), a.err
		a.mu.Unlock()
		if err != nil {
			return err
		}
		if err := a.Data(id, data[:n], n); err != nil {
			return err
		}
		data, sent = data[n:], sent+n
	}
	return a.Flush()
}

func (a *Attacker) spend(n int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.window < n && a.err == nil {
		a.mu.Unlock()
		err := a.Flush()
		a.mu.Lock()
		if err != nil {
			return err
		}
	}
	for a.window < n && a.err == nil {
		a.given.Wait()
	}
	a.window -= n
	return a.err
}

// Frame sends any frame. Flush returns the error of one that failed.
func (a *Attacker) Frame(t http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	n := len(payload)
	head := [frameHead]byte{byte(n >> 16), byte(n >> 8), byte(n), byte(t), byte(flags)} //nolint:gosec // three bytes of a length
	binary.BigEndian.PutUint32(head[5:], id)
	_, _ = a.out.Write(head[:])
	_, _ = a.out.Write(payload)
}

// Flush writes what is still here.
func (a *Attacker) Flush() error { return a.out.Flush() }

// Close ends the connection.
func (a *Attacker) Close() error { return a.raw.Close() }

// Framed is a message as gRPC sends it, compressed or not.
func Framed(message []byte, compressed bool) []byte {
	out := make([]byte, messageHead, messageHead+len(message))
	if compressed {
		out[0] = 1
	}
	binary.BigEndian.PutUint32(out[1:], uint32(len(message))) //nolint:gosec // far below 4 GiB
	return append(out, message...)
}

// Wait waits until the connection or ctx ends.
func (a *Attacker) Wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.given.Broadcast()
	})
	defer stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.err == nil && ctx.Err() == nil {
		a.given.Wait()
	}
	return a.err
}
