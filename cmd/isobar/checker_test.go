package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// designator hands out one TCP check of its own address, and notes what is
// reported.
type designator struct {
	healthv3.UnimplementedHealthDiscoveryServiceServer

	address *net.TCPAddr
	hello   chan *healthv3.HealthCheckRequest
	reports chan *healthv3.EndpointHealthResponse
}

func (d *designator) StreamHealthCheck(s healthv3.HealthDiscoveryService_StreamHealthCheckServer) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	d.hello <- first.GetHealthCheckRequest()
	every := durationpb.New(50 * time.Millisecond)
	err = s.Send(&healthv3.HealthCheckSpecifier{Interval: every, ClusterHealthChecks: []*healthv3.ClusterHealthCheck{{
		ClusterName: "shop",
		HealthChecks: []*corev3.HealthCheck{{
			Timeout: durationpb.New(time.Second), Interval: every, NoTrafficInterval: every,
			HealthyThreshold: wrapperspb.UInt32(1), UnhealthyThreshold: wrapperspb.UInt32(1),
			HealthChecker: &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}},
		}},
		LocalityEndpoints: []*healthv3.LocalityEndpoints{{
			Locality: &corev3.Locality{Region: "us-east", Zone: "b"},
			Endpoints: []*endpointv3.Endpoint{{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{
					Address: d.address.IP.String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(d.address.Port)},
				},
			}}}},
		}},
	}}})
	if err != nil {
		return err
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		select {
		case d.reports <- m.GetEndpointHealthResponse():
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

// TestChecker runs the command against a management server: it says who it
// is, probes, reports, shows metrics, and stops when told to.
func TestChecker(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &designator{
		address: l.Addr().(*net.TCPAddr),
		hello:   make(chan *healthv3.HealthCheckRequest, 10), reports: make(chan *healthv3.EndpointHealthResponse),
	}
	srv := grpc.NewServer()
	healthv3.RegisterHealthDiscoveryServiceServer(srv, d)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-served
	})

	logs, w := io.Pipe()
	address := make(chan string, 1)
	go func() {
		listening := regexp.MustCompile(`msg="serving metrics" address=(\S+)`)
		lines := bufio.NewScanner(logs)
		for lines.Scan() {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				address <- m[1]
			}
		}
	}()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runChecker(ctx, &checkerFlags{
			server: l.Addr().String(), locality: "us-east/b/rack-1", nodeID: "c-1", cluster: "checkers", metrics: "127.0.0.1:0",
		}, slog.New(slog.NewTextHandler(w, nil)))
		_ = w.Close()
	}()

	hello := <-d.hello
	if n := hello.GetNode(); n.GetId() != "c-1" || n.GetCluster() != "checkers" || n.GetLocality().GetSubZone() != "rack-1" {
		t.Errorf("the checker calls itself %v", n)
	}
	if got := len(hello.GetCapability().GetHealthCheckProtocols()); got != 3 {
		t.Errorf("%d capabilities, want HTTP, TCP and REDIS", got)
	}
	for status := corev3.HealthStatus_UNKNOWN; status != corev3.HealthStatus_HEALTHY; {
		select {
		case r := <-d.reports:
			status = r.GetClusterEndpointsHealth()[0].GetLocalityEndpointsHealth()[0].GetEndpointsHealth()[0].GetHealthStatus()
		case <-time.After(time.Minute):
			t.Fatal("never reported as healthy")
		}
	}
	body := fetch(t, "http://"+<-address+"/metrics")
	if !strings.Contains(body, `isobar_checker_endpoints{status="healthy"} 1`) {
		t.Errorf("metrics:\n%s", body)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// BenchmarkCheckerProcess lets a server designate 10,000 HTTP endpoints at 5 s
// to one `isobar checker` for 30 s, and prints what the checker's process used:
// cores, most memory, probes/s. The endpoints are one web server that answers
// at once, in this process; each has a connection of its own.
func BenchmarkCheckerProcess(b *testing.B) {
	const endpoints, lasts = 10_000, 30 * time.Second
	port := webServer(b)
	for range b.N {
		p := &process{t: b, file: filepath.Join(b.TempDir(), "isobar.yaml"), xds: testhelp.FreePort(b), api: testhelp.FreePort(b)}
		if err := writeManyEndpoints(p, endpoints, port); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(p.kill)
		p.start()
		p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
		c := startChecker(b, p.xds, "checker", "us/a")
		<-time.After(lasts)
		m, err := metricsOf(b, c.metrics)
		if err != nil {
			b.Fatal(err)
		}
		if n := m[`isobar_checker_endpoints{status="healthy"}`]; n != endpoints {
			b.Errorf("%v endpoints are healthy, want %d", n, endpoints)
		}
		c.signal(os.Interrupt)
		state, err := c.cmd.Process.Wait()
		if err != nil {
			b.Fatal(err)
		}
		c.cmd = nil
		probes := 0.0
		for name, v := range m {
			if strings.HasPrefix(name, "isobar_checker_probes_total{") {
				probes += v
			}
		}
		b.ReportMetric((state.UserTime()+state.SystemTime()).Seconds()/lasts.Seconds(), "cores")
		if u, ok := state.SysUsage().(*syscall.Rusage); ok {
			b.ReportMetric(float64(u.Maxrss)/1024, "MiB-max") // KiB on Linux
		}
		b.ReportMetric(probes/lasts.Seconds(), "probes/s")
		b.ReportMetric(m["isobar_checker_late_probes_total"], "late")
		b.ReportMetric(0, "ns/op") // it is as long as it is made
		p.kill()
	}
}

// webServer answers every request at once and returns its port.
func webServer(b *testing.B) int {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	background(b, srv.Serve, l, func() { _ = srv.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// writeManyEndpoints configures a service with so many endpoints, all of which
// are probed at the same port of this machine.
func writeManyEndpoints(p *process, endpoints, port int) error {
	var w bytes.Buffer
	fmt.Fprintf(&w, "xds: {listen: %q}\nadmin: {listen: %q}\nstate_dir: %q\nservices:\n- name: web\n", p.xds, p.api, p.file+".state")
	w.WriteString("  health_checks: [{http: {path: /healthz}, interval: 5s}]\n  checkers: {count: 1, domains: 1}\n  localities:\n  - locality: us/a\n    endpoints:\n")
	for i := range endpoints {
		fmt.Fprintf(&w, "    - {address: \"10.0.%d.%d:80\", health_check_config: {address: 127.0.0.1, port: %d}}\n", i/250, i%250+1, port)
	}
	return os.WriteFile(p.file, w.Bytes(), 0o600)
}
