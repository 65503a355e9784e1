package interop

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	orcadata "github.com/cncf/xds/go/xds/data/orca/v3"
	orcapb "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"
)

// backend is a real gRPC server that says its name with every answer.
type backend struct {
	testpb.UnimplementedTestServiceServer

	name    string
	address string
	server  *grpc.Server
}

// startBackend listens on the address; "" is any free port of loopback.
func startBackend(t *testing.T, name, address string) *backend {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	lis, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{name: name, address: lis.Addr().String(), server: grpc.NewServer(orca.CallMetricsServerOption(nil))}
	testpb.RegisterTestServiceServer(b.server, b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.server.Serve(lis) // ends with kill
	}()
	t.Cleanup(func() {
		b.kill()
		<-done
	})
	return b
}

// kill ends it at once, as a crash does; its port refuses from then on.
func (b *backend) kill() { b.server.Stop() }

// EmptyCall answers with the name in a header, which clients can read without
// generated code, and with a load that depends on nothing.
func (b *backend) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	if r := orca.CallMetricsRecorderFromContext(ctx); r != nil {
		r.SetApplicationUtilization(0.5)
		r.SetQPS(100)
	}
	return &testpb.Empty{}, grpc.SetHeader(ctx, metadata.Pairs("hostname", b.name))
}

// reporter is a backend that says on a stream of its own (ORCA out of band) how
// busy it is, and nothing with its answers. It answers calls of gRPC and requests
// of the web.
type reporter struct {
	testpb.UnimplementedTestServiceServer
	orcapb.UnimplementedOpenRcaServiceServer

	name, address string
	utilization   float64
}

func startReporter(t *testing.T, name string, utilization float64) *reporter {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &reporter{name: name, address: lis.Addr().String(), utilization: utilization}
	calls := grpc.NewServer()
	testpb.RegisterTestServiceServer(calls, r)
	orcapb.RegisterOpenRcaServiceServer(calls, r)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{ReadHeaderTimeout: patience, Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.HasPrefix(q.Header.Get("Content-Type"), "application/grpc") {
			calls.ServeHTTP(w, q)
			return
		}
		_, _ = io.WriteString(w, r.name)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lis) // ends with Close
	}()
	t.Cleanup(func() {
		_ = server.Close()
		calls.Stop()
		<-done
	})
	return r
}

// EmptyCall answers with the name in a header.
func (r *reporter) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, grpc.SetHeader(ctx, metadata.Pairs("hostname", r.name))
}

// StreamCoreMetrics reports as often as it is asked to.
func (r *reporter) StreamCoreMetrics(q *orcapb.OrcaLoadReportRequest, stream grpc.ServerStreamingServer[orcadata.OrcaLoadReport]) error {
	interval := q.GetReportInterval().AsDuration()
	if interval <= 0 {
		return status.Error(codes.InvalidArgument, "no report_interval")
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := stream.Send(&orcadata.OrcaLoadReport{ApplicationUtilization: r.utilization, RpsFractional: 100}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-ticker.C:
		}
	}
}

// reporting lists the addresses of reporters, as YAML.
func reporting(all ...*reporter) string {
	var out []string
	for _, r := range all {
		out = append(out, fmt.Sprintf("%q", r.address))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// hearsOutOfBand starts a client of the service whose endpoints report out of band;
// nil for a kind that does not listen. A client waits ten seconds before it uses
// the reports.
func (s *site) hearsOutOfBand() *client {
	s.t.Helper()
	if excused(s.kind.name, outOfBand) {
		return nil
	}
	c := s.kind.start(s.t, s.xds, "apart")
	c.ready(s.t)
	return c
}

// outOfBand: of two endpoints that say on streams of their own that they are idle
// and busy, the idle one gets most calls: four times as many by the weights of gRPC.
func (s *site) outOfBand(c *client) {
	t := s.t
	await(t, "fewer calls to the endpoint that is busy", func() error {
		if o := c.call(t, 2*callRate); o.share("idle") < 0.7 || o.Served["busy"] == 0 || len(o.Failed) > 0 {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
}
