package server_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// TestRequestsWithoutMessage: requests that are begun and left take a bounded
// number of goroutines, are told of and end; health checks get in beside them,
// and other requests after them.
func TestRequestsWithoutMessage(t *testing.T) {
	inSweep(t, func(w *sweepWorld) {
		const most, begun = 1000, 1800
		client, health := statusv3.NewClientStatusDiscoveryServiceClient(w.conn), healthpb.NewHealthClient(w.conn)
		if _, err := client.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{}); err != nil {
			t.Fatal(err)
		}
		before := runtime.NumGoroutine()
		for n := range begun / 900 {
			p := w.peer()
			defer func() { _ = p.Close() }()
			go p.answer()
			for i := range 900 {
				var own [][2]string
				if i%2 == 1 {
					own = [][2]string{{"grpc-timeout", "99999999H"}} // must not be believed
				}
				if _, err := p.begin(statusv3.ClientStatusDiscoveryService_FetchClientStatus_FullMethodName, own...); err != nil {
					t.Fatalf("peer %d, request %d: %v", n, i, err)
				}
			}
		}
		synctest.Wait()
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > most+50 {
			t.Errorf("%d goroutines for %d requests", n, begun)
		}
		_, err := client.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{})
		st := status.Convert(err)
		if st.Code() != codes.ResourceExhausted || !strings.Contains(st.Message(), "too many open streams of one peer") || len(st.Details()) != 1 {
			t.Fatalf("one more: %v", err)
		}
		if _, ok := st.Details()[0].(*errdetails.RetryInfo); !ok {
			t.Errorf("no advice when to come back: %v", st.Details())
		}
		if _, err := health.Check(w.t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("a health check beside them: %v", err)
		}
		time.Sleep(30 * time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 50 {
			t.Errorf("%d goroutines are left", n)
		}
		if _, err := client.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{}); err != nil {
			t.Errorf("after them: %v", err)
		}
		refused := testhelp.Series(t, w.server.Metrics(), "isobar_admission_refused_total")
		if refused["no_message,stream"] != most || refused["peer_streams,stream"] != begun-most+1 {
			t.Errorf("refused: %v", refused)
		}
	})
}

// payloads notes the sizes of the message that came last.
type payloads struct {
	length, onTheWire atomic.Int64
}

func (*payloads) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*payloads) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*payloads) HandleConn(context.Context, stats.ConnStats)                       {}

func (p *payloads) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok {
		p.length.Store(int64(in.Length))
		p.onTheWire.Store(int64(in.CompressedLength))
	}
}

// Requests may be compressed. Responses are not: they are encoded once for all
// streams. Messages that become too large are refused, and many at once that
// become large do no harm.
func TestCompressedRequests(t *testing.T) {
	inSweep(t, func(w *sweepWorld) {
		var got payloads
		conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return w.dial(ctx) }),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rpc.ServerCodec()), grpc.UseCompressor(rpc.Gzip)),
			grpc.WithStatsHandler(&got))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		request := w.encode(&discoveryv3.DiscoveryRequest{TypeUrl: resource.ClusterURL})
		s := w.openOn(conn, sotwMethod)
		s.send(request)
		if s.answers() != 1 {
			t.Fatalf("no answer to a compressed request: %v", s.err)
		}
		if got.length.Load() == 0 || got.length.Load() != got.onTheWire.Load() {
			t.Errorf("the response of %d bytes took %d", got.length.Load(), got.onTheWire.Load())
		}
		s.close()

		bombs := make([]*sweepStream, 25) // the race detector makes each take a second
		for i := range bombs {
			bombs[i] = w.openOn(conn, sotwMethod)
			bombs[i].send(repeated(99, make([]byte, 1000), 5_000))
		}
		synctest.Wait()
		for _, b := range bombs {
			if code := status.Code(b.err); code != codes.ResourceExhausted {
				t.Errorf("5 MiB in a few kilobytes: %v", b.err)
			}
			b.close()
		}
		w.alive("after compressed requests")
	})
}
