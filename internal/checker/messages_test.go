package checker_test

import (
	"net"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// spec builds a specifier; reports come every 20 ms.
func spec(clusters ...*healthv3.ClusterHealthCheck) *specifier {
	return &specifier{ClusterHealthChecks: clusters, Interval: durationpb.New(20 * time.Millisecond)}
}

// cluster has its endpoints ("IP:port" or a path) in one locality.
func cluster(name string, hc *corev3.HealthCheck, addresses ...string) *healthv3.ClusterHealthCheck {
	return &healthv3.ClusterHealthCheck{
		ClusterName: name, HealthChecks: []*corev3.HealthCheck{hc},
		LocalityEndpoints: []*healthv3.LocalityEndpoints{group("us-east", "b", addresses...)},
	}
}

func group(region, zone string, addresses ...string) *healthv3.LocalityEndpoints {
	g := &healthv3.LocalityEndpoints{Locality: &corev3.Locality{Region: region, Zone: zone}}
	for _, a := range addresses {
		g.Endpoints = append(g.Endpoints, endpoint(a))
	}
	return g
}

func endpoint(address string) *endpointv3.Endpoint {
	if address[0] == '/' {
		return &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: address}}}}
	}
	return &endpointv3.Endpoint{Address: socket(address)}
}

func socket(address string) *corev3.Address {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: atoi(port)},
	}}}
}

// check is a health check with the usual thresholds; kind may be nil for TCP.
func check(kind func(*corev3.HealthCheck)) *corev3.HealthCheck {
	hc := &corev3.HealthCheck{
		Timeout: durationpb.New(300 * time.Millisecond), Interval: durationpb.New(50 * time.Millisecond),
		NoTrafficInterval:  durationpb.New(50 * time.Millisecond),
		UnhealthyThreshold: wrapperspb.UInt32(2), HealthyThreshold: wrapperspb.UInt32(2),
		HealthChecker: &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}},
	}
	if kind != nil {
		kind(hc)
	}
	return hc
}

// patiently waits for each answer: where one that comes late is no answer, a busy
// machine would change the outcome.
func patiently(hc *corev3.HealthCheck) *corev3.HealthCheck {
	hc.Timeout = durationpb.New(patience)
	return hc
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func atoi(s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		panic(err)
	}
	return uint32(n)
}
