package lrs_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a server and one connection to it, in virtual time.
type harness struct {
	t    *testing.T
	srv  *lrs.Server
	conn *grpc.ClientConn
}

// inBubble runs a test against a server over real gRPC in memory.
func inBubble(t *testing.T, opts lrs.Options, test func(h *harness)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		srv := lrs.New(opts)
		g := grpc.NewServer(grpc.ForceServerCodecV2(rpc.ServerCodec()))
		srv.Register(g)
		g.RegisterService(&grpc.ServiceDesc{
			ServiceName: "envoy.api.v2.EndpointDiscoveryService", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{srv.Stream2017()},
		}, srv)
		conn, stop := testhelp.Serve(t, g)
		defer srv.Stop()
		defer stop()
		test(&harness{t: t, srv: srv, conn: conn})
	})
}

// client is one stream.
type client struct {
	t      *testing.T
	stream loadstatsv3.LoadReportingService_StreamLoadStatsClient
	cancel context.CancelFunc
}

func (h *harness) open() *client {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	stream, err := loadstatsv3.NewLoadReportingServiceClient(h.conn).StreamLoadStats(ctx)
	if err != nil {
		cancel()
		h.t.Fatal(err)
	}
	return &client{t: h.t, stream: stream, cancel: cancel}
}

// greet opens a stream, says who it is and returns the first response.
func (h *harness) greet(n *corev3.Node, stats ...*endpointv3.ClusterStats) (*client, *loadstatsv3.LoadStatsResponse) {
	h.t.Helper()
	c := h.open()
	c.send(&loadstatsv3.LoadStatsRequest{Node: n, ClusterStats: stats})
	return c, c.recv()
}

func (c *client) send(m *loadstatsv3.LoadStatsRequest) {
	c.t.Helper()
	// Of a stream that was refused, only receiving says why.
	if err := c.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
}

func (c *client) report(stats ...*endpointv3.ClusterStats) {
	c.t.Helper()
	c.send(&loadstatsv3.LoadStatsRequest{ClusterStats: stats})
}

func (c *client) recv() *loadstatsv3.LoadStatsResponse {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// next returns what the server says, if it says anything by now.
func (c *client) next() (said <-chan answer) {
	out := make(chan answer, 1)
	go func() {
		m, err := c.stream.Recv()
		out <- answer{m, err}
	}()
	synctest.Wait()
	return out
}

type answer struct {
	m   *loadstatsv3.LoadStatsResponse
	err error
}

func node(agent string, features ...string) *corev3.Node {
	return &corev3.Node{
		Id: "node-1", Cluster: "frontend", UserAgentName: agent, ClientFeatures: features,
		Locality: &corev3.Locality{Region: "us-east", Zone: "a"},
	}
}

func grpcNode() *corev3.Node { return node("gRPC Go", rpc.FeatureSendAllClusters) }

func stats(service string, issued uint64, length time.Duration) *endpointv3.ClusterStats {
	return &endpointv3.ClusterStats{
		ClusterName: service, LoadReportInterval: durationpb.New(length),
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
			Locality:            &corev3.Locality{Region: "us-east", Zone: "b"},
			TotalIssuedRequests: issued, TotalSuccessfulRequests: issued,
		}},
	}
}
