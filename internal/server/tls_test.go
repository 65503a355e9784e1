package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// loopback is a real server on loopback, in real time.
type loopback struct {
	t      *testing.T
	server *server.Server
	rest   string // address
	log    *testhelp.Log
}

func onLoopback(t *testing.T, change func(*config.Config)) *loopback {
	t.Helper()
	cfg := configuration(t)
	cfg.XDS.Listen, cfg.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Tick, cfg.ReportInterval, cfg.StopSpread = time.Second, time.Second, 0
	change(cfg)
	ls, err := listen.All(t.Context(), &cfg.Fixed)
	if err != nil {
		t.Fatal(err)
	}
	kept := store.NewMemory()
	l := &loopback{t: t, log: &testhelp.Log{}}
	if ls.REST != nil {
		l.rest = ls.REST.Addr().String()
	}
	l.server, err = server.New(cfg, ls, server.Options{Store: kept, Log: slog.New(slog.NewTextHandler(l.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		_ = kept.Close()
	})
	return l
}

// get decodes what the admin interface answers.
func (l *loopback) get(path string, into any) {
	l.t.Helper()
	request, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, "http://"+l.server.AdminAddress()+path, http.NoBody)
	if err != nil {
		l.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		l.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		l.t.Fatal(err)
	}
}

// metric returns the value with those labels; 0 if there is none.
func (l *loopback) metric(name, labels string) float64 {
	l.t.Helper()
	return testhelp.Series(l.t, l.server.Metrics(), name)[labels]
}

// dial connects over TLS, or in plaintext with nil.
func (l *loopback) dial(c *tls.Config) *grpc.ClientConn {
	l.t.Helper()
	creds := insecure.NewCredentials()
	if c != nil {
		creds = credentials.NewTLS(c)
	}
	conn, err := grpc.NewClient("dns:///"+l.server.XDSAddress(), grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

type adsClient = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient

func nodeIn(id, locality string) *corev3.Node {
	l := loc(locality)
	return &corev3.Node{Id: id, Cluster: "web", Locality: &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}}
}

// subscribe opens a stream and gets its first response.
func subscribe(ctx context.Context, conn *grpc.ClientConn, n *corev3.Node, names ...string) (adsClient, *discoveryv3.DiscoveryResponse, error) {
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, nil, err
	}
	_ = s.Send(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: resource.EndpointsURL, ResourceNames: names}) // Recv knows why it failed
	m, err := s.Recv()
	return s, m, err
}

// serverSerial is that of the certificate which new connections see.
func (l *loopback) serverSerial(c *tls.Config) string {
	l.t.Helper()
	c = c.Clone()
	c.NextProtos = []string{"h2"}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", l.server.XDSAddress(), c)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestRotationDropsNoStream: 1,000 streams stay open while the certificates
// change twice, and are served afterwards.
func TestRotationDropsNoStream(t *testing.T) {
	const streams, connections = 1000, 5
	ca := identitytest.NewCA(t)
	dir := t.TempDir()
	files := ca.Write(dir, identitytest.Leaf{})
	l := onLoopback(t, func(c *config.Config) { c.XDS.TLS = &files })
	client := ca.Client(&identitytest.Leaf{URIs: []string{"spiffe://prod.example/envoy"}})
	open := make([]adsClient, streams)
	last := make([]*discoveryv3.DiscoveryResponse, streams)
	conns := make([]*grpc.ClientConn, connections)
	for i := range conns {
		conns[i] = l.dial(client)
	}
	var err error
	for i := range open {
		if open[i], last[i], err = subscribe(t.Context(), conns[i%connections], nodeIn(fmt.Sprint("node-", i), "us/a"), "checkout"); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	for range 2 {
		before := l.serverSerial(client)
		ca.Write(dir, identitytest.Leaf{})
		testhelp.Eventually(t, "the new certificate", func() bool { return l.serverSerial(client) != before })
	}
	for i, s := range open {
		// Another type: only a stream that lives answers it.
		if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resource.ClusterURL, ResourceNames: []string{"checkout"}}); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		for {
			m, err := s.Recv()
			if err != nil {
				t.Fatalf("stream %d was dropped: %v", i, err)
			}
			if m.GetTypeUrl() == resource.ClusterURL {
				break
			}
		}
	}
	if n := l.metric("isobar_xds_streams", "sotw"); n != streams {
		t.Errorf("%v streams are open, want %d", n, streams)
	}
}

func policy(t *testing.T, rules ...[3]string) identity.Policy {
	t.Helper()
	var out identity.Policy
	for _, r := range rules {
		p, err := identity.ParsePattern(r[0])
		if err != nil {
			t.Fatal(err)
		}
		rule := identity.Rule{Match: p}
		for s := range strings.FieldsSeq(r[1]) {
			role, err := identity.ParseRole(s)
			if err != nil {
				t.Fatal(err)
			}
			rule.Roles |= role
		}
		for s := range strings.FieldsSeq(r[2]) {
			x, err := identity.ParseLocality(s)
			if err != nil {
				t.Fatal(err)
			}
			rule.Localities = append(rule.Localities, x)
		}
		out = append(out, rule)
	}
	return out
}

// calls are one of each kind, with a node.
func (l *loopback) calls(conn *grpc.ClientConn, locality string) map[string]error {
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	out := map[string]error{}
	n := nodeIn("n", locality)
	_, _, out["ads"] = subscribe(ctx, conn, n, "checkout")
	if s, err := loadstatsv3.NewLoadReportingServiceClient(conn).StreamLoadStats(ctx); err != nil {
		out["lrs"] = err
	} else {
		_ = s.Send(&loadstatsv3.LoadStatsRequest{Node: n})
		_, out["lrs"] = s.Recv()
	}
	_, out["hds"] = healthv3.NewHealthDiscoveryServiceClient(conn).FetchHealthCheck(ctx, &healthv3.HealthCheckRequestOrEndpointHealthResponse{
		RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{
			HealthCheckRequest: &healthv3.HealthCheckRequest{Node: n, Capability: &healthv3.Capability{
				HealthCheckProtocols: []healthv3.Capability_Protocol{healthv3.Capability_TCP},
			}},
		},
	})
	if s, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx); err != nil {
		out["reflection"] = err
	} else {
		_ = s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		_, out["reflection"] = s.Recv()
	}
	_, out["health"] = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return out
}

// TestIdentities: a client may do what its certificate's roles say, in its
// localities, and is told why where it may not.
func TestIdentities(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	l := onLoopback(t, func(c *config.Config) {
		c.XDS.TLS = &files
		c.Identities = policy(t,
			[3]string{"spiffe://prod.example/ns/*/sa/envoy", "client", "us/*"},
			[3]string{"checker.example", "checker", ""},
			[3]string{"*.ops.example", "admin client", "eu"})
	})
	const denied = codes.PermissionDenied
	all := func(c codes.Code) map[string]codes.Code {
		return map[string]codes.Code{"ads": c, "lrs": c, "hds": c, "reflection": c}
	}
	envoy := identitytest.Leaf{URIs: []string{"spiffe://prod.example/ns/shop/sa/envoy"}}
	tests := []struct {
		name, locality string
		leaf           identitytest.Leaf
		want           map[string]codes.Code // those left out succeed
		says           map[string]string
	}{
		{"a client", "us/a", envoy, map[string]codes.Code{"hds": denied, "reflection": denied}, map[string]string{
			"hds": "spiffe://prod.example/ns/shop/sa/envoy may not act as checker: role not allowed, it has client",
		}},
		{"a client elsewhere", "eu/a", envoy, all(denied), map[string]string{
			"ads": `may not act as client in locality "eu/a": locality not allowed, it may in us/*`,
			"lrs": `may not act as client in locality "eu/a": locality not allowed, it may in us/*`,
		}},
		{"a checker", "eu/a", identitytest.Leaf{DNS: []string{"checker.example"}},
			map[string]codes.Code{"ads": denied, "lrs": denied, "reflection": denied}, map[string]string{"ads": "checker.example may not act as client"}},
		{"an operator", "eu/b", identitytest.Leaf{DNS: []string{"jo.ops.example"}}, map[string]codes.Code{"hds": denied}, nil},
		{"a stranger", "us/a", identitytest.Leaf{DNS: []string{"x.example"}}, all(denied), map[string]string{
			"ads": "no identity in the configuration matches x.example",
		}},
	}
	for _, tt := range tests {
		for call, err := range l.calls(l.dial(ca.Client(&tt.leaf)), tt.locality) {
			s := status.Convert(err)
			if s.Code() != tt.want[call] || !strings.Contains(s.Message(), tt.says[call]) {
				t.Errorf("%s, %s: %v", tt.name, call, err)
			}
		}
	}
	// A checker that is refused again and again is held for a moment, and named.
	l.calls(l.dial(ca.Client(&envoy)), "us/a")
	var told admin.Status
	l.get("/v1/status", &told)
	if a := attends(t, told, admin.CheckerRefused); !strings.Contains(a.Text, "Isobar repeatedly refuses the checker identity spiffe://prod.example/ns/shop/sa/envoy") {
		t.Errorf("told as %q", a.Text)
	}
	text := l.log.String()
	for _, want := range []string{"locality not allowed", "role not allowed", "peer=127.0.0.1 node="} {
		if !strings.Contains(text, want) {
			t.Errorf("the log does not say %q:\n%s", want, text)
		}
	}
	// One client was in the wrong locality, which shows only on its streams.
	for _, metric := range []string{"isobar_xds_refused_streams_total", "isobar_lrs_refused_streams_total"} {
		if n := l.metric(metric, "denied"); n != 1 {
			t.Errorf("%s: %v denied", metric, n)
		}
	}
}

// TestNoGoodCertificate: a handshake that fails is told to the client by TLS,
// and in the log, with the reason.
func TestNoGoodCertificate(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	l := onLoopback(t, func(c *config.Config) { c.XDS.TLS = &files })
	foreign := ca.Client(nil)
	foreign.GetClientCertificate = identitytest.NewCA(t).Client(&identitytest.Leaf{DNS: []string{"a.example"}}).GetClientCertificate
	tests := []struct {
		name, says string
		config     *tls.Config
	}{
		{"no_certificate", "certificate required", ca.Client(nil)},
		{"expired", "expired certificate", ca.Client(&identitytest.Leaf{DNS: []string{"a.example"}, NotAfter: time.Now().Add(-time.Minute)})},
		{"unknown_authority", "unknown certificate authority", foreign},
		{"not_tls", "", nil},
	}
	for _, tt := range tests {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, _, err := subscribe(ctx, l.dial(tt.config), nodeIn("n", "us/a"), "checkout")
		cancel()
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.name, err)
		}
		testhelp.Eventually(t, tt.name+" in the log", func() bool { return strings.Contains(l.log.String(), "reason="+tt.name) })
	}
}

// TestHandshakeThatTheClientEnds: a client that does not trust the server's
// certificate ends the handshake, over and over. It is logged with the address and
// the reason, once a minute; a connection on which nothing is said is not.
func TestHandshakeThatTheClientEnds(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	l := onLoopback(t, func(c *config.Config) { c.XDS.TLS = &files })
	connect := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", l.server.XDSAddress())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	_ = connect().Close() // a port scan
	testhelp.Eventually(t, "a broken handshake", func() bool { return l.metric("isobar_tls_handshake_failures_total", "broken") == 1 })
	for range 3 {
		conn := connect()
		other := identitytest.NewCA(t).Client(nil)
		other.ServerName = "localhost"
		if err := tls.Client(conn, other).Handshake(); err == nil {
			t.Error("a server of another authority is trusted")
		}
		_ = conn.Close()
	}
	silent := connect() // says hello, and goes without an alert
	_, _ = silent.Write([]byte{22, 3, 1, 0, 200, 1})
	_ = silent.Close()
	testhelp.Eventually(t, "four that the client ended", func() bool { return l.metric("isobar_tls_handshake_failures_total", "ended_by_client") == 4 })
	if text := l.log.String(); strings.Count(text, "reason=ended_by_client") != 1 || !strings.Contains(text, "peer=127.0.0.1:") {
		t.Errorf("log: %s", text)
	}
}
