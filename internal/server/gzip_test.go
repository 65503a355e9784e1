package server_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

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

		bombs := make([]*sweepStream, 100)
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
