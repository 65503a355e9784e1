package interop

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/orca"
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
