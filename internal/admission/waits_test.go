package admission_test

import (
	"bytes"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/isobar-xds/isobar/internal/admission"
)

// TestMessageThatWaitsDecompressed asserts that a message counts for what its handler says that
// it takes while it waits, until it is taken, and no message counts twice.
func TestMessageThatWaitsDecompressed(t *testing.T) {
	const small, large, most = 2_000, 4 << 20, 16 << 20
	var closed []int64
	all := admission.NewMessages(most/2*5, admission.NewMetrics(nil), func(_ net.Addr, bytes int64) { closed = append(closed, bytes) })
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&sent, nil)
	for stream := range uint32(4) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*stream + 1, BlockFragment: []byte("headers"), EndHeaders: true})
		for range 2 {
			_ = f.WriteData(2*stream+1, false, append([]byte{1, 0, 0, small >> 8, small & 0xff}, make([]byte, small)...))
		}
	}
	conn, info, err := all.Over(insecure.NewCredentials()).ServerHandshake(&wireOf{data: sent.Bytes(), pieces: func() int { return 1 << 20 }})
	if err != nil {
		t.Fatal(err)
	}
	connected := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
	var handlers []*admission.Unread
	for buf := make([]byte, 1<<16); ; {
		if _, err := conn.Read(buf); err != nil {
			break
		}
		if u := admission.UnreadOf(admission.WithUnread(connected)); u != nil {
			handlers = append(handlers, u)
		}
	}
	compressed := all.Used()
	handlers[0].Waits(small)
	if all.Used() != compressed {
		t.Errorf("a message that is no larger than what came of it counts for %d bytes more", all.Used()-compressed)
	}
	handlers[0].Waits(large)
	handlers[0].Waits(large)
	if got := all.Used() - compressed; got < large-(8<<10) || got > large {
		t.Errorf("a message of %d bytes that waits counts for %d bytes more", large, got)
	}
	handlers[0].Taken()
	if each := compressed / 8; all.Used() != 7*each {
		t.Errorf("%d bytes are counted, and 7 messages of %d are unread", all.Used(), each)
	}
	for _, u := range handlers { // 4 of 4 MiB and what came of others are more than there may be
		u.Waits(large)
	}
	if len(closed) != 1 || all.Used() != 0 {
		t.Errorf("closed %v, %d bytes are counted", closed, all.Used())
	}
	handlers[0].Waits(large) // of a connection that is gone
	if all.Used() != 0 {
		t.Errorf("%d bytes are counted of no connection", all.Used())
	}
}
