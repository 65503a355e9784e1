package server_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/loadgen"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// TestReplicasShareConnections asserts that clients that all stayed on one replica are
// divided once another one is back, without an answer that goes back, and that a client that
// always comes back to the same replica is left alone.
func TestReplicasShareConnections(t *testing.T) {
	t.Parallel()
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	begin := func(name, listen string) *member {
		options := server.Options{ReplicaTiming: quick, BalanceAfter: 3 * time.Second}
		return startMemberWith(t, replicaConfig(t, name, listen, election, checkoutAndCart, peers...), options)
	}
	a := begin("a", listen[0])
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })

	const faithful, all = 3, 40
	front, err := fleet.NewBalancer([]string{a.server.XDSAddress()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
		if err := front.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range all {
		address := front.Address()
		if i < faithful {
			address = a.server.XDSAddress()
		}
		running.Go(func() {
			for ctx.Err() == nil {
				_ = watchEDS(ctx, address, fmt.Sprintf("client-%d", i)) // it is opened again
			}
		})
	}
	streams := func(m *member) int {
		for _, r := range m.group().Replicas {
			if r.Name == m.group().Name {
				return int(r.DiscoveryStreams)
			}
		}
		return 0
	}
	testhelp.Eventually(t, "all clients are on a", func() bool { return streams(a) == all })
	b := begin("b", listen[1])
	testhelp.Eventually(t, "b follows", func() bool { return b.group().Removes })
	if n := metric(t, a, "isobar_replica_connections_balanced_total"); n > 0 {
		t.Errorf("a closed %v connections before b was live for long enough", n)
	}
	front.Serve([]string{a.server.XDSAddress(), b.server.XDSAddress()})
	testhelp.Eventually(t, "both have clients", func() bool { return streams(b) >= all/2-10 && streams(a) <= all/2+10 })
	if n := metric(t, a, "isobar_replica_connections_balanced_total"); n < all/2-10 || n > 3*all {
		t.Errorf("a closed %v connections", n)
	}
	if n := metric(t, b, "isobar_replica_connections_balanced_total"); n > 0 {
		t.Errorf("b closed %v connections", n)
	}
}

// metric reads a counter of a replica.
func metric(t *testing.T, m *member, name string) float64 {
	t.Helper()
	families, err := m.server.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// watchEDS subscribes to an assignment and acknowledges what comes, until the stream ends.
func watchEDS(ctx context.Context, address, node string) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing waits to be sent
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	request := &discoveryv3.DiscoveryRequest{
		Node:    &corev3.Node{Id: node, Cluster: "watchers", Locality: &corev3.Locality{Region: "us", Zone: "a"}},
		TypeUrl: resource.EndpointsURL, ResourceNames: []string{"checkout"},
	}
	for {
		if err := stream.Send(request); err != nil {
			return err
		}
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		request.VersionInfo, request.ResponseNonce = r.GetVersionInfo(), r.GetNonce()
	}
}

// TestTrafficBetweenReplicas asserts that the leader sends of each plan only what changed,
// while clients report load that varies.
func TestTrafficBetweenReplicas(t *testing.T) {
	t.Parallel()
	const services, clients = 50, 50
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	var list strings.Builder
	for i := range services {
		fmt.Fprintf(&list, "- name: service-%d\n  localities:\n", i)
		for z, zone := range []string{"us/a", "us/b", "us/c"} {
			fmt.Fprintf(&list, "  - {locality: %s, max_rate: 1000, endpoints: [\"10.%d.%d.1:80\", \"10.%d.%d.2:80\", \"10.%d.%d.3:80\"]}\n", zone, z, i, z, i, z, i)
		}
	}
	a := startMember(t, replicaConfig(t, "a", listen[0], election, list.String(), peers...))
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b := startMember(t, replicaConfig(t, "b", listen[1], election, list.String(), peers...))
	testhelp.Eventually(t, "b follows", func() bool { return b.group().Removes })
	load := func(d time.Duration) {
		if _, err := loadgen.Run(t.Context(), loadgen.Options{
			Target: a.server.XDSAddress(), Clients: clients, Subscribe: 10, Duration: d,
			RateOf: func(client int, _ string, now time.Time) float64 { return float64(10 + (client+int(now.Unix()))%20) },
		}); err != nil {
			t.Fatal(err)
		}
	}
	load(3 * time.Second)
	testhelp.Eventually(t, "b has the leader's plan", func() bool { return b.server.Plan().Version == a.server.Plan().Version })
	sent, published := metric(t, a, "isobar_replica_plan_bytes_sent_total"), metric(t, a, "isobar_replica_plans_published_total")
	load(6 * time.Second)
	sent, published = metric(t, a, "isobar_replica_plan_bytes_sent_total")-sent, metric(t, a, "isobar_replica_plans_published_total")-published
	size := gauge(t, a, "isobar_replica_plan_bytes")
	if published < 3 {
		t.Fatalf("%v plans", published)
	}
	part := sent / (published * size)
	if part > 0.2 {
		t.Errorf("of plans of %.0f bytes, %.0f%% were sent", size, 100*part)
	}
	t.Logf("%v plans of %.0f bytes: %.0f bytes each were sent, %.0f%%", published, size, sent/published, 100*part)
}

// gauge reads a gauge of a replica.
func gauge(t *testing.T, m *member, name string) float64 {
	t.Helper()
	families, err := m.server.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// TestCheckersOfAFollower asserts that an endpoint which checkers find down loses its traffic although
// all of them are connected to a follower, and also once that one leads.
func TestCheckersOfAFollower(t *testing.T) {
	t.Parallel()
	const services = `- name: checkout
  health_checks: [{tcp: {}, interval: 1s, timeout: 500ms, unhealthy_threshold: 2, healthy_threshold: 1}]
  localities:
  - {locality: us/a, endpoints: ["10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80", "10.1.0.4:80", "10.1.0.5:80", "10.1.0.6:80"]}
`
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	a := startMember(t, replicaConfig(t, "a", listen[0], election, services, peers...))
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b := startMember(t, replicaConfig(t, "b", listen[1], election, services, peers...))
	testhelp.Eventually(t, "b follows", func() bool { return b.group().Removes })
	var tr truth
	for i, zone := range []string{"us/a", "us/b", "us/c"} {
		id := fmt.Sprintf("checker-%d", i)
		e, err := fleet.NewEnvoyChecker(fleet.EnvoyCheckerOptions{Conn: b.dial(), ID: id, Locality: loc(zone), Probe: tr.probe(id), Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = e.Run(t.Context()) }()
	}
	becomes := func(m *member, address string, want isobar.HealthStatus) {
		t.Helper()
		began := time.Now()
		testhelp.Eventually(t, address+" is "+want.String(), func() bool { return m.server.Plan() != nil && healthOf(m.server.Plan(), address) == want })
		t.Logf("after %v %s is %v", time.Since(began), address, want)
	}
	for e := range 6 {
		becomes(b, fmt.Sprintf("10.1.0.%d:80", e+1), isobar.Healthy)
	}
	tr.set("10.1.0.1:80", fleet.ProbeFails)
	becomes(b, "10.1.0.1:80", isobar.Unhealthy)
	tr.set("10.1.0.1:80", fleet.ProbePasses)
	becomes(b, "10.1.0.1:80", isobar.Healthy)
	a.end()
	testhelp.Eventually(t, "b leads", func() bool { return b.group().Role == "leader" })
	tr.set("10.1.0.2:80", fleet.ProbeFails)
	becomes(b, "10.1.0.2:80", isobar.Unhealthy)
}
