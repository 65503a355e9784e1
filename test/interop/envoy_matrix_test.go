package interop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
)

// startMatrix starts Isobar, its backends, and an Envoy for each way of getting
// endpoints.
func startMatrix(t *testing.T) *matrix {
	t.Helper()
	m := &matrix{backends: map[string]*webBackend{}, names: map[string]string{}}
	at := func(name string) string {
		if m.backends[name] == nil {
			b := startWebBackend(t, name)
			m.backends[name], m.names[b.address] = b, name
		}
		return m.backends[name].address
	}
	list := func(names ...string) string {
		var out []string
		for _, name := range names {
			out = append(out, fmt.Sprintf("%q", at(name)))
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	plain := func(address string) string { return endpointOf(address, "unknown") }
	m.isobar = startIsobar(t, `
network: {latency_ms: [{from: us/a, to: us/b, ms: 5}, {from: us, to: eu, ms: 80}]}
services:
- name: split
  localities:
  - {locality: us/a, max_rate: 120, endpoints: `+list("a1", "a2")+`}
  - {locality: us/b, max_rate: 1000, endpoints: `+list("b1")+`}
- name: weighted
  localities:
  - {locality: us/a, endpoints: [{address: "`+at("a1")+`", weight: 3}, {address: "`+at("a2")+`", weight: 1}]}
- name: tiers
  localities:
  - {locality: us/a, max_rate: 1000, endpoints: `+list("n1", "n2", "n3", "n4")+`}
  - {locality: us/b, max_rate: 1000, endpoints: `+list("near")+`}
  - {locality: eu/a, max_rate: 1000, endpoints: `+list("far")+`}
- name: pool
  localities:
  - {locality: us/a, endpoints: [`+plain(at("one"))+", "+plain(at("two"))+", "+plain(at("three"))+`]}
- name: byweight
  assignment: {weighted_priority_health: true}
  localities:
  - locality: us/a
    endpoints: [{address: "`+at("n1")+`", weight: 8}, {address: "`+at("n2")+`", weight: 1}, {address: "`+at("n3")+`", weight: 1}]
  - {locality: us/b, endpoints: `+list("near")+`}
- name: stale
  assignment: {endpoint_stale_after: 5s}
  localities:
  - {locality: us/a, endpoints: `+list("one")+`}
- name: leaving
  localities:
  - {locality: us/a, endpoints: `+list("one")+`}
- name: small
  max_shed: 0.5
  localities:
  - {locality: us/a, max_rate: 80, endpoints: `+list("a1")+`}
  - {locality: us/b, max_rate: 40, endpoints: `+list("b1")+`}
`+manyServices(list("one")))
	m.gateways = []*gateway{
		{version: envoy.Newest, protocol: adsStream, zone: "us/a"},
		{version: envoy.Newest, protocol: adsDelta, zone: "us/b"},
		{version: envoy.Newest, protocol: restPolls, zone: "us/a"},
		{version: envoy.Newest, protocol: edsBeside, zone: "us/b"},
		{version: envoy.Oldest, protocol: adsStream, zone: "us/b"},
	}
	if interopAll() {
		for _, protocol := range []string{adsDelta, restPolls, edsBeside} {
			m.gateways = append(m.gateways, &gateway{version: envoy.Oldest, protocol: protocol, zone: "us/a"})
		}
	}
	other := startClusterServer(t, matrixServices)
	var all sync.WaitGroup
	for _, g := range m.gateways {
		g.id, g.services = strings.ReplaceAll(g.name(), " ", "-"), matrixServices
		g.client.Transport = &http.Transport{MaxIdleConnsPerHost: 100}
		t.Cleanup(g.client.CloseIdleConnections)
		xds := m.xds
		if g.protocol != restPolls {
			g.tap = startTap(t, m.xds)
			xds = g.tap.address
		}
		g.bootstrap = g.configure(t, xds, m.rest, other)
		_ = envoyBinary(t, g.version)
	}
	for _, g := range m.gateways {
		g.start(t)
		all.Go(func() {
			if err := g.AwaitReady(t.Context(), patience); err != nil {
				t.Error(err)
			}
		})
		seen.is(g.name(), g.version, "v3, "+g.protocol+" and LRS")
	}
	all.Wait()
	return m
}

// noteReports turns what the taps overheard into facts for the page.
func (m *matrix) noteReports() {
	for _, g := range m.gateways {
		if g.tap == nil {
			continue
		}
		for _, r := range g.tap.reports(m.t, 1) {
			if r.GetNode() != nil {
				seen.fact(g.name(), "node in load reports: in each message")
				break
			}
		}
	}
}

// endpointOf is an endpoint as it is in the configuration.
func endpointOf(address, health string) string {
	return fmt.Sprintf("{address: %q, health: %s}", address, health)
}

// configured changes the health of an endpoint of pool in the configuration file.
func (m *matrix) configured(name, from, to string) {
	m.t.Helper()
	text, address := read(m.t, m.config), m.backends[name].address
	next := strings.Replace(string(text), endpointOf(address, from), endpointOf(address, to), 1)
	if next == string(text) {
		m.t.Fatalf("no %s in the configuration", endpointOf(address, from))
	}
	if err := os.WriteFile(m.config, []byte(next), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// start starts the Envoy, and waits until it takes requests.
func (g *gateway) start(t *testing.T) {
	t.Helper()
	g.proxy = startEnvoy(t, g.version, g.bootstrap)
	if err := g.AwaitReady(t.Context(), patience); err != nil {
		t.Fatal(err)
	}
	var err error
	if g.listener, err = g.Listener(t.Context(), "http"); err != nil {
		t.Fatal(err)
	}
}

// configure is what `isobar bootstrap envoy` prints for the form, with a
// listener, and with what the pages say to change.
func (g *gateway) configure(t *testing.T, xds, rest, other string) string {
	t.Helper()
	args := append([]string{"--server", xds, "--node-id", g.id, "--cluster", "web", "--locality", g.zone}, g.tls...)
	switch g.protocol {
	case adsStream:
		return withListeners(t, envoyBootstrap(t, args...), routesTo(g.services), "")
	case adsDelta:
		printed := envoyBootstrap(t, args...)
		delta := strings.Replace(printed, "  ads_config:\n    api_type: GRPC\n", "  ads_config:\n    api_type: DELTA_GRPC\n", 1)
		if delta == printed {
			t.Fatalf("no ads_config in the bootstrap:\n%s", printed)
		}
		return withListeners(t, delta, routesTo(g.services), "")
	case restPolls:
		return g.configureREST(t, args, rest)
	default:
		printed := envoyBootstrap(t, append(args, "--beside")...)
		host, port, err := net.SplitHostPort(other)
		if err != nil {
			t.Fatal(err)
		}
		merged := strings.Replace(printed, "static_resources:\n", "static_resources:\n  listeners:\n"+routesTo(g.services), 1)
		merged = strings.Replace(merged, "\n  clusters:\n", fmt.Sprintf(`
  clusters:
    - name: other
      type: STATIC
      %s
      load_assignment: {cluster_name: other, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}]}
`, http2Options, host, port), 1)
		return merged + "dynamic_resources:\n  ads_config: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: other}}]}\n" +
			"  cds_config: {resource_api_version: V3, ads: {}}\n"
	}
}

// configureREST lets clusters of the bootstrap poll for their endpoints, with the
// same TLS as the stream of load reports.
func (g *gateway) configureREST(t *testing.T, args []string, rest string) string {
	t.Helper()
	for _, s := range g.services {
		args = append(args, "--service", s)
	}
	c := parse(t, withListeners(t, envoyBootstrap(t, args...), routesTo(g.services), `    - name: isobar-rest
      type: STATIC
      load_assignment:
        cluster_name: isobar-rest
        endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: `+rest[strings.LastIndexByte(rest, ':')+1:]+`}}}}]}]
`))
	delete(c, "dynamic_resources")
	g.pollEndpoints(t, c)
	return marshal(t, c)
}

// pollEndpoints lets the EDS clusters of a bootstrap poll for their endpoints.
func (g *gateway) pollEndpoints(t *testing.T, bootstrap map[string]any) {
	t.Helper()
	changed := 0
	var polled, streamed map[string]any
	resources, _ := bootstrap["static_resources"].(map[string]any)
	clusters, _ := resources["clusters"].([]any)
	for _, c := range clusters {
		cluster, _ := c.(map[string]any)
		switch cluster["name"] {
		case "isobar-rest":
			polled = cluster
		case "isobar":
			streamed = cluster
		}
		if cluster["type"] != "EDS" {
			continue
		}
		cluster["lrs_report_endpoint_metrics"] = learnedMetrics
		cluster["eds_cluster_config"] = map[string]any{"eds_config": map[string]any{
			"resource_api_version": "V3",
			"api_config_source": map[string]any{
				"api_type": "REST", "transport_api_version": "V3", "cluster_names": []string{"isobar-rest"},
				"refresh_delay": "0.5s", "request_timeout": "5s",
			},
		}}
		changed++
	}
	if changed != len(g.services) {
		t.Fatalf("%d EDS clusters in the bootstrap, want %d", changed, len(g.services))
	}
	if socket, ok := streamed["transport_socket"].(map[string]any); ok {
		socket = parse(t, marshal(t, socket)) // a copy
		common, _ := socket["typed_config"].(map[string]any)["common_tls_context"].(map[string]any)
		delete(common, "alpn_protocols") // polls are of HTTP/1
		polled["transport_socket"] = socket
	}
}

// routesTo is a listener, as YAML, that leads to each service by the first part
// of the path.
func routesTo(services []string) string {
	var routes strings.Builder
	for _, s := range services {
		fmt.Fprintf(&routes, "                - {match: {prefix: /%s/}, route: {cluster: %s}}\n", s, s)
	}
	return `    - name: http
      address: {socket_address: {address: 127.0.0.1, port_value: 0}}
      filter_chains:
      - filters:
        - name: envoy.filters.network.http_connection_manager
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
            stat_prefix: http
            http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
            route_config:
              validate_clusters: false
              virtual_hosts:
              - name: all
                domains: ["*"]
                routes:
` + routes.String()
}

// startClusterServer runs go-control-plane as the other control plane: it gives
// every Envoy the clusters, as the page on running beside one says, and no
// endpoints.
func startClusterServer(t *testing.T, services []string) (address string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := json.Marshal(learnedMetrics)
	if err != nil {
		t.Fatal(err)
	}
	clusters := make([]types.Resource, 0, len(services))
	for _, s := range services {
		c := &clusterv3.Cluster{}
		if err := protojson.Unmarshal([]byte(fmt.Sprintf(`{"name": %q, "type": "EDS", "connect_timeout": "5s", "lb_policy": "ROUND_ROBIN", "lrs_report_endpoint_metrics": %s,
			"common_lb_config": {"locality_weighted_lb_config": {}},
			"eds_cluster_config": {"eds_config": {"resource_api_version": "V3", "api_config_source": {
				"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "isobar"}}]}}}}`, s, metrics)), c); err != nil {
			t.Fatal(err)
		}
		clusters = append(clusters, c)
	}
	snapshot, err := cache.NewSnapshot("1", map[resource.Type][]types.Resource{resource.ClusterType: clusters})
	if err != nil {
		t.Fatal(err)
	}
	snapshots := cache.NewSnapshotCache(false, oneNode{}, nil)
	if err := snapshots.SetSnapshot(t.Context(), oneNode{}.ID(nil), snapshot); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, server.NewServer(ctx, snapshots, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(lis) // ends with Stop
	}()
	t.Cleanup(func() {
		cancel()
		g.Stop()
		<-done
	})
	return lis.Addr().String()
}

// clientStatus: what Isobar says over CSDS that an Envoy has is what the Envoy
// has.
func (m *matrix) clientStatus() {
	t := m.t
	conn, err := grpc.NewClient(m.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, g := range m.gateways {
		await(t, "the same endpoints at Isobar and at "+g.name(), func() error {
			told, err := toldOf(t.Context(), conn, g)
			if err != nil {
				return err
			}
			has, err := g.has(t.Context())
			if err != nil {
				return err
			}
			if len(told) != len(matrixServices) || !slices.Equal(told, has) {
				return fmt.Errorf("Isobar says\n%s\nEnvoy has\n%s", strings.Join(told, "\n"), strings.Join(has, "\n"))
			}
			return nil
		})
	}
}

// toldOf returns a line for each assignment that Isobar says an Envoy accepted.
func toldOf(ctx context.Context, conn *grpc.ClientConn, g *gateway) ([]string, error) {
	r, err := statusv3.NewClientStatusDiscoveryServiceClient(conn).FetchClientStatus(ctx, &statusv3.ClientStatusRequest{
		NodeMatchers: []*matcherv3.NodeMatcher{{NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: g.id}}}},
	})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, c := range r.GetConfig() {
		for _, x := range c.GetGenericXdsConfigs() {
			if x.GetTypeUrl() != endpointsURL {
				continue
			}
			var a endpointv3.ClusterLoadAssignment
			if err := x.GetXdsConfig().UnmarshalTo(&a); err != nil {
				return nil, err
			}
			if x.GetConfigStatus() != statusv3.ConfigStatus_SYNCED {
				return nil, fmt.Errorf("%s: %v", x.GetName(), x.GetConfigStatus())
			}
			out = append(out, lineOf(&a))
		}
	}
	slices.Sort(out)
	return out, nil
}

// has returns a line for each assignment that an Envoy has.
func (g *gateway) has(ctx context.Context) ([]string, error) {
	body, err := g.Get(ctx, "/config_dump?include_eds")
	if err != nil {
		return nil, err
	}
	type endpointConfigs []struct {
		Config json.RawMessage `json:"endpoint_config"`
	}
	var dump struct {
		Configs []struct {
			Static  endpointConfigs `json:"static_endpoint_configs"`
			Dynamic endpointConfigs `json:"dynamic_endpoint_configs"`
		} `json:"configs"`
	}
	if err := json.Unmarshal(body, &dump); err != nil {
		return nil, err
	}
	var out []string
	for _, c := range dump.Configs {
		for _, e := range slices.Concat(c.Static, c.Dynamic) {
			var a endpointv3.ClusterLoadAssignment
			plain := strings.Replace(string(e.Config), `"@type": "`+endpointsURL+`",`, "", 1)
			if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(plain), &a); err != nil {
				return nil, fmt.Errorf("%w: %s", err, plain)
			}
			if slices.Contains(matrixServices, a.GetClusterName()) {
				out = append(out, lineOf(&a))
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// lineOf writes what decides in an assignment: endpoints by priority and
// locality, with weights and health. What is unset is what Envoy takes it for.
func lineOf(a *endpointv3.ClusterLoadAssignment) string {
	var parts []string
	for _, l := range a.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			s := e.GetEndpoint().GetAddress().GetSocketAddress()
			parts = append(parts, fmt.Sprintf("%d %s/%s=%d %s:%d*%d %v", l.GetPriority(), l.GetLocality().GetRegion(), l.GetLocality().GetZone(),
				l.GetLoadBalancingWeight().GetValue(), s.GetAddress(), s.GetPortValue(), max(1, e.GetLoadBalancingWeight().GetValue()), cmp.Or(e.GetHealthStatus(), corev3.HealthStatus_HEALTHY)))
		}
	}
	slices.Sort(parts)
	return a.GetClusterName() + ": " + strings.Join(parts, ", ")
}

// oneNode takes every client for the same node.
type oneNode struct{}

// ID implements cache.NodeHash.
func (oneNode) ID(*corev3.Node) string { return "all" }
