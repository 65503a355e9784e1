package testhelp

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
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
// returns its address.
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

// Ports that are given on purpose come from a range in which no system gives any
// by itself: who asks for port 0, or connects, gets one above it.
const (
	firstPort = 20_000
	endOfPort = 32_000
)

var given sync.Map // ports of FreePort

// FreePort is an address of this machine where nothing listens, and nobody gets
// to by chance: for a process that is to be found there, even when it starts
// again.
func FreePort(tb testing.TB) string {
	tb.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(endOfPort-firstPort) //nolint:gosec // no secret
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", address)
		if err != nil {
			continue // of another process
		}
		_ = l.Close()
		return address
	}
	tb.Fatalf("no free port from %d to %d", firstPort, endOfPort-1)
	return ""
}

// Refused is an address that refuses connections until the test ends: a
// connection goes out from there, so that nobody else gets the port, and nothing
// listens.
func Refused(tb testing.TB) string {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	conn, err := d.DialContext(tb.Context(), "tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = conn.Close(), far.Close() })
	return conn.LocalAddr().String()
}
