package admission_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
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

// slowMessages is the dumb twin: it keeps all that streams that are open sent.
type slowMessages map[uint32]*slowStream

// slowStream is what a stream sent, frame by frame.
type slowStream struct {
	frames   []slowFrame
	finished bool
	adopted  bool // whole messages count until they are taken
	taken    int  // messages
}

type slowFrame struct {
	data []byte
	size int  // of the payload, with padding
	part bool // there is more to come
}

func (s *slowStream) add(f slowFrame) {
	if s != nil && !s.finished && len(f.data) > 0 {
		s.frames = append(s.frames, f)
	}
}

// messages lists where whole messages end.
func (s *slowStream) messages() (ends []int) {
	var all []byte
	for _, f := range s.frames {
		all = append(all, f.data...)
	}
	end := 0
	for len(all) >= end+5 {
		next := end + 5 + int(binary.BigEndian.Uint32(all[end+1:]))
		if next > len(all) {
			break
		}
		end = next
		ends = append(ends, end)
	}
	return ends
}

func (s slowMessages) used() int64 {
	total := int64(0)
	for _, stream := range s {
		ends, gone := stream.messages(), 0
		passed := len(ends)
		if stream.adopted {
			passed = stream.taken
			total += int64(32 * (len(ends) - passed))
		}
		if passed > 0 {
			gone = ends[passed-1]
		}
		at := 0
		for _, f := range stream.frames {
			at += len(f.data)
			if at <= gone && !f.part {
				continue
			}
			switch {
			case f.size < 1024:
				total += int64(f.size) + 128
			case f.size <= 4096:
				total += 4096 + 128
			default:
				total += 16384 + 128
			}
		}
	}
	return total
}

// TestMessagesCounted: whatever frames come, and however they are cut on their
// way, what is counted is what came of messages that are not whole or that no
// handler has taken, of streams that are open.
func TestMessagesCounted(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		wire := &wireOf{pieces: func() int { return rapid.SampledFrom([]int{1, 5, 9, 100, 1 << 20, 1 << 20}).Draw(r, "piece") }}
		all := admission.NewMessages(1<<40, admission.NewMetrics(nil), func(net.Addr, int64) { t.Error("closed") })
		conn, info, err := all.Over(insecure.NewCredentials()).ServerHandshake(wire)
		if err != nil {
			r.Fatal(err)
		}
		connected := peer.NewContext(context.Background(), &peer.Peer{AuthInfo: info})
		handlers := map[*slowStream]*admission.Unread{}
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
			switch rapid.SampledFrom([]string{"headers", "data", "data", "data", "data", "padded", "reset", "ping", "reply", "refusal", "taken", "taken"}).Draw(r, "frame") {
			case "headers":
				_ = in.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("headers"), EndHeaders: true, EndStream: last})
				if !open {
					twin[id] = &slowStream{adopted: rapid.Bool().Draw(r, "adopted")}
				}
			case "data":
				data := piece(r)
				_ = in.WriteData(id, last, data)
				twin[id].add(slowFrame{data: data, size: len(data)})
			case "padded":
				data, padding := piece(r), rapid.IntRange(0, 255).Draw(r, "padding")
				_ = in.WriteDataPadded(id, last, data, make([]byte, padding))
				twin[id].add(slowFrame{data: data, size: 1 + len(data) + padding})
			case "reset":
				_ = in.WriteRSTStream(id, http2.ErrCodeCancel)
				delete(twin, id)
				last = false
			case "ping":
				_ = in.WritePing(false, [8]byte{})
				last = false
			case "reply":
				_ = out.WriteData(id, false, []byte("an answer"))
				last = false
			case "refusal":
				_ = out.WriteRSTStream(id, http2.ErrCodeRefusedStream)
				delete(twin, id)
				last = false
			case "taken":
				if s := twin[id]; open && handlers[s] != nil {
					handlers[s].Taken()
					s.taken = min(s.taken+1, len(s.messages()))
				}
				last = false
			}
			if s := twin[id]; last && s != nil {
				s.finished = true
			}
			read(client.Bytes())
			if s := twin[id]; !open && s != nil && s.adopted {
				handlers[s] = admission.UnreadOf(admission.WithUnread(connected))
			}
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

// TestStreamsReadOneByOne: however many streams a client opens at once, what is read
// ends with each, so that each gets what is unread of it and of no other.
func TestStreamsReadOneByOne(t *testing.T) {
	all := admission.NewMessages(1<<40, admission.NewMetrics(nil), func(net.Addr, int64) { t.Error("closed") })
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&sent, nil)
	const streams = 5
	for i := range uint32(streams) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: []byte("he")})
		_ = f.WriteContinuation(2*i+1, true, []byte("aders"))
		for range i + 1 { // two messages of i bytes in each frame
			m := append([]byte{0, 0, 0, 0, byte(i)}, make([]byte, i)...)
			_ = f.WriteData(2*i+1, false, append(m, m...))
		}
	}
	conn, info, err := all.Over(insecure.NewCredentials()).ServerHandshake(&wireOf{data: bytes.Clone(sent.Bytes()), pieces: func() int { return 1 << 20 }})
	if err != nil {
		t.Fatal(err)
	}
	connected := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
	var got []byte
	var handlers []*admission.Unread
	for buf := make([]byte, 1<<10); ; {
		n, err := conn.Read(buf)
		if err != nil {
			break
		}
		got = append(got, buf[:n]...)
		if u := admission.UnreadOf(admission.WithUnread(connected)); u != nil {
			handlers = append(handlers, u)
		}
	}
	if !bytes.Equal(got, sent.Bytes()) || len(handlers) != streams {
		t.Fatalf("read %q, want %q; %d streams", got, sent.Bytes(), len(handlers))
	}
	for i, u := range handlers {
		for j := range i + 1 {
			for _, want := range []int64{32, 32 + 128 + 2*int64(5+i)} { // the frame counts until both are taken
				before := all.Used()
				if u.Taken(); before-all.Used() != want {
					t.Errorf("stream %d, frame %d: a message that was taken counted for %d, want %d", i, j, before-all.Used(), want)
				}
			}
		}
	}
	if all.Used() != 0 {
		t.Errorf("%d bytes are counted, and all were taken", all.Used())
	}
	_ = conn.Close()
	handlers[0].Taken() // of a connection that is gone
}

// TestMessagesBounded: the largest connection of the address that holds most is
// closed, not that of whose bytes were too many.
func TestMessagesBounded(t *testing.T) {
	var closed []string
	const most = 11_000 // in use; the process grows to two and a half times that
	all := admission.NewMessages(most/2*5, admission.NewMetrics(nil), func(a net.Addr, held int64) {
		if held > most {
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
		_ = f.WriteData(1, false, []byte{0, 1, 0, 0, 0})
		for range size / 1000 {
			_ = f.WriteData(1, false, make([]byte, 1000))
		}
		s.data = b.Bytes()
		s.conn = all.Follow(s)
		for buf := make([]byte, 1<<20); ; {
			if _, err := s.conn.Read(buf); err != nil {
				return s
			}
		}
	}
	send("192.0.2.1:1", 3000)
	send("192.0.2.1:2", 2000)
	send("192.0.2.2:1", 4000)
	if closed != nil {
		t.Errorf("closed %v", closed)
	}
	last := send("192.0.2.3:1", 1000)
	if len(closed) != 1 || closed[0] != "192.0.2.1:1" || last.closed || all.Used() > most {
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
		for buf := make([]byte, 1<<20); ; {
			if _, err := closed.Read(buf); err != nil {
				break
			}
		}
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
