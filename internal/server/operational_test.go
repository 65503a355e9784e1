package server_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// TestGRPCHealth: load balancers and probes that ask gRPC's health service learn
// when there is something to serve, of the server and of each service, and when
// it ends.
func TestGRPCHealth(t *testing.T) {
	var mu sync.Mutex
	var watched []healthpb.HealthCheckResponse_ServingStatus
	inWorld(t, configuration(t), func(w *world) {
		client := healthpb.NewHealthClient(w.conn)
		watch, err := client.Watch(w.t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				m, err := watch.Recv()
				if err != nil {
					return
				}
				mu.Lock()
				watched = append(watched, m.GetStatus())
				mu.Unlock()
			}
		}()
		synctest.Wait()
		for _, service := range []string{
			"", "envoy.service.discovery.v3.AggregatedDiscoveryService", "envoy.service.load_stats.v3.LoadReportingService",
			"envoy.service.health.v3.HealthDiscoveryService", "envoy.service.status.v3.ClientStatusDiscoveryService", "grpc.channelz.v1.Channelz",
		} {
			m, err := client.Check(w.t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil || m.GetStatus() != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("%q: %v, %v", service, m.GetStatus(), err)
			}
		}
		if _, err := client.Check(w.t.Context(), &healthpb.HealthCheckRequest{Service: "nothing"}); status.Code(err) != codes.NotFound {
			t.Errorf("an unknown service: %v", err)
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if n := len(watched); n < 2 || watched[n-2] != healthpb.HealthCheckResponse_SERVING || watched[n-1] != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("watched %v, want SERVING and, when the server stops, NOT_SERVING", watched)
	}
}

// TestChannelz: what gRPC knows of its own sockets can be asked for.
func TestChannelz(t *testing.T) {
	inWorld(t, configuration(t), func(w *world) {
		w.start(clients("us/a", 2, constant(10))...)
		w.tick()
		client := channelzpb.NewChannelzClient(w.conn)
		var servers []*channelzpb.Server // of the whole process, a page at a time
		for next := int64(0); ; {
			page, err := client.GetServers(w.t.Context(), &channelzpb.GetServersRequest{StartServerId: next})
			if err != nil {
				t.Fatal(err)
			}
			servers = append(servers, page.GetServer()...)
			if page.GetEnd() || len(servers) > 10_000 {
				break
			}
			next = servers[len(servers)-1].GetRef().GetServerId() + 1
		}
		if !slices.ContainsFunc(servers, func(s *channelzpb.Server) bool { return s.GetData().GetCallsStarted() >= 5 }) {
			t.Errorf("no server has the streams of two clients: %v", servers)
		}
	})
}
