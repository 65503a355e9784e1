package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
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
