package listen

import (
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/csds"
)

// TestRoles: every service of clients and checkers asks for their role. What is not known
// is for operators.
func TestRoles(t *testing.T) {
	g := grpc.NewServer()
	streams, reports, checkers := xds.New(xds.Options{}), lrs.New(lrs.Options{}), hds.New(hds.Options{})
	defer g.Stop()
	defer streams.Stop()
	xds.Register(g, streams, false)
	xds.RegisterEDS(g, streams, false, reports.Stream2017())
	reports.Register(g)
	checkers.Register(g)
	csds.New(streams).Register(g)
	for name := range g.GetServiceInfo() {
		forOperators := strings.HasPrefix(name, "envoy.service.status.")
		if (roleOf("/"+name+"/X") == identity.RoleAdmin) != forOperators {
			t.Errorf("%s asks for the role %s", name, roleOf("/"+name+"/X"))
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
