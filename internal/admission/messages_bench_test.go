package admission_test

import (
	"bytes"
	"net"
	"testing"

	"golang.org/x/net/http2"

	"github.com/isobar-xds/isobar/internal/admission"
)

// BenchmarkFollow is what it costs to follow a connection of 100 streams: a request
// that is read with two updates of windows, and an answer that is written.
func BenchmarkFollow(b *testing.B) {
	socket := &wireOf{pieces: func() int { return 1 << 20 }}
	conn := admission.NewMessages(1<<40, admission.NewMetrics(nil), func(net.Addr, int64) {}).Follow(socket)
	var frames bytes.Buffer
	f := http2.NewFramer(&frames, nil)
	frames.WriteString(http2.ClientPreface)
	for id := uint32(1); id < 200; id += 2 {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true})
	}
	buffer := make([]byte, 1<<16)
	read := func() {
		socket.data = frames.Bytes()
		if _, err := conn.Read(buffer); err != nil {
			b.Fatal(err)
		}
	}
	read()
	frames.Reset()
	_ = f.WriteData(1, false, append([]byte{0, 0, 0, 0x0b, 0xb8}, make([]byte, 3000)...))
	_ = f.WriteWindowUpdate(1, 100)
	_ = f.WriteWindowUpdate(0, 100)
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			read()
		}
	})
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			if _, err := conn.Write(frames.Bytes()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
