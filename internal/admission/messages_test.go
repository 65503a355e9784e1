package admission_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"
	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// wireOf is a connection that a client wrote all at once, read in pieces.
type wireOf struct {
	net.Conn

	data   []byte
	pieces func() int
}

func (w *wireOf) RemoteAddr() net.Addr        { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (w *wireOf) Write(b []byte) (int, error) { return len(b), nil }
func (w *wireOf) Close() error                { return nil }

func (w *wireOf) Read(b []byte) (int, error) {
	if len(w.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, w.data[:min(len(w.data), w.pieces())])
	w.data = w.data[n:]
	return n, nil
}

// slowMessages is the dumb twin: it keeps all that a stream sent.
type slowMessages map[uint32][][]byte // open streams, frame by frame

func (s slowMessages) used() int64 {
	total := int64(0)
	for _, pieces := range s {
		all := bytes.Join(pieces, nil)
		whole := 0
		for len(all) >= whole+5 {
			end := whole + 5 + int(binary.BigEndian.Uint32(all[whole+1:]))
			if end > len(all) {
				break
			}
			whole = end
		}
		at := 0
		for _, p := range pieces {
			if at += len(p); at > whole {
				total += int64(min(len(p), at-whole)) + 128
			}
		}
	}
	return total
}

// TestMessagesCounted: whatever frames come, and however they are cut on their
// way, what is counted is what came of messages that are not whole, of streams
// that are open.
func TestMessagesCounted(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		wire := &wireOf{pieces: func() int { return rapid.SampledFrom([]int{1, 5, 9, 100, 1 << 20, 1 << 20}).Draw(r, "piece") }}
		all := admission.NewMessages(1<<40, admission.NewMetrics(nil), func(net.Addr, int64) { t.Error("closed") })
		conn := all.Follow(wire)
		read := func(b []byte) {
			wire.data = b
			for buf := make([]byte, 1<<16); len(wire.data) > 0; {
				if _, err := conn.Read(buf); err != nil {
					r.Fatal(err)
				}
			}
		}
		var client, server bytes.Buffer
		in, out := http2.NewFramer(&client, nil), http2.NewFramer(&server, nil)
		in.AllowIllegalWrites = true
		read([]byte(http2.ClientPreface))
		twin := slowMessages{}
		for range rapid.IntRange(1, 40).Draw(r, "frames") {
			client.Reset()
			server.Reset()
			id := uint32(rapid.IntRange(0, 3).Draw(r, "stream"))*2 + 1
			_, open := twin[id]
			last := rapid.IntRange(0, 9).Draw(r, "last") == 0
			switch rapid.SampledFrom([]string{"headers", "data", "data", "data", "data", "padded", "reset", "ping", "reply", "refusal"}).Draw(r, "frame") {
			case "headers":
				_ = in.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("headers"), EndHeaders: true, EndStream: last})
				if !open {
					twin[id] = nil
				}
			case "data":
				data := piece(r)
				_ = in.WriteData(id, last, data)
				if open && len(data) > 0 {
					twin[id] = append(twin[id], data)
				}
			case "padded":
				data := piece(r)
				_ = in.WriteDataPadded(id, last, data, make([]byte, rapid.IntRange(0, 255).Draw(r, "padding")))
				if open && len(data) > 0 {
					twin[id] = append(twin[id], data)
				}
			case "reset":
				_ = in.WriteRSTStream(id, http2.ErrCodeCancel)
				last = true
			case "ping":
				_ = in.WritePing(false, [8]byte{})
				last = false
			case "reply":
				_ = out.WriteData(id, false, []byte("an answer"))
				last = false
			case "refusal":
				_ = out.WriteRSTStream(id, http2.ErrCodeRefusedStream)
				last = true
			}
			if last {
				delete(twin, id)
			}
			read(client.Bytes())
			if _, err := conn.Write(server.Bytes()); err != nil {
				r.Fatal(err)
			}
			if got, want := all.Used(), twin.used(); got != want {
				r.Fatalf("%d bytes are counted, want %d", got, want)
			}
		}
		_ = conn.Close()
		if all.Used() != 0 {
			r.Fatalf("%d bytes are counted of no connection", all.Used())
		}
	})
}

// piece is some bytes of messages, which begin and end in frames as they like.
func piece(r *rapid.T) []byte {
	var out []byte
	for range rapid.IntRange(0, 3).Draw(r, "messages") {
		size := rapid.SampledFrom([]uint32{0, 1, 10, 1000, 1 << 22}).Draw(r, "size")
		out = append(binary.BigEndian.AppendUint32(append(out, 0), size), make([]byte, min(size, 2000))...)
	}
	return out[:rapid.IntRange(0, len(out)).Draw(r, "cut")]
}

// TestMessagesBounded: the largest connection of the address that holds most is
// closed, not that of whose bytes were too many.
func TestMessagesBounded(t *testing.T) {
	var closed []string
	all := admission.NewMessages(10_000, admission.NewMetrics(nil), func(a net.Addr, held int64) {
		if held > 10_000 {
			t.Errorf("%d bytes", held)
		}
		closed = append(closed, a.String())
	})
	send := func(from string, size int) *sender {
		s := &sender{wireOf: wireOf{pieces: func() int { return 1 << 20 }}, from: from}
		var b bytes.Buffer
		b.WriteString(http2.ClientPreface)
		f := http2.NewFramer(&b, nil)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
		_ = f.WriteData(1, false, append([]byte{0, 1, 0, 0, 0}, make([]byte, size)...))
		s.data = b.Bytes()
		s.conn = all.Follow(s)
		_, _ = s.conn.Read(make([]byte, 1<<20))
		return s
	}
	send("192.0.2.1:1", 3000)
	send("192.0.2.1:2", 2000)
	send("192.0.2.2:1", 4000)
	if closed != nil {
		t.Errorf("closed %v", closed)
	}
	last := send("192.0.2.3:1", 1000)
	if len(closed) != 1 || closed[0] != "192.0.2.1:1" || last.closed || all.Used() > 10_000 {
		t.Errorf("closed %v, %d bytes are left", closed, all.Used())
	}
}

// resets is what a client sends that opens streams and resets them at once.
func resets(streams int) []byte {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	for i := range uint32(streams) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndHeaders: true})
		_ = f.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
	}
	return b.Bytes()
}

// TestFloodIsPaced: streams above the rate of an address are read as slowly as it is
// worth to refuse them, over all its connections; others don't wait.
func TestFloodIsPaced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		pace := admission.NewPace(20, 200, time.Now())
		all := admission.NewMessages(1<<20, admission.NewMetrics(nil), func(net.Addr, int64) {})
		all.Pace(func(address string, streams int) time.Duration { return pace.Wait(address, streams, time.Now()) })
		flood := func(from string, streams int) time.Duration {
			start := time.Now()
			conn := all.Follow(&sender{wireOf: wireOf{data: resets(streams), pieces: func() int { return 1000 }}, from: from})
			for buf := make([]byte, 1000); ; {
				if _, err := conn.Read(buf); err != nil {
					return time.Since(start)
				}
			}
		}
		const streams = 30_000
		var first, second time.Duration
		var both sync.WaitGroup
		both.Go(func() { first = flood("192.0.2.1:1", streams) })
		both.Go(func() { second = flood("192.0.2.1:2", streams) })
		both.Wait()
		if took := max(first, second); took < 5*time.Second || took > 7*time.Second {
			t.Errorf("%d streams came in %v, want 10,000 a second", 2*streams, took)
		}
		if took := flood("192.0.2.2:1", 10); took != 0 {
			t.Errorf("another address waited %v", took)
		}

		closed := all.Follow(&sender{wireOf: wireOf{data: resets(1000), pieces: func() int { return 1 << 20 }}, from: "192.0.2.1:3"})
		time.AfterFunc(10*time.Millisecond, func() { _ = closed.Close() })
		start := time.Now()
		_, _ = closed.Read(make([]byte, 1<<20))
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("a connection that is closed waits on for %v", took)
		}
	})
}

// sender is a connection from an address.
type sender struct {
	wireOf

	from   string
	conn   net.Conn
	closed bool
}

func (s *sender) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s.from))
}

func (s *sender) Close() error {
	s.closed = true
	return nil
}

// TestIdleConnectionsHoldNoBuffer: gRPC finds what it looks for on the way from a
// socket to its connection, and reads all that comes by it.
func TestIdleConnectionsHoldNoBuffer(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := admission.Listen(socket, admission.Limits{Most: 10})
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	all := admission.NewMessages(1<<20, admission.NewMetrics(nil), func(net.Addr, int64) {})
	conn := all.Follow(accepted)
	defer func() { _ = conn.Close() }()
	ready, ok := conn.(interface {
		ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error)
	})
	if !ok {
		t.Fatalf("%T is read with a buffer of its own", conn)
	}
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&sent, nil)
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
	_ = f.WriteData(1, false, []byte{0, 0, 0, 1, 0, 1, 2, 3})
	go func() {
		_, _ = client.Write(sent.Bytes())
		_ = client.Close()
	}()
	var got []byte
	for {
		b, n, err := ready.ReadOnReady(16, mem.DefaultBufferPool())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, (*b)[:n]...)
	}
	if !bytes.Equal(got, sent.Bytes()) || all.Used() != 8+128 {
		t.Errorf("read %q of %q, %d bytes are counted", got, sent.Bytes(), all.Used())
	}
	_ = conn.SetReadDeadline(time.Now())
	if _, _, err := ready.ReadOnReady(16, mem.DefaultBufferPool()); err == nil {
		t.Error("no error after the end")
	}
}
