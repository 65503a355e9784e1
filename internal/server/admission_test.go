package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/pires/go-proxyproto"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// advice is when a refused client is told to come back, in both ways.
func advice(t *testing.T, s grpc.ClientStream, err error) time.Duration {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted {
		t.Fatalf("got %v, want RESOURCE_EXHAUSTED", err)
	}
	var wait time.Duration
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			wait = info.GetRetryDelay().AsDuration()
		}
	}
	pushback := strings.Join(s.Trailer().Get("grpc-retry-pushback-ms"), ",")
	if ms, perr := strconv.Atoi(pushback); perr != nil || time.Duration(ms)*time.Millisecond != wait.Truncate(time.Millisecond) {
		t.Errorf("the trailer says %q, the details %v", pushback, wait)
	}
	if wait < time.Second || wait > 10*time.Second {
		t.Errorf("told to wait %v, want 1 to 10 s", wait)
	}
	return wait
}

// TestFloodOfStreams: a flood from one address is refused with the advice when
// to come back, each stream another, and those that are open go on.
func TestFloodOfStreams(t *testing.T) {
	const burst = 40
	l := onLoopback(t, func(c *config.Config) {
		c.XDS.Admission = config.Admission{StreamsPerSecond: 0.01, Burst: burst}
	})
	conn := l.dial(nil)
	open := make([]adsClient, burst/2)
	var err error
	for i := range open {
		if open[i], _, err = subscribe(t.Context(), conn, nodeIn(fmt.Sprint(i), "us/a"), "checkout"); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	waits := map[time.Duration]bool{}
	for range 200 {
		s, _, err := subscribe(t.Context(), conn, nodeIn("flood", "us/a"), "checkout")
		if err == nil {
			continue // one came in for what is given back over time
		}
		if !strings.Contains(err.Error(), "too many new streams from your address") {
			t.Fatal(err)
		}
		waits[advice(t, s, err)] = true
	}
	if len(waits) < 100 {
		t.Errorf("%d different waits for 200 refusals: they would come back together", len(waits))
	}
	if n := l.metric("isobar_admission_refused_total", "peer_rate,stream"); n < 150 {
		t.Errorf("%v refusals counted", n)
	}
	for i, s := range open {
		if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resource.ClusterURL, ResourceNames: []string{"checkout"}}); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("a load balancer's check: %v", err)
	}
}

// TestResetsAreSlowedDown: streams above the rate of an address, which are opened
// and reset at once, cost their own connection time.
func TestResetsAreSlowedDown(t *testing.T) {
	l := onLoopback(t, func(c *config.Config) {
		c.XDS.Admission = config.Admission{StreamsPerSecond: 1, Burst: 40}
	})
	conn, err := net.Dial("tcp", l.server.XDSAddress())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	start := time.Now()
	const streams = 20_000
	go func() { // an error is seen by the reader
		_, _ = io.WriteString(conn, http2.ClientPreface)
		w := http2.NewFramer(conn, nil)
		_ = w.WriteSettings()
		for id := uint32(1); id < 2*streams; id += 2 {
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: adsHeaders(), EndHeaders: true})
			_ = w.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		_ = w.WritePing(false, [8]byte{1})
	}()
	for r := http2.NewFramer(io.Discard, conn); ; {
		f, err := r.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if ping, ok := f.(*http2.PingFrame); ok && ping.IsAck() && ping.Data == [8]byte{1} {
			break
		}
	}
	// What comes before the first refusal is read at once: a buffer's worth, 500 of these.
	if took := time.Since(start); took < 1700*time.Millisecond {
		t.Errorf("%d streams were read in %v, want 10,000 a second", streams, took)
	}
}

// adsHeaders are those of a stream, without a table of what came before.
func adsHeaders() []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName},
		{":authority", "isobar"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true}) // which no table keeps
	}
	return b.Bytes()
}

// TestBudgetOfAPeer: one identity holds no more streams and localities than its
// budget, whatever the others do; what it closes it may open again.
func TestBudgetOfAPeer(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	l := onLoopback(t, func(c *config.Config) {
		c.XDS.TLS = &files
		c.XDS.Admission = config.Admission{PeerStreams: 4, PeerLocalities: 2}
	})
	greedy, other := l.dial(ca.Client(&identitytest.Leaf{DNS: []string{"greedy.example"}})), l.dial(ca.Client(&identitytest.Leaf{DNS: []string{"other.example"}}))
	var last context.CancelFunc
	for i, zone := range []string{"us/a", "us/b", "us/a"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		last = cancel
		if _, _, err := subscribe(ctx, greedy, nodeIn(fmt.Sprint(i), zone), "checkout"); err != nil {
			t.Fatal(err)
		}
	}
	s, _, err := subscribe(t.Context(), greedy, nodeIn("x", "us/c"), "checkout")
	if advice(t, s, err); !strings.Contains(err.Error(), "too many localities") {
		t.Error(err)
	}
	if _, _, err := subscribe(t.Context(), greedy, nodeIn("4", "us/b"), "checkout"); err != nil {
		t.Fatal(err)
	}
	s, _, err = subscribe(t.Context(), greedy, nodeIn("5", "us/b"), "checkout")
	if advice(t, s, err); !strings.Contains(err.Error(), "too many open streams") {
		t.Error(err)
	}
	for i := range 4 {
		if _, _, err := subscribe(t.Context(), other, nodeIn(fmt.Sprint("other-", i), "us/c"), "checkout"); err != nil {
			t.Errorf("the other peer: %v", err)
		}
	}
	last()
	testhelp.Eventually(t, "room for another stream", func() bool {
		_, _, err := subscribe(t.Context(), greedy, nodeIn("6", "us/b"), "checkout")
		return err == nil
	})
}

// TestOneAddressLeavesStreamsToOthers: by default, one address takes half of the streams of a
// kind, and no less for having others of another kind open.
func TestOneAddressLeavesStreamsToOthers(t *testing.T) {
	l := onLoopback(t, func(c *config.Config) { c.XDS.MaxStreams = 4 })
	from := func(address string) *grpc.ClientConn {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		conn, err := grpc.NewClient("dns:///"+l.server.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
			grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", to) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	greedy, other := from("127.0.0.1"), from("127.0.0.2")
	report := func(conn *grpc.ClientConn) error {
		s, err := loadstatsv3.NewLoadReportingServiceClient(conn).StreamLoadStats(t.Context())
		if err != nil {
			return err
		}
		_ = s.Send(&loadstatsv3.LoadStatsRequest{Node: nodeIn("n", "us/a")}) // Recv knows why it failed
		_, err = s.Recv()
		return err
	}
	for _, peer := range []*grpc.ClientConn{greedy, other} {
		for range 2 {
			if _, _, err := subscribe(t.Context(), peer, nodeIn("n", "us/a"), "checkout"); err != nil {
				t.Fatal(err)
			}
			if err := report(peer); err != nil {
				t.Fatal(err)
			}
		}
		s, _, err := subscribe(t.Context(), peer, nodeIn("n", "us/a"), "checkout")
		if advice(t, s, err); !strings.Contains(err.Error(), "too many open streams of one peer") {
			t.Error(err)
		}
		if err := report(peer); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a third stream for reports: %v", err)
		}
	}
}

// TestFullServerAdvises: also the limits of the stream layers say when to come
// back.
func TestFullServerAdvises(t *testing.T) {
	l := onLoopback(t, func(c *config.Config) { c.XDS.MaxStreams = 1 })
	conn := l.dial(nil)
	c := config.XDS{MaxStreams: 1}
	if got := c.Limits(); got.PeerStreams != 1 || got.MaxConnections != 2 {
		t.Errorf("limits %+v", got)
	}
	if got := new(config.XDS).AddressStreams(); got != config.DefaultMaxStreams/2 {
		t.Errorf("one address may open %d of %d streams", got, config.DefaultMaxStreams)
	}
	if _, _, err := subscribe(t.Context(), conn, nodeIn("a", "us/a"), "checkout"); err != nil {
		t.Fatal(err)
	}
	s, _, err := subscribe(t.Context(), conn, nodeIn("b", "us/a"), "checkout")
	advice(t, s, err)
}

// TestTooManyConnections: a connection beyond the limit is closed, and counted.
func TestTooManyConnections(t *testing.T) {
	l := onLoopback(t, func(c *config.Config) { c.XDS.Admission.MaxConnections = 4 })
	first, second := l.dial(nil), l.dial(nil)
	for _, conn := range []*grpc.ClientConn{first, second} {
		if _, _, err := subscribe(t.Context(), conn, nodeIn("n", "us/a"), "checkout"); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := subscribe(t.Context(), l.dial(nil), nodeIn("n", "us/a"), "checkout"); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	if l.metric("isobar_admission_refused_total", "peer_connections,connection") < 1 || l.metric("isobar_xds_connections", "") != 2 {
		t.Error("the refusal is not counted, or a connection too many")
	}
	_ = first.Close()
	testhelp.Eventually(t, "room for another connection", func() bool {
		_, _, err := subscribe(t.Context(), l.dial(nil), nodeIn("n", "us/a"), "checkout")
		return err == nil
	})
}

// through dials as a balancer with an address of this machine does for a client; source
// "" sends no header.
func through(t *testing.T, server, balancer, source string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+server, grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(balancer)}}
			c, err := d.DialContext(ctx, "tcp", address)
			if err != nil || source == "" {
				return c, err
			}
			from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(source))
			_, err = proxyproto.HeaderProxyFromAddrs(2, from, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 18000}).WriteTo(c)
			return c, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestProxyProtocol asserts that limits by address count the clients of a balancer that
// is listed one by one, over TLS as well, that its connections without a header are
// refused, and that a header of anybody else is refused.
func TestProxyProtocol(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	for name, creds := range map[string]credentials.TransportCredentials{"plaintext": insecure.NewCredentials(), "tls": credentials.NewTLS(ca.Client(nil))} {
		t.Run(name, func(t *testing.T) {
			l := onLoopback(t, func(c *config.Config) {
				if name == "tls" {
					c.XDS.TLS = &files
					c.XDS.TLS.ClientCA = ""
				}
				c.XDS.Balancers = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
				c.XDS.Admission = config.Admission{PeerStreams: 1}
			})
			address := l.server.XDSAddress()
			open := func(node, balancer, source string) (grpc.ClientStream, error) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				t.Cleanup(cancel)
				s, _, err := subscribe(ctx, through(t, address, balancer, source, creds), nodeIn(node, "us/a"), "checkout")
				return s, err
			}
			for node, source := range map[string]string{"first": "192.0.2.1:1000", "second": "192.0.2.2:1000"} {
				if _, err := open(node, "127.0.0.2", source); err != nil {
					t.Errorf("%s: %v", node, err)
				}
			}
			s, err := open("again", "127.0.0.2", "192.0.2.1:1001")
			if advice(t, s, err); !strings.Contains(err.Error(), "too many open streams") {
				t.Error(err)
			}
			if _, err := open("direct", "127.0.0.3", ""); err != nil {
				t.Errorf("a client beside the balancer: %v", err)
			}
			if _, err := open("pretends", "127.0.0.4", "192.0.2.9:1000"); err == nil {
				t.Error("a header of an address that is not listed was taken")
			}
			if _, err := open("silent", "127.0.0.2", ""); err == nil {
				t.Error("a balancer that sends no header was served")
			}
			if !strings.Contains(l.log.String(), "it must begin with a PROXY header") {
				t.Errorf("the log lacks the balancer without a header: %s", l.log.String())
			}
			testhelp.Eventually(t, "the addresses of both clients", func() bool {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.server.AdminAddress()+"/v1/clients", nil)
				if err != nil {
					return false
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return false
				}
				defer func() { _ = resp.Body.Close() }()
				data, err := io.ReadAll(resp.Body)
				text := string(data)
				return err == nil && strings.Contains(text, "192.0.2.1:1000") && strings.Contains(text, "192.0.2.2:1000") && strings.Contains(text, "127.0.0.3:")
			})
		})
	}
}
