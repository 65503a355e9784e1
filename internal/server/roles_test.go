package server

import (
	"strings"
	"testing"

	"google.golang.org/grpc/test/bufconn"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/store"
)

// TestRoles: every service that the server has asks for a role on purpose.
func TestRoles(t *testing.T) {
	cfg := config.Default()
	kept := store.NewMemory()
	defer func() { _ = kept.Close() }()
	s, err := New(&cfg, Listeners{XDS: bufconn.Listen(1)}, Options{Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	for name := range s.newGRPC(false).GetServiceInfo() {
		forOperators := strings.HasPrefix(name, "grpc.") || strings.HasPrefix(name, "envoy.service.status.")
		if roleOf("/"+name+"/X") == identity.RoleAdmin && !forOperators {
			t.Errorf("%s asks for the role admin, since roleOf does not know it", name)
		}
	}
	for method, want := range map[string]identity.Role{
		"/envoy.api.v2.EndpointDiscoveryService/StreamLoadStats":               identity.RoleClient,
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/X":             identity.RoleClient,
		"/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats":    identity.RoleClient,
		"/envoy.service.discovery.v2.HealthDiscoveryService/StreamHealthCheck": identity.RoleChecker,
		"/envoy.service.health.v3.HealthDiscoveryService/FetchHealthCheck":     identity.RoleChecker,
		"/envoy.service.status.v3.ClientStatusDiscoveryService/X":              identity.RoleAdmin,
		"/grpc.channelz.v1.Channelz/GetServers":                                identity.RoleAdmin,
		"/grpc.health.v1.Health/Watch":                                         0,
		"/new.Thing/Do":                                                        identity.RoleAdmin,
		"":                                                                     identity.RoleAdmin,
	} {
		if got := roleOf(method); got != want {
			t.Errorf("%q asks for %s, want %s", method, got, want)
		}
	}
}
