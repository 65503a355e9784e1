package xds_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	xdsclient "google.golang.org/grpc/xds"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// backend is a real gRPC server on loopback.
type backend struct {
	address string
	server  *grpc.Server
}

type healthService struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (healthService) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func startBackend(t *testing.T) *backend {
	t.Helper()
	g := grpc.NewServer(orca.CallMetricsServerOption(nil))
	grpc_health_v1.RegisterHealthServer(g, healthService{})
	return &backend{address: testhelp.Loopback(t, g), server: g}
}

// group has all that can be said of an endpoint and a locality: the client has
// to take it.
func (b *backend) group(locality string) *isobar.EndpointGroup {
	config := &isobar.Endpoint{
		Check: &isobar.EndpointCheck{Port: 81, Hostname: "probe.example"},
		Details: &isobar.EndpointDetails{
			Hostname: "checkout-1.example", AdditionalAddresses: []string{strings.Replace(b.address, "127.0.0.1", "127.0.0.2", 1)},
			Metadata: `{"envoy.lb":{"hash_key":"a","version":[1,null,{"of":"canary"}]}}`,
		},
	}
	return &isobar.EndpointGroup{
		Locality: isobar.MustLocality(locality), Metadata: `{"example.com/tier":{"gold":true}}`,
		Endpoints: []isobar.WeightedEndpoint{{Address: b.address, Weight: 1, Config: config}},
	}
}

// fleet is a server on loopback with grpc-go's own xDS client.
type fleet struct {
	t       *testing.T
	server  *xds.Server
	builder *view.Builder
	set     *view.Set
	version int
	client  grpc_health_v1.HealthClient

	settings isobar.ClusterSettings
}

func startFleet(t *testing.T) *fleet {
	t.Helper()
	return startFleetOf(t, "checkout")
}

// startFleetOf has a client that dials a target.
func startFleetOf(t *testing.T, target string) *fleet {
	t.Helper()
	f := &fleet{t: t, server: xds.New(xds.Options{}), builder: view.NewBuilder(view.Options{})}
	g := grpc.NewServer(grpc.ForceServerCodecV2(rpc.ServerCodec()))
	xds.Register(g, f.server, false)
	t.Cleanup(f.server.Stop)
	resolver, err := xdsclient.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"node": {"id": "client-1", "cluster": "frontend", "locality": {"region": "us-east", "zone": "b"}}
	}`, testhelp.Loopback(t, g)))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+target, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f.client = grpc_health_v1.NewHealthClient(conn)
	return f
}

func (f *fleet) publish(orca bool, drop float64, priorities ...[]isobar.LocalityWeight) {
	f.publishAs("checkout", orca, drop, priorities...)
}

func (f *fleet) publishAs(service string, orca bool, drop float64, priorities ...[]isobar.LocalityWeight) {
	f.version++
	p := &testPlan{version: strconv.Itoa(f.version), specs: map[string]*isobar.Service{}, assignments: map[string]*isobar.Assignment{}}
	p.specs[service] = &isobar.Service{Name: service, ORCA: isobar.ORCA{On: orca}, ClusterSettings: f.settings}
	p.assignments[service] = &isobar.Assignment{
		Service: service, Drop: drop, OverprovisioningFactor: 140, Priorities: priorities,
	}
	f.set = f.builder.Build(p, f.set)
	f.server.Publish(f.set)
}

// inSync waits until the client has accepted what was published last.
func (f *fleet) inSync() {
	f.t.Helper()
	want := strconv.Itoa(f.version)
	testhelp.Eventually(f.t, "the client accepted version "+want, func() bool {
		for _, c := range f.server.Clients() {
			i := slices.IndexFunc(c.Types, func(ct xds.ClientType) bool { return ct.Type == "eds" })
			if i >= 0 && c.InSync && c.Types[i].Acked == want {
				return true
			}
		}
		return false
	})
}

// call sends one RPC and tells which backend answered.
func (f *fleet) call() (string, error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	var p peer.Peer
	_, err := f.client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Peer(&p), grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	return p.Addr.String(), nil
}

// shares sends n RPCs and returns the fraction that each backend answered; drops
// are under "".
func (f *fleet) shares(n int) map[string]float64 {
	f.t.Helper()
	out := map[string]float64{}
	for range n {
		to, err := f.call()
		if err != nil && status.Code(err) != codes.Unavailable {
			f.t.Fatal(err)
		}
		out[to] += 1 / float64(n)
	}
	return out
}

// steers waits until the shares are as wanted: balancers need a moment to
// connect.
func (f *fleet) steers(want map[string]float64) {
	f.t.Helper()
	var got map[string]float64
	defer func() {
		if f.t.Failed() {
			f.t.Logf("the last shares were %v, want %v", got, want)
		}
	}()
	testhelp.Eventually(f.t, fmt.Sprintf("shares of %v", want), func() bool {
		got = f.shares(1000)
		for to, share := range want {
			if math.Abs(got[to]-share) > 0.06 {
				return false
			}
		}
		return true
	})
}

// grpc's own client obeys weights, tiers and drops, with ORCA and without.
func TestRealClient(t *testing.T) {
	for _, withORCA := range []bool{false, true} {
		t.Run(fmt.Sprintf("orca %v", withORCA), func(t *testing.T) {
			f := startFleet(t)
			near, mid, far := startBackend(t), startBackend(t), startBackend(t)
			top := []isobar.LocalityWeight{{EndpointGroup: near.group("us-east/b"), Weight: 7000}, {EndpointGroup: mid.group("us-east/c"), Weight: 3000}}
			spare := []isobar.LocalityWeight{{EndpointGroup: far.group("eu-west/a"), Weight: 10_000}}

			f.publish(withORCA, 0, top, spare)
			f.steers(map[string]float64{near.address: 0.7, mid.address: 0.3, far.address: 0})

			top[0].Weight, top[1].Weight = 2000, 8000
			f.publish(withORCA, 0, slices.Clone(top), spare)
			f.steers(map[string]float64{near.address: 0.2, mid.address: 0.8, far.address: 0})

			f.publish(withORCA, 0.5, slices.Clone(top), spare)
			f.steers(map[string]float64{"": 0.5, mid.address: 0.4, near.address: 0.1})

			f.publish(withORCA, 0, slices.Clone(top), spare)
			f.steers(map[string]float64{"": 0, near.address: 0.2, mid.address: 0.8})
			f.inSync()

			near.server.Stop()
			mid.server.Stop()
			f.steers(map[string]float64{far.address: 1})
			for _, c := range f.server.Clients() {
				if c.Node != "client-1" || c.Locality.String() != "us-east/b" || len(c.Types) != 4 {
					t.Errorf("client: %+v", c)
				}
			}
		})
	}
}

// Settings that are Envoy's alone are kept from gRPC, and a change of settings
// reaches it without failing calls.
func TestRealClientTakesClustersMadeForEnvoy(t *testing.T) {
	f := startFleet(t)
	near, mid := startBackend(t), startBackend(t)
	weights := []isobar.LocalityWeight{{EndpointGroup: near.group("us-east/b"), Weight: 7000}, {EndpointGroup: mid.group("us-east/c"), Weight: 3000}}
	want := map[string]float64{near.address: 0.7, mid.address: 0.3}
	f.publish(false, 0, weights)
	f.steers(want)
	f.settings = isobar.ClusterSettings{
		Protocol: isobar.ProtocolAuto, LBPolicy: isobar.LBLeastRequest,
		TLS: &isobar.EndpointTLS{SNI: "checkout.example", CA: "/nowhere.pem", SubjectAltNames: []string{"checkout.example"}},
	}
	f.publish(false, 0, weights)
	f.steers(want)
	for _, c := range f.server.Clients() {
		for _, ct := range c.Types {
			if ct.Rejected > 0 {
				t.Errorf("the client refuses %s: %+v", ct.Type, ct)
			}
		}
	}
}

// A service that is not there yet is found as soon as it is, and one that goes
// away fails its calls.
func TestRealClientSeesServicesComeAndGo(t *testing.T) {
	f := startFleet(t)
	b := startBackend(t)
	empty := func(version string) {
		f.version++
		f.set = f.builder.Build(&testPlan{version: version}, f.set)
		f.server.Publish(f.set)
	}
	empty("0")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := f.client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
		answered <- err
	}()
	testhelp.Eventually(t, "the client asks", func() bool { return len(f.server.Clients()) == 1 })
	f.publish(false, 0, []isobar.LocalityWeight{{EndpointGroup: b.group("us-east/b"), Weight: 1}})
	if err := <-answered; err != nil {
		t.Fatalf("a service that appeared: %v", err)
	}
	empty("9")
	testhelp.Eventually(t, "calls fail", func() bool {
		_, err := f.client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err != nil
	})
	f.publish(false, 0, []isobar.LocalityWeight{{EndpointGroup: b.group("us-east/b"), Weight: 1}})
	f.steers(map[string]float64{b.address: 1})
}

// A client dials the DNS name of a Kubernetes Service, before the service exists. Load
// and acknowledgements count for the service.
func TestRealClientDialsAlias(t *testing.T) {
	f := startFleetOf(t, "checkout.shop.svc.cluster.local:80")
	b := startBackend(t)
	answered := make(chan error, 1)
	go func() {
		_, err := f.client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
		answered <- err
	}()
	f.publishAs("cart.shop:80", false, 0, []isobar.LocalityWeight{{EndpointGroup: b.group("us-east/b"), Weight: 1}})
	testhelp.Eventually(t, "the client asks", func() bool { return len(f.server.Clients()) == 1 })
	f.publishAs("checkout.shop:80", false, 0, []isobar.LocalityWeight{{EndpointGroup: b.group("us-east/b"), Weight: 1}})
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	f.inSync()
	if subs := f.server.Subscriptions(); len(subs) != 1 || subs[0].Service != "checkout.shop:80" {
		t.Errorf("subscriptions %+v", subs)
	}
}
