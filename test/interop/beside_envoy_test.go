package interop

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
)

// besidePage is docs/how-to/beside-envoy-control-plane.md, with the addresses and
// places of a test.
type besidePage struct {
	source  string         // of Isobar's configuration
	flags   []string       // of isobar bootstrap envoy
	cluster map[string]any // what clusters need
}

func readBesidePage(t *testing.T, peerAddress, xds string) besidePage {
	t.Helper()
	page := strings.NewReplacer("127.0.0.1:18001", peerAddress, "isobar.example:18000", xds,
		"outbound|80||checkout.default.svc.cluster.local", `"`+edsName+`"`, "us-east/b", "us/a").
		Replace(string(read(t, "../../docs/how-to/beside-envoy-control-plane.md")))
	blocks := regexp.MustCompile("(?s) {3}```yaml\n(.*?) {3}```").FindAllStringSubmatch(page, -1)
	commands := regexp.MustCompile(`(?m)^ {4,}isobar bootstrap envoy (.*)$`).FindAllStringSubmatch(page, -1)
	if len(blocks) != 2 || len(commands) != 1 {
		t.Fatalf("the page has %d blocks of YAML and %d commands: adapt this test", len(blocks), len(commands))
	}
	unindented := func(text string) string { return regexp.MustCompile(`(?m)^ {3}`).ReplaceAllString(text, "") }
	return besidePage{source: unindented(blocks[0][1]), flags: strings.Fields(commands[0][1]), cluster: parse(t, unindented(blocks[1][1]))}
}

// giveClusters has the other control plane give an Envoy the cluster, with the
// settings.
func (p *peer) giveClusters(node string, settings map[string]any, more map[resource.Type][]types.Resource) {
	p.t.Helper()
	all := map[string]any{"name": edsName, "type": "EDS", "connect_timeout": "5s"}
	maps.Copy(all, settings)
	text, err := yaml.MarshalWithOptions(all, yaml.JSON())
	if err != nil {
		p.t.Fatal(err)
	}
	c := &clusterv3.Cluster{}
	if err := protojson.Unmarshal(text, c); err != nil {
		p.t.Fatalf("%v\n%s", err, text)
	}
	resources := map[resource.Type][]types.Resource{resource.ClusterType: {c}}
	maps.Copy(resources, more)
	p.set(node, resources)
}

// TestEnvoyBesidePage does what the page says with a real Envoy: go-control-plane
// gives the Envoy its cluster and Isobar the endpoints, and the Envoy gets them from
// Isobar and reports its load there. What go-control-plane lists is followed; while
// it is away, and Isobar restarts, nothing changes; and the cluster goes back to it.
func TestEnvoyBesidePage(t *testing.T) {
	t.Parallel()
	a, b := startWebBackend(t, "a"), startWebBackend(t, "b")
	p := startPeer(t, &backend{address: a.address}, &backend{address: b.address})
	s := prepareIsobar(t, time.Second, "", "")
	page := readBesidePage(t, p.address, s.xds)
	s.configure(page.source)
	s.run()
	g := &gateway{version: envoy.Newest, protocol: edsBeside, zone: "us/a", id: "beside"}
	g.client.Transport = &http.Transport{MaxIdleConnsPerHost: 10}
	t.Cleanup(g.client.CloseIdleConnections)
	g.bootstrap = besideBootstrap(t, append(page.flags, "--node-id", g.id), p.address)
	p.giveClusters(g.id, page.cluster, nil)
	g.start(t)
	served := func(want ...string) { t.Helper(); g.awaitServed(t, want...) }
	served("a", "b")
	await(t, "the Envoy's load in the plan", func() error {
		served("a", "b")
		_, source, err := s.source("checkout")
		if err == nil && source.Demand == 0 {
			err = fmt.Errorf("no demand")
		}
		return err
	})
	p.list(corev3.HealthStatus_DRAINING)
	served("b")
	p.list(corev3.HealthStatus_HEALTHY)
	served("a", "b")

	// Back to the other control plane, whose endpoint is b alone.
	own := p.assignment(p.backends[1:], corev3.HealthStatus_HEALTHY)
	p.giveClusters(g.id, map[string]any{
		"lb_policy":          "ROUND_ROBIN",
		"eds_cluster_config": map[string]any{"eds_config": map[string]any{"resource_api_version": "V3", "ads": map[string]any{}}},
	}, map[resource.Type][]types.Resource{resource.EndpointType: {own}})
	served("b")
	p.giveClusters(g.id, page.cluster, nil)
	served("a", "b")

	p.server.Stop()
	s.kill()
	served("a", "b")
	s.run()
	served("a", "b")
}

// besideBootstrap is what the page's command prints, merged into the bootstrap of an
// Envoy that has its clusters from the other control plane.
func besideBootstrap(t *testing.T, flags []string, peerAddress string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(peerAddress)
	if err != nil {
		t.Fatal(err)
	}
	route := strings.Replace(routesTo([]string{"checkout"}), "cluster: checkout", fmt.Sprintf("cluster: %q", edsName), 1)
	merged := strings.Replace(envoyBootstrap(t, flags...), "static_resources:\n", "static_resources:\n  listeners:\n"+route, 1)
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

// awaitServed waits until requests for checkout go to these backends, and no others.
func (g *gateway) awaitServed(t *testing.T, want ...string) {
	t.Helper()
	await(t, fmt.Sprint("requests to ", want), func() error {
		o := g.requests(t.Context(), "checkout", 40)
		if len(o.Failed) > 0 || !slices.Equal(slices.Sorted(maps.Keys(o.Served)), want) {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
}
