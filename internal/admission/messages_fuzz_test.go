package admission_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"golang.org/x/net/http2"

	"github.com/isobar-xds/isobar/internal/admission"
)

// FuzzMessages: of whatever bytes a client sends, in whatever pieces they come,
// what is counted is what a parser finds that sees all of them at once.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(nil), uint16(0))
	for _, pieces := range []uint16{1, 7, 1000} {
		f.Add(session(), pieces)
	}
	f.Fuzz(func(t *testing.T, sent []byte, pieces uint16) {
		all := admission.NewMessages(1<<40, admission.NewMetrics(nil), func(net.Addr, int64) { t.Error("closed") })
		conn := all.Follow(&wireOf{data: sent, pieces: func() int { return int(pieces) + 1 }})
		for buf := make([]byte, 1<<16); ; {
			if _, err := conn.Read(buf); err != nil {
				break
			}
		}
		if got, want := all.Used(), parsed(sent).used(); got != want {
			t.Errorf("%d bytes are counted, want %d", got, want)
		}
		_ = conn.Close()
		if all.Used() != 0 {
			t.Errorf("%d bytes are counted of no connection", all.Used())
		}
	})
}

// session is what a client sends: some of everything.
func session() []byte {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	w := http2.NewFramer(&b, nil)
	_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	for id := uint32(1); id < 9; id += 2 {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("headers")})
		_ = w.WriteContinuation(id, true, []byte("more"))
	}
	_ = w.WriteData(1, false, []byte{0, 0, 0, 0, 3, 'a', 'b', 'c', 0, 0, 0})
	_ = w.WriteData(1, false, []byte{0, 9, 'd'})
	_ = w.WriteDataPadded(3, false, []byte{0, 0, 0, 1, 0, 'e'}, make([]byte, 20))
	_ = w.WriteData(5, true, []byte{0, 0, 0, 0, 9, 'f'})
	_ = w.WriteRSTStream(7, http2.ErrCodeCancel)
	_ = w.WritePing(false, [8]byte{})
	_ = w.WriteData(7, false, []byte("of a stream that is no more"))
	_ = w.WriteData(3, false, nil)
	return b.Bytes()
}

// parsed is what streams that are open sent. Frames begin to count where their head is whole.
func parsed(b []byte) slowMessages {
	const head, data, headers, reset, endStream, padded = 9, 0, 1, 3, 0x1, 0x8
	streams := slowMessages{}
	for b = b[min(len(http2.ClientPreface), len(b)):]; len(b) >= head; {
		size := int(binary.BigEndian.Uint32(b) >> 8)
		kind, flags, id := b[3], b[4], binary.BigEndian.Uint32(b[5:])&^(1<<31)
		payload := b[head:min(head+size, len(b))]
		b = b[head+len(payload):]
		whole, all := true, size
		if kind == data {
			if flags&padded != 0 && size > 0 {
				if len(payload) == 0 {
					return streams
				}
				padding := min(int(payload[0]), size-1)
				payload, size = payload[1:], size-1-padding
			}
			payload = payload[:min(size, len(payload))]
			whole = len(payload) == size // the padding may be on its way
			streams[id].add(slowFrame{data: payload, size: all, part: !whole})
		}
		if kind == headers && streams[id] == nil {
			streams[id] = &slowStream{}
		}
		switch {
		case !whole:
		case kind == reset:
			delete(streams, id)
		case (kind == data || kind == headers) && flags&endStream != 0 && streams[id] != nil:
			streams[id].finished = true
		}
	}
	return streams
}
