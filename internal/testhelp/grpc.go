package testhelp

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// Dial makes a connection to a listener in memory, without TLS. It is the
// caller's to close: in a bubble of virtual time that has to be before its end.
func Dial(tb testing.TB, l *bufconn.Listener, options ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient("passthrough:///memory", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	}, options...)...)
	if err != nil {
		tb.Fatal(err)
	}
	return conn
}

// Serve runs a server in memory and connects to it. stop closes the connection,
// ends what still runs, and returns when nothing of it is left.
func Serve(tb testing.TB, g *grpc.Server, options ...grpc.DialOption) (conn *grpc.ClientConn, stop func()) {
	tb.Helper()
	l := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	conn = Dial(tb, l, options...)
	return conn, func() {
		_ = conn.Close() // the test may have done so
		g.Stop()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	}
}

// Loopback runs a server on a port of this machine until the test ends, and
// gives its address.
func Loopback(tb testing.TB, g *grpc.Server) string {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	tb.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	return l.Addr().String()
}
