package checker_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestOwnServerWords: what Isobar's server writes is probed as it is meant,
// with and without TLS, and what is reported is what the server reads.
func TestOwnServerWords(t *testing.T) {
	web, webTLS := newWeb(t, false, http2Clear), newWeb(t, true, http2TLS)
	certificate := webTLS.TLS.Certificates[0]
	webTLS.status.Store(http.StatusTeapot)
	line := listenTLS(t, certificate)
	target := grpcTLS(t, certificate)
	redis := testhelp.NewRedis(t).Address

	common := isobar.HealthCheck{
		Interval: 50 * time.Millisecond, Timeout: 300 * time.Millisecond, Jitter: 5 * time.Millisecond,
		UnhealthyThreshold: 3, HealthyThreshold: 2,
	}
	var clusters []*healthv3.ClusterHealthCheck
	want := map[string]string{}
	add := func(name, address string, change func(*isobar.HealthCheck)) {
		hc := common
		change(&hc)
		where := isobar.MustLocality("us-east/b")
		c, err := convert.ClusterHealthCheckOf(&isobar.Service{Name: name, HealthChecks: []isobar.HealthCheck{hc}},
			[]convert.ProbeTarget{{Locality: where, Endpoints: []isobar.Endpoint{{Address: address}}}})
		if err != nil {
			t.Fatal(err)
		}
		clusters, want[name] = append(clusters, c), address
	}
	add("h2c", web.address(), func(hc *isobar.HealthCheck) {
		hc.Protocol, hc.HTTP = isobar.CheckHTTP, &isobar.HTTPCheck{Path: "/", HTTP2: true}
	})
	add("https", webTLS.address(), func(hc *isobar.HealthCheck) {
		hc.Protocol, hc.TLS = isobar.CheckHTTP, true
		hc.HTTP = &isobar.HTTPCheck{
			Path: "/", Host: "shop.example", Method: "HEAD", HTTP2: true, Expected: []isobar.StatusRange{{Start: 418, End: 419}},
			Headers: []isobar.Header{{Name: "x-check", Value: "1"}},
		}
	})
	add("tcp/tls", line, func(hc *isobar.HealthCheck) {
		hc.Protocol, hc.TLS, hc.TCP = isobar.CheckTCP, true, &isobar.TCPCheck{Send: []byte("PING\n"), Receive: [][]byte{[]byte("PO"), []byte("NG")}}
	})
	add("grpc", target, func(hc *isobar.HealthCheck) {
		hc.Protocol, hc.TLS, hc.GRPC = isobar.CheckGRPC, true, &isobar.GRPCCheck{}
	})
	add("redis", redis, func(hc *isobar.HealthCheck) {
		hc.Protocol, hc.Redis = isobar.CheckRedis, &isobar.RedisCheck{}
	})
	s := start(t).stream()
	s.specify(t, convert.HealthCheckSpecifier(clusters, 20*time.Millisecond))
	for name, address := range want {
		s.until(t, name, address, healthy)
	}
	if r := webTLS.last(); r.Method != http.MethodHead || r.ProtoMajor != 2 || r.Host != "shop.example" || r.Header.Get("X-Check") != "1" {
		t.Errorf("https was asked %s %s of %s, %v", r.Proto, r.Method, r.Host, r.Header)
	}
	entries, _, err := convert.HealthEntries(s.next(t).GetEndpointHealthResponse(), func(r convert.HealthRejection) { t.Errorf("rejected: %+v", r) })
	if err != nil || len(entries) != len(want) {
		t.Errorf("the server reads %v, %v", entries, err)
	}
	for _, e := range entries {
		if want[e.Service] != e.Address.String() || e.Status != isobar.Healthy {
			t.Errorf("the server reads %+v", e)
		}
	}
	hello, err := convert.CheckerFrom(s.hello, rpc.V3)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []isobar.CheckProtocol{isobar.CheckHTTP, isobar.CheckTCP, isobar.CheckGRPC, isobar.CheckRedis} {
		if !slices.Contains(hello.Protocols.List(), p) {
			t.Errorf("the server believes that the checker can't do %s", p)
		}
	}
}

// listenTLS answers PING with PONG over TLS.
func listenTLS(t *testing.T, certificate tls.Certificate) string {
	t.Helper()
	return listen(t, "tcp", "127.0.0.1:0", func(conn net.Conn) {
		secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{certificate}})
		for r := bufio.NewReader(secure); ; {
			if _, err := r.ReadString('\n'); err != nil {
				return
			}
			if _, err := io.WriteString(secure, "PONG"); err != nil {
				return
			}
		}
	})
}

// grpcTLS serves the health service over TLS.
func grpcTLS(t *testing.T, certificate tls.Certificate) string {
	t.Helper()
	srv := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	healthpb.RegisterHealthServer(srv, health.NewServer())
	return testhelp.Loopback(t, srv)
}
