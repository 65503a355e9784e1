package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"                     // the listener's
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3" // the listener's
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"                   // the transport socket of the cluster
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// output runs the bootstrap command.
func output(t *testing.T, args ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	cmd := bootstrapCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// nodes is a management server that only notes who connects.
type nodes struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	first chan *corev3.Node
}

func (n *nodes) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	req, err := s.Recv()
	if err != nil {
		return err
	}
	select {
	case n.first <- req.GetNode():
	default: // a reconnect
	}
	return status.Error(codes.Unavailable, "seen enough")
}

// TestGRPCBootstrapIsReadByGRPC gives the file to a real client, which then
// names itself to a real server, over TLS, as the file says.
func TestGRPCBootstrapIsReadByGRPC(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	settings, err := identity.OpenCertificates(files, identity.Options{Name: "xds"})
	if err != nil {
		t.Fatal(err)
	}
	n := &nodes{first: make(chan *corev3.Node, 1)}
	srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(settings.Config("h2"))))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(srv, n)
	file := output(t, "grpc", "--server", testhelp.Loopback(t, srv), "--node-id", `web "1"`, "--cluster", "web", "--locality", "us-east/b/rack-1",
		"--ca", files.ClientCA, "--cert", files.Cert, "--key", files.Key)
	builder, err := xds.NewXDSResolverWithConfigForTesting(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	conn, err := grpc.NewClient("xds:///checkout", grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	conn.Connect()
	select {
	case got := <-n.first:
		where := got.GetLocality()
		if got.GetId() != `web "1"` || got.GetCluster() != "web" ||
			where.GetRegion() != "us-east" || where.GetZone() != "b" || where.GetSubZone() != "rack-1" {
			t.Errorf("the client calls itself %v", got)
		}
	case <-t.Context().Done():
		t.Fatal("the client never came")
	}
}

// servedCluster returns the cluster that the server sends for a service without settings.
func servedCluster(t *testing.T, service string) *clusterv3.Cluster {
	t.Helper()
	m, err := resource.StaticOf(resource.Cluster, &isobar.Service{Name: service}, service, false)
	if err != nil {
		t.Fatal(err)
	}
	return m.(*clusterv3.Cluster)
}

// worksAsServed: a cluster in the file balances and limits as one from CDS.
func worksAsServed(t *testing.T, c *clusterv3.Cluster) {
	t.Helper()
	served := servedCluster(t, c.GetName())
	served.LrsServer = nil                   // the bootstrap says it for all clusters
	served.EdsClusterConfig.ServiceName = "" // is the cluster's name
	if !proto.Equal(c, served) {
		t.Errorf("cluster %q is %v, from CDS it is %v", c.GetName(), c, served)
	}
}

// waits: an Envoy that starts while the server is away waits for it. Unset, it
// goes on after 15 seconds.
func waits(t *testing.T, c *corev3.ConfigSource) {
	t.Helper()
	if c.GetInitialFetchTimeout() == nil || c.GetInitialFetchTimeout().AsDuration() != 0 {
		t.Errorf("initial_fetch_timeout %v, want 0s", c.GetInitialFetchTimeout())
	}
}

// leadsToTheServer: the cluster of the server has no limit of requests, since
// outside ADS each EDS cluster is one, finds out that a connection is dead, and
// tries IPv4 where a name has both kinds of addresses.
func leadsToTheServer(t *testing.T, c *clusterv3.Cluster) {
	t.Helper()
	served := servedCluster(t, "checkout")
	if !proto.Equal(c.GetCircuitBreakers(), served.GetCircuitBreakers()) {
		t.Errorf("circuit breakers %v", c.GetCircuitBreakers())
	}
	if c.GetType() == clusterv3.Cluster_STRICT_DNS && c.GetDnsLookupFamily() != clusterv3.Cluster_V4_PREFERRED {
		t.Errorf("dns_lookup_family %s", c.GetDnsLookupFamily())
	}
	options := &httpv3.HttpProtocolOptions{}
	if err := c.GetTypedExtensionProtocolOptions()["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].UnmarshalTo(options); err != nil {
		t.Fatal(err)
	}
	alive := options.GetExplicitHttpConfig().GetHttp2ProtocolOptions().GetConnectionKeepalive()
	if alive.GetInterval().AsDuration() != 30*time.Second || alive.GetTimeout().AsDuration() != 10*time.Second {
		t.Errorf("keepalive %v", alive)
	}
}

// TestEnvoyBootstrapTimeout: the operator may choose another time.
func TestEnvoyBootstrapTimeout(t *testing.T) {
	for _, args := range [][]string{nil, {"--service", "checkout"}, {"--beside"}} {
		file := string(output(t, append([]string{"envoy", "--locality", "us/a", "--initial-fetch-timeout", "1m0.5s"}, args...)...))
		if !strings.Contains(file, "initial_fetch_timeout: 60.5s") || strings.Contains(file, "initial_fetch_timeout: 0s") {
			t.Errorf("%v:\n%s", args, file)
		}
	}
}

// TestEnvoyBootstrapIsValid reads the file as Envoy does: YAML to JSON to the
// message, unknown fields refused, then Envoy's own rules.
func TestEnvoyBootstrapIsValid(t *testing.T) {
	tests := []struct {
		name     string
		args     []string
		clusters []string
		cds      bool
	}{
		{"all over CDS", []string{"--server", "127.0.0.1:18000"}, []string{"isobar"}, true},
		{"name that needs quotes", []string{"--server", "isobar.example:1", "--node-id", "a: \"b\"\n"}, []string{"isobar"}, true},
		{"TLS", []string{"--server", "isobar.example:1", "--ca", "ca: \"x\".pem", "--cert", "c.pem", "--key", "k.pem"}, []string{"isobar"}, true},
		{"TLS without a certificate, by address", []string{"--server", "[::1]:1", "--ca", "ca.pem"}, []string{"isobar"}, true},
		{"a listener, and probes", []string{"--server", "127.0.0.1:1", "--listener", "10000", "--checks"}, []string{"isobar"}, true},
		{"IPv6 and EDS alone", []string{"--server", "[::1]:18000", "--service", "checkout", "--service", "pay: ment"}, []string{"isobar", "checkout", "pay: ment"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := output(t, append([]string{"envoy", "--locality", "us-east/b"}, tt.args...)...)
			asJSON, err := yaml.YAMLToJSON(file)
			if err != nil {
				t.Fatalf("%v\n%s", err, file)
			}
			var b bootstrapv3.Bootstrap
			if err := protojson.Unmarshal(asJSON, &b); err != nil {
				t.Fatalf("%v\n%s", err, file)
			}
			if err := b.ValidateAll(); err != nil {
				t.Errorf("%v\n%s", err, file)
			}
			if secure := slices.Contains(tt.args, "--ca"); (b.GetStaticResources().GetClusters()[0].GetTransportSocket() != nil) != secure {
				t.Errorf("TLS %v in\n%s", !secure, file)
			}
			if b.GetClusterManager().GetLoadStatsConfig() == nil || b.GetDynamicResources().GetAdsConfig() == nil {
				t.Errorf("no load reports or no ADS in\n%s", file)
			}
			if got := b.GetDynamicResources().GetCdsConfig() != nil; got != tt.cds {
				t.Errorf("clusters over CDS: %v", got)
			}
			if tt.cds {
				waits(t, b.GetDynamicResources().GetCdsConfig())
			}
			if want := slices.Contains(tt.args, "--checks"); (b.GetHdsConfig() != nil) != want {
				t.Errorf("health checks %v in\n%s", !want, file)
			}
			if want := slices.Contains(tt.args, "--listener"); (len(b.GetStaticResources().GetListeners()) > 0) != want {
				t.Errorf("a listener %v in\n%s", !want, file)
			}
			for i, c := range b.GetStaticResources().GetClusters() {
				if i >= len(tt.clusters) || c.GetName() != tt.clusters[i] {
					t.Errorf("cluster %d is %q", i, c.GetName())
				}
				if i == 0 { // the first is Isobar's own
					leadsToTheServer(t, c)
					continue
				}
				worksAsServed(t, c)
				waits(t, c.GetEdsClusterConfig().GetEdsConfig())
			}
		})
	}
}

// TestGRPCFragmentIsReadByGRPC merges the fragment into the bootstrap file of
// another control plane and gives it to a real client: what is of the authority
// is asked of the server that the fragment names.
func TestGRPCFragmentIsReadByGRPC(t *testing.T) {
	n := &nodes{first: make(chan *corev3.Node, 1)}
	srv := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(srv, n)
	var merged map[string]any
	if err := json.Unmarshal(output(t, "grpc", "--beside", "--server", testhelp.Loopback(t, srv), "--node-id", "web-1", "--locality", "us-east/b"), &merged); err != nil {
		t.Fatal(err)
	}
	merged["xds_servers"] = []any{map[string]any{
		"server_uri": "127.0.0.1:1", "channel_creds": []any{map[string]any{"type": "insecure"}}, "server_features": []any{"xds_v3"},
	}}
	file, err := json.Marshal(merged)
	if err != nil {
		t.Fatal(err)
	}
	builder, err := xds.NewXDSResolverWithConfigForTesting(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	conn, err := grpc.NewClient("xds://isobar/checkout", grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	conn.Connect()
	select {
	case got := <-n.first:
		if got.GetId() != "web-1" || got.GetLocality().GetZone() != "b" {
			t.Errorf("the client calls itself %v", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("the client never came")
	}
}

// TestEnvoyFragmentIsValid reads the fragment as Envoy does a file.
func TestEnvoyFragmentIsValid(t *testing.T) {
	for _, args := range [][]string{{"--checks"}, nil} {
		file := output(t, append([]string{"envoy", "--beside", "--locality", "us-east/b", "--server", "isobar.example:18000"}, args...)...)
		asJSON, err := yaml.YAMLToJSON(file)
		if err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		var b bootstrapv3.Bootstrap
		if err := protojson.Unmarshal(asJSON, &b); err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		if err := b.ValidateAll(); err != nil {
			t.Errorf("%v\n%s", err, file)
		}
		if b.GetDynamicResources() != nil || b.GetClusterManager().GetLoadStatsConfig() == nil || (b.GetHdsConfig() != nil) != (args != nil) {
			t.Errorf("want load reports, health checks if asked for, and nothing of what the other control plane says:\n%s", file)
		}
		if c := b.GetStaticResources().GetClusters(); len(c) != 1 || c[0].GetName() != "isobar" {
			t.Errorf("clusters %v", c)
		}
	}
}

// TestSidecarExampleIsTheBootstrap: the configuration in the example of an Envoy beside
// a program is what the command prints, but for the listener.
func TestSidecarExampleIsTheBootstrap(t *testing.T) {
	data, err := os.ReadFile("../../examples/kubernetes/envoy-sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Name string `yaml:"name"`
						Env  []struct {
							Name  string `yaml:"name"`
							Value string `yaml:"value"`
						} `yaml:"env"`
					} `yaml:"containers"`
				} `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(data, &deployment); err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	for _, c := range deployment.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.Name == "CONFIGURATION" {
				if err := yaml.Unmarshal([]byte(e.Value), &got); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	printed := output(t, "envoy", "--server", "isobar.isobar.svc:18000", "--cluster", "web", "--node-id", "$(POD)", "--locality", "$(REGION)/$(ZONE)",
		"--ca", "/etc/isobar-client/ca.crt", "--cert", "/etc/isobar-client/tls.crt", "--key", "/etc/isobar-client/tls.key")
	if err := yaml.Unmarshal(printed, &want); err != nil {
		t.Fatal(err)
	}
	static, _ := got["static_resources"].(map[string]any)
	delete(static, "listeners")
	if static, ok := want["static_resources"].(map[string]any); ok {
		delete(static, "listeners")
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// TestExamplesHaveNoFindings: isobar kubernetes analyze finds nothing in the examples.
func TestExamplesHaveNoFindings(t *testing.T) {
	a, err := kubernetes.NewAnalysis(&kubernetes.Config{Cluster: kubernetes.Cluster{Policies: true}}, "isobar/isobar")
	if err != nil {
		t.Fatal(err)
	}
	if err := addFile(a, "../../examples/kubernetes", nil); err != nil {
		t.Fatal(err)
	}
	if found := a.Findings(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}
