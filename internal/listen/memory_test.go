package listen

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// nothing is a plan without services.
type nothing struct{}

func (nothing) VersionString() string                                 { return "1" }
func (nothing) RequestLimit(string) uint32                            { return 0 }
func (nothing) Awaited() []isobar.Service                             { return nil }
func (nothing) ServiceNames() []string                                { return nil }
func (nothing) Spec(string) *isobar.Service                           { return nil }
func (nothing) Assignment(string, isobar.Locality) *isobar.Assignment { return nil }
func (nothing) Basis(string) any                                      { return nil }

// discovery is what the gate's server serves here: discovery, with a plan without services,
// and what places its clients as discovery does.
type discovery struct {
	*xds.Server

	reports  *lrs.Server
	checkers *hds.Server
}

func (d discovery) Register(g *grpc.Server, _ bool) {
	xds.Register(g, d.Server, false)
	d.reports.Register(g)
	d.checkers.Register(g)
}

func (d discovery) Stop() {
	d.Server.Stop()
	d.reports.Stop()
	d.checkers.Stop()
}

func (discovery) Left() <-chan struct{} { return closedChannel }
func (discovery) WaitAcknowledged()     {}
func (discovery) Spread() time.Duration { return 0 }

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// entered is a gate on the loopback interface with discovery behind it.
type entered struct {
	*testing.T

	gate      *Gate
	registry  *prometheus.Registry
	xds, rest string // addresses
}

// enterBy serves discovery behind a gate whose messages may take as much memory.
func enterBy(t *testing.T, memory int64, options xds.Options) *entered {
	t.Helper()
	listening := func() net.Listener {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	registry := prometheus.NewRegistry()
	gate, err := Open(Options{
		Settings: &config.Fixed{}, Policy: func() identity.Policy { return nil }, KnownHost: func(string) bool { return true },
		MessageMemory: memory, Identity: identity.NewMetrics(registry), Log: slog.New(slog.DiscardHandler), Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	ls := Listeners{XDS: listening(), REST: listening()}
	gate.Limit(&ls)
	serves := discovery{xds.New(options), lrs.New(lrs.Options{Place: options.Place}), hds.New(hds.Options{Place: options.Place})}
	serves.Publish(view.NewBuilder(view.Options{}).Build(nothing{}, nil))
	servers := gate.NewServers(ls, serves, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- servers.Serve(ctx) }()
	go func() { ended <- gate.ServePolls(ctx, ls.REST, xds.Handler(serves.Server, false)) }()
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return &entered{t, gate, registry, ls.XDS.Addr().String(), ls.REST.Addr().String()}
}

// holds waits until the messages of clients count for at least so many bytes.
func (e *entered) holds(least int64) {
	e.Helper()
	testhelp.Eventually(e.T, fmt.Sprintf("messages that count for %d bytes", least), func() bool { return e.gate.Use().Messages >= least })
}

// holdsNothing waits until no message counts any more.
func (e *entered) holdsNothing() {
	e.Helper()
	testhelp.Eventually(e.T, "no message that counts", func() bool { return e.gate.Use().Messages == 0 })
}

const streamAggregated = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"

// ask opens a stream for each of n clients on one connection and sends a first request.
func (e *entered) ask(n int, m *discoveryv3.DiscoveryRequest, options ...grpc.CallOption) {
	e.Helper()
	e.send(n, streamAggregated, m, options...)
}

// send does the same for any service.
func (e *entered) send(n int, method string, m proto.Message, options ...grpc.CallOption) {
	e.Helper()
	if err := e.trySend(n, method, m, options...); err != nil {
		e.Fatal(err)
	}
}

// trySend does the same, and returns the first error: of a connection that the gate closed, too.
func (e *entered) trySend(n int, method string, m proto.Message, options ...grpc.CallOption) error {
	e.Helper()
	conn, err := grpc.NewClient(e.xds, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(options...))
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = conn.Close() })
	for range n {
		s, err := conn.NewStream(e.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
		if err != nil {
			return err
		}
		if err := s.SendMsg(m); err != nil {
			return err
		}
	}
	return nil
}

// bulky is a request for names that take about 2 MiB, and shrink when they are compressed.
func bulky() *discoveryv3.DiscoveryRequest {
	m := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: resource.EndpointsURL, VersionInfo: "7"}
	for i := range 2_000 {
		m.ResourceNames = append(m.ResourceNames, fmt.Sprintf("%d%s", i, strings.Repeat("x", 1_000)))
	}
	return m
}

// TestCompressedMessagesCount asserts that messages which wait for their turn count as they
// were decompressed, and no longer than until they are handled.
func TestCompressedMessagesCount(t *testing.T) {
	const atOnce, waiting = 16, 20
	goOn := make(chan struct{})
	e := enterBy(t, 512<<20, xds.Options{Admit: func(context.Context, rpc.Node) error {
		<-goOn
		return nil
	}})
	m := bulky()
	var onTheWire bytes.Buffer
	z := gzip.NewWriter(&onTheWire)
	_, _ = z.Write([]byte(m.String()))
	if _ = z.Close(); onTheWire.Len() > 64<<10 {
		t.Fatalf("the message takes %d bytes on the wire", onTheWire.Len())
	}
	e.ask(atOnce+waiting, m, grpc.UseCompressor(rpc.Gzip))
	e.holds(waiting * 2_000_000)
	close(goOn)
	e.holdsNothing()
}

// TestRequestsThatWaitCount asserts that names count that a stream asks for while it waits for a
// version, and that a client with too many of them is sent away.
func TestRequestsThatWaitCount(t *testing.T) {
	const streams, few, memory = 20, 5, 50 << 20
	goOn := make(chan struct{})
	options := xds.Options{Await: func(ctx context.Context, _, _ string) error {
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	crowded := enterBy(t, memory, options)
	crowded.ask(few, bulky())
	crowded.holds(few * 2_000_000)
	_ = crowded.trySend(streams, streamAggregated, bulky()) // the gate may close it before all are sent
	testhelp.Eventually(t, "a closed connection", func() bool {
		return testhelp.Metric(t, crowded.registry, "isobar_admission_refused_total", "connection", "part_messages") == 1
	})
	crowded.holds(few * 2_000_000) // the other one goes on

	e := enterBy(t, 512<<20, options)
	e.ask(streams, bulky())
	e.holds(streams * 2_000_000)
	close(goOn)
	e.holdsNothing()
}

// TestClientsToPlaceCount asserts that of clients which wait for their locality only what they
// report counts meanwhile, and not what they say of themselves.
func TestClientsToPlaceCount(t *testing.T) {
	const clients, bytes = 20, 1_000_000
	node := &corev3.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		rpc.MachineKey: structpb.NewStringValue("machine"), "x": structpb.NewStringValue(strings.Repeat("x", bytes)),
	}}}
	report := &loadstatsv3.LoadStatsRequest{Node: &corev3.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		rpc.MachineKey: structpb.NewStringValue("machine"),
	}}}}
	for i := range bytes / 1_000 {
		report.ClusterStats = append(report.ClusterStats, &endpointv3.ClusterStats{ClusterName: fmt.Sprint(strings.Repeat("x", 1_000), i)})
	}
	for _, tc := range []struct {
		name, method string
		message      proto.Message
		counts       int64
	}{
		{"discovery", streamAggregated, &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: resource.EndpointsURL}, 0},
		{"load", "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats", &loadstatsv3.LoadStatsRequest{Node: node}, 0},
		{"reports", "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats", report, bytes},
		{"checkers", "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck", &healthv3.HealthCheckRequestOrEndpointHealthResponse{
			RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{HealthCheckRequest: &healthv3.HealthCheckRequest{Node: node}},
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var placing atomic.Int64
			goOn := make(chan struct{})
			e := enterBy(t, 512<<20, xds.Options{Place: func(context.Context, string, *rpc.Node) {
				placing.Add(1)
				<-goOn
			}})
			e.send(clients, tc.method, tc.message)
			testhelp.Eventually(t, "all are being placed", func() bool { return placing.Load() == clients })
			testhelp.Eventually(t, fmt.Sprintf("%d bytes that count for each", tc.counts), func() bool {
				got := e.gate.Use().Messages
				return got >= clients*tc.counts && got <= clients*tc.counts*5/4
			})
			close(goOn)
			e.holdsNothing()
		})
	}
}

// TestPollBodiesCount asserts that bodies of polls count from their first bytes on, and that the
// connections of too many of them are closed.
func TestPollBodiesCount(t *testing.T) {
	const memory, clients, half = 50 << 20, 20, 1 << 20
	e := enterBy(t, memory, xds.Options{})
	var all []net.Conn
	for range clients {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", e.rest)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprintf(conn, "POST /v3/discovery:endpoints HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 2*half)
		_, _ = io.Copy(conn, strings.NewReader(strings.Repeat(" ", half))) // some are closed meanwhile
		all = append(all, conn)
	}
	testhelp.Eventually(t, "bodies that fill their memory", func() bool { return e.gate.Use().Messages > memory*2/5-3*half })
	if use := e.gate.Use(); use.Messages > use.MostMessages {
		t.Errorf("bodies count for %d bytes, and may take %d", use.Messages, use.MostMessages)
	}
	closed := 0
	for _, conn := range all {
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); err != nil && !isTimeout(err) {
			closed++
		}
	}
	if left := clients - closed; left < 2 || left > memory*2/5/half {
		t.Errorf("%d of %d connections are closed", closed, clients)
	}
	for _, conn := range all {
		_ = conn.Close()
	}
	e.holdsNothing()

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+e.rest+"/v3/discovery:endpoints", strings.NewReader(`{"node":{"id":"n"}}`+strings.Repeat(" ", half)))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Errorf("a poll is answered with %s", answer.Status)
	}
}

func isTimeout(err error) bool {
	var x net.Error
	return errors.As(err, &x) && x.Timeout()
}
