package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// cable is a connection that can be cut: what is sent is lost, nothing comes,
// and neither end is told.
type cable struct {
	net.Conn

	cut    atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (c *cable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.cut.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *cable) Write(p []byte) (int, error) {
	if c.cut.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *cable) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestHalfOpenConnections: streams whose peer has gone without a word end
// within a minute.
func TestHalfOpenConnections(t *testing.T) {
	inSweep(t, func(w *sweepWorld) {
		var c *cable
		conn, err := grpc.NewClient("passthrough:///isobar", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rpc.ServerCodec())), grpc.WithDisableServiceConfig(),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				raw, err := w.dial(ctx)
				c = &cable{Conn: raw, closed: make(chan struct{})}
				return c, err
			}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		sound := w.conn
		w.conn = conn
		for range 10 {
			w.open(sotwMethod).send(w.encode(fullRequest(resource.EndpointsURL)))
			w.open(deltaMethod).send(w.encode(fullDelta()))
			w.open(lrsMethod).send(w.encode(fullReport()))
		}
		w.open(hdsMethod).send(w.encode(fullHello()))
		w.conn = sound
		if n := w.streams(); n != 1+31 {
			t.Fatalf("%d streams are open", n)
		}
		c.cut.Store(true)
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		synctest.Wait()
		if n := w.streams(); n != 1 {
			t.Errorf("%d streams a minute after their cable was cut, want that of the others", n)
		}
	})
}

// streams counts the open streams of all services.
func (w *sweepWorld) streams() int {
	w.t.Helper()
	n := 0.0
	for _, x := range [][2]string{{"isobar_xds_streams", "sotw"}, {"isobar_xds_streams", "delta"}, {"isobar_lrs_streams", ""}, {"isobar_hds_checkers", ""}} {
		n += testhelp.Series(w.t, w.server.Metrics(), x[0])[x[1]]
	}
	return int(n)
}

// rawPeer is a client that does with HTTP/2 what no library would.
type rawPeer struct {
	net.Conn

	framer  *http2.Framer
	writing sync.Mutex // of frames
	headers bytes.Buffer
	encoder *hpack.Encoder
	next    uint32 // id of a stream
}

// peer connects, with settings of its own.
func (w *sweepWorld) peer(settings ...http2.Setting) *rawPeer {
	w.t.Helper()
	c, err := w.dial(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	p := &rawPeer{Conn: c, framer: http2.NewFramer(c, c), next: 1}
	p.encoder = hpack.NewEncoder(&p.headers)
	if _, err := c.Write([]byte(http2.ClientPreface)); err != nil {
		w.t.Fatal(err)
	}
	if err := p.framer.WriteSettings(settings...); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// call opens a stream and sends a message; errors mean that the server has
// closed the connection.
func (p *rawPeer) call(method string, message []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	id, err := p.begin(method)
	if err != nil {
		return err
	}
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return p.framer.WriteData(id, false, append(framed, message...))
}

// begin opens a stream, without a message.
func (p *rawPeer) begin(method string, more ...[2]string) (id uint32, err error) {
	p.headers.Reset()
	fields := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}}
	for _, f := range append(fields, more...) {
		if err := p.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return 0, err
		}
	}
	id = p.next
	p.next += 2
	return id, p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.headers.Bytes(), EndHeaders: true})
}

// answer reads all frames and answers pings, but gives no window.
func (p *rawPeer) answer() {
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			return
		}
		if ping, ok := f.(*http2.PingFrame); ok && !ping.IsAck() {
			p.writing.Lock()
			err := p.framer.WritePing(true, ping.Data)
			p.writing.Unlock()
			if err != nil {
				return
			}
		}
	}
}

// TestStreamsThatNeverRead: clients that take nothing, by flow control or
// by leaving their connection unread, delay nobody; the latter are sent away,
// and nothing stays of either.
func TestStreamsThatNeverRead(t *testing.T) {
	inSweep(t, func(w *sweepWorld) {
		request := w.encode(&discoveryv3.DiscoveryRequest{Node: nodeIn("stuck", "us/a"), TypeUrl: resource.EndpointsURL, ResourceNames: []string{"checkout"}})
		shut := w.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		go shut.answer()
		deaf := w.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		if err := deaf.framer.WriteWindowUpdate(0, 1<<30); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			for _, p := range []*rawPeer{shut, deaf} {
				if err := p.call(sotwMethod, request); err != nil {
					t.Fatal(err)
				}
			}
			if i%20 == 0 {
				synctest.Wait()
				w.alive("beside streams that never read")
			}
		}
		synctest.Wait()
		if n := w.streams(); n != 1+200 {
			t.Errorf("%d streams are open", n)
		}
		for range 30 {
			time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
			synctest.Wait()
			w.alive("while they don't read")
		}
		if n := w.streams(); n != 1+100 {
			t.Errorf("%d streams after a minute, want those that answer pings and that of the others", n)
		}
		_ = deaf.Close()
		_ = shut.Close()
		synctest.Wait()
		if n := w.streams(); n != 1 {
			t.Errorf("%d streams after they left", n)
		}
	})
}

// TestStopBesideStuckStreams: clients that don't read do not keep a server from
// stopping.
func TestStopBesideStuckStreams(t *testing.T) {
	inSweep(t, func(w *sweepWorld) {
		p := w.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		go p.answer()
		for range 50 {
			if err := p.call(sotwMethod, w.encode(fullRequest(resource.EndpointsURL))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it took %v to stop", took)
		}
		_ = p.Close()
	})
}

// TestMessagesThatNeverEnd: streams that begin messages and leave them are bounded
// by what they hold, and cost the others nothing.
func TestMessagesThatNeverEnd(t *testing.T) {
	inSweep(t, func(w *sweepWorld) {
		p := w.peer()
		go p.answer()
		begun := append([]byte{0}, binary.BigEndian.AppendUint32(nil, 4<<20)...)
		begun = append(begun, make([]byte, 60<<10)...) // what a stream may send at first
		var err error
		streams := 0
		for ; err == nil && streams < 900; streams++ {
			err = p.part(sotwMethod, begun)
			synctest.Wait()
			if streams%50 == 0 {
				w.alive("beside messages that never end")
			}
		}
		if streams < 90 || streams > 110 {
			t.Errorf("%d streams of 60 KiB until the connection was closed, want two fifths of 16 MiB: %v", streams, err)
		}
		if !strings.Contains(w.log.String(), "closed a connection with too many incomplete or unread messages") {
			t.Errorf("the log does not tell:\n%s", w.log)
		}
		_ = p.Close()
		synctest.Wait()
		if n := w.streams(); n != 1 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// TestMessagesThatNobodyTakes: whole messages that wait for a handler which reads
// slowly, since its client sends too many, are bounded by what they hold, too.
func TestMessagesThatNobodyTakes(t *testing.T) {
	inSweep(t, func(w *sweepWorld) {
		p := w.peer()
		go p.answer()
		hello := w.encode(&loadstatsv3.LoadStatsRequest{Node: nodeIn("attacker", "us/a")})
		var err error
		streams := 0
		for ; err == nil && streams < 100; streams++ {
			err = p.reports(hello, 60<<10)
			synctest.Wait()
		}
		if streams < 5 || streams > 30 {
			t.Errorf("%d streams of 60 KiB of empty messages until the connection was closed: %v", streams, err)
		}
		if !strings.Contains(w.log.String(), "closed a connection with too many incomplete or unread messages") {
			t.Errorf("the log does not tell:\n%s", w.log)
		}
		_ = p.Close()
		w.alive("after messages that nobody took")
	})
}

// reports opens a load reporting stream and sends many empty reports on it, in frames
// whose buffers are four times as large.
func (p *rawPeer) reports(hello []byte, size int) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	id, err := p.begin(lrsMethod)
	if err == nil {
		err = p.framer.WriteData(id, false, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(hello))), hello...))
	}
	for range size / 1025 {
		if err == nil {
			err = p.framer.WriteData(id, false, make([]byte, 1025))
		}
	}
	return err
}

// part opens a stream and sends bytes on it, frame by frame.
func (p *rawPeer) part(method string, data []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	id, err := p.begin(method)
	for err == nil && len(data) > 0 {
		n := min(len(data), 16<<10)
		err = p.framer.WriteData(id, false, data[:n])
		data = data[n:]
	}
	return err
}

// aliases are names that all stand for one service.
func aliases(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("xdstp://x%d/envoy.config.endpoint.v3.ClusterLoadAssignment/checkout", i)
	}
	return out
}

// TestAnswersTakeAboutTheirSize: answers of streams that nobody reads take no more memory than counts for them. gRPC
// puts a message of more than 32 KiB into a buffer of 1 MiB.
func TestAnswersTakeAboutTheirSize(t *testing.T) {
	const streams, least, most = 100, 32 << 10, 200 << 10 // bytes of each answer
	inSweep(t, func(w *sweepWorld) {
		question := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		}}
		one, err := reflectionpb.NewServerReflectionClient(w.conn).ServerReflectionInfo(w.t.Context())
		if err == nil {
			err = one.Send(question)
		}
		if err != nil {
			w.t.Error(err)
			return
		}
		if sample, err := one.Recv(); err != nil || proto.Size(sample) < least || proto.Size(sample) > most {
			w.t.Errorf("an answer of %d bytes, %v: unfit for this test", proto.Size(sample), err)
		}
		if err := one.CloseSend(); err != nil {
			w.t.Error(err)
		}
		p := w.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		go p.answer()
		before := inUse()
		for range streams {
			if err := p.call(reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName, w.encode(question)); err != nil {
				w.t.Error(err)
			}
		}
		synctest.Wait()
		if took := (inUse() - before) / streams; took > most {
			w.t.Errorf("each answer takes %d KiB, want at most %d", took>>10, most>>10)
		}
		_ = p.Close()
		synctest.Wait()
	})
}

// TestStreamsOfOperatorsAreFew: one peer may open 100 streams of the services for operators, which make an answer for
// each message. Thousands of reflection streams that read nothing took more than a gigabyte.
func TestStreamsOfOperatorsAreFew(t *testing.T) {
	const least, most = 90, 100
	inSweep(t, func(w *sweepWorld) {
		client := reflectionpb.NewServerReflectionClient(w.conn)
		answered := 0
		for range 2 * most {
			stream, err := client.ServerReflectionInfo(w.t.Context())
			if err == nil {
				err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
			}
			if err == nil || errors.Is(err, io.EOF) {
				_, err = stream.Recv()
			}
			if err == nil {
				answered++
			} else if status.Code(err) != codes.ResourceExhausted {
				w.t.Errorf("refused with %v", err)
			}
		}
		if answered < least || answered > most {
			w.t.Errorf("%d of %d reflection streams are served, want %d to %d", answered, 2*most, least, most)
		}
	})
}

// inUse is how many bytes the heap holds, without garbage.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// ask makes a whole request, with an empty message.
func (p *rawPeer) ask(method string) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	id, err := p.begin(method)
	if err != nil {
		return err
	}
	return p.framer.WriteData(id, true, make([]byte, 5))
}
