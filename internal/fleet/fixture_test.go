package fleet_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

var (
	zoneA = isobar.MustLocality("r/a")
	zoneB = isobar.MustLocality("r/b")
	zoneC = isobar.MustLocality("q/c")
)

// group is one locality of an assignment with one endpoint per health status.
func group(l isobar.Locality, priority, weight uint32, hosts ...corev3.HealthStatus) *endpointv3.LocalityLbEndpoints {
	le := &endpointv3.LocalityLbEndpoints{
		Locality:            &corev3.Locality{Region: l.Region, Zone: l.Zone},
		Priority:            priority,
		LoadBalancingWeight: wrapperspb.UInt32(weight),
	}
	for i, h := range hosts {
		port := uint32(100*int(l.Zone[0]) + i)
		le.LbEndpoints = append(le.LbEndpoints, endpoint("127.0.0.1", port, h))
	}
	return le
}

func endpoint(host string, port uint32, h corev3.HealthStatus) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{
		HealthStatus: h,
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
			}}},
		}},
	}
}

func assignment(groups ...*endpointv3.LocalityLbEndpoints) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: "checkout", Endpoints: groups}
}

func withDrop(cla *endpointv3.ClusterLoadAssignment, percent uint32) *endpointv3.ClusterLoadAssignment {
	cla.Policy = &endpointv3.ClusterLoadAssignment_Policy{
		DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
			Category:       "overload",
			DropPercentage: &typev3.FractionalPercent{Numerator: percent, Denominator: typev3.FractionalPercent_HUNDRED},
		}},
	}
	return cla
}

const up, down = corev3.HealthStatus_HEALTHY, corev3.HealthStatus_UNHEALTHY

// inBubble runs an agent against a server in virtual time.
func inBubble(t *testing.T, opts fleet.AgentOptions, script func(t *testing.T, s *xdsServer, a *fleet.Agent)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		s := newXDSServer()
		s.loadStats = &loadstatsv3.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(5 * time.Second)}
		conn, stop := overBufconn(t, s)
		defer stop()
		opts.Conn, opts.ID, opts.Cluster, opts.Locality = conn, "agent-1", "web", zoneA
		opts.Services = []string{"checkout"}
		a, err := fleet.NewAgent(opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.Run(ctx)
		}()
		synctest.Wait()
		script(t, s, a)
		cancel()
		<-done
	})
}

// pass lets virtual time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func rate(r float64) func(string, time.Time) float64 {
	return func(string, time.Time) float64 { return r }
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s = %v, want %v +- %v", what, got, want, tolerance)
	}
}
