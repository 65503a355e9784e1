//go:build istio

package kubernetes_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	corev1 "k8s.io/api/core/v1"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
)

// istioCluster is what Istio calls the port of the Service.
const istioCluster = "outbound|80||checkout.shop.svc.cluster.local"

// istioPage is docs/how-to/beside-istio.md with the names and addresses of a test.
type istioPage struct {
	filter        manifest
	bootstrap     []string // arguments of isobar
	configuration string
}

func readIstioPage(t *testing.T, istiod, isobar string) istioPage {
	t.Helper()
	data, err := os.ReadFile("../../docs/how-to/beside-istio.md")
	if err != nil {
		t.Fatal(err)
	}
	page, _, _ := strings.Cut(string(data), "\n## Envoy Gateway\n")
	page = strings.NewReplacer("istiod.istio-system.svc:15010", istiod, "isobar.isobar.svc:18000", isobar, "portNumber: 8080", "portNumber: 80",
		"outbound|8080||checkout.shop.svc.cluster.local", istioCluster).Replace(page)
	blocks := regexp.MustCompile("(?s) {3}```yaml\n(.*?) {3}```").FindAllStringSubmatch(page, -1)
	commands := regexp.MustCompile(`(?m)^ {4,}isobar (bootstrap envoy .*?)( > .*)?$`).FindAllStringSubmatch(page, -1)
	if len(blocks) != 2 || len(commands) != 1 {
		t.Fatalf("the page has %d blocks of YAML and %d commands: adapt this test", len(blocks), len(commands))
	}
	unindented := func(text string) string { return regexp.MustCompile(`(?m)^ {3}`).ReplaceAllString(text, "") }
	out := istioPage{bootstrap: strings.Fields(commands[0][1]), configuration: unindented(blocks[0][1])}
	if err := yaml.Unmarshal([]byte(unindented(blocks[1][1])), &out.filter); err != nil {
		t.Fatal(err)
	}
	return out
}

// istiod is a real one, as a process.
type istiod struct {
	process *exec.Cmd
	xds     string // address
}

// startIstiod installs Istio's custom resources and starts istiod.
func (c *cluster) startIstiod() *istiod {
	c.t.Helper()
	c.namespace("istio-system")
	resources, err := os.ReadFile(filepath.Join(servers, "istio-crds.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, text := range regexp.MustCompile(`(?m)^---\n`).Split(string(resources), -1) {
		var m manifest
		if err := yaml.Unmarshal([]byte(text), &m); err != nil {
			c.t.Fatal(err)
		}
		if m.kind() == "CustomResourceDefinition" {
			c.create(m.collection(), m)
		}
	}
	i := &istiod{xds: freeAddress(c.t)}
	http := freeAddress(c.t)
	mesh := c.write("mesh", "")
	i.process = c.startWith([]string{
		"POD_NAMESPACE=istio-system", "POD_NAME=istiod-1",
		"PILOT_CERT_PROVIDER=none", "ENABLE_CA_SERVER=false", "VALIDATION_WEBHOOK_CONFIG_NAME=", "INJECTION_WEBHOOK_CONFIG_NAME=",
		// The filter of Istio's metadata exchange is in Istio's own Envoy, and not in
		// the one of this test.
		"PILOT_ENABLE_METADATA_EXCHANGE=false",
	}, "pilot-discovery", "discovery", "--kubeconfig="+c.kubeconfig(adminToken), "--meshConfig="+mesh, "--httpAddr="+http, "--httpsAddr=",
		"--grpcAddr="+i.xds, "--secureGRPCAddr=", "--monitoringAddr="+freeAddress(c.t), "--ctrlz_port=0")
	eventually(c.t, time.Minute, "istiod is ready", func() bool { return statusOf(c.t, "http://"+http+"/ready") == 200 })
	return i
}

func statusOf(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// secrets serves the certificate and the authority of a workload, as Istio's agent does
// beside each Envoy.
type secrets struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer

	ca *identitytest.CA
}

func (s *secrets) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	cert, key := s.ca.Issue(identitytest.Leaf{URIs: []string{"spiffe://cluster.local/ns/shop/sa/default"}})
	inline := func(data []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: data}}
	}
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if req.GetResponseNonce() != "" {
			continue
		}
		out := &discoveryv3.DiscoveryResponse{VersionInfo: "1", Nonce: "1", TypeUrl: req.GetTypeUrl()}
		for _, name := range req.GetResourceNames() {
			secret := &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
				CertificateChain: inline(cert), PrivateKey: inline(key),
			}}}
			if name == "ROOTCA" {
				secret.Type = &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(s.ca.PEM)}}
			}
			m, err := anypb.New(secret)
			if err != nil {
				return err
			}
			out.Resources = append(out.Resources, m)
		}
		if err := stream.Send(out); err != nil {
			return err
		}
	}
}

// serveSecrets returns the path of a socket.
func serveSecrets(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(s, &secrets{ca: identitytest.NewCA(t)})
	go func() { _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(s.Stop)
	return path
}

// sidecarBootstrap is what counts of the file that Istio's agent writes for an Envoy on a
// Node, where no cloud tells the agent the zone: the node has no locality. The listener
// is of the test, because those of istiod need filters of Istio's own Envoy.
func sidecarBootstrap(istiod, socket, node string) string {
	host, port, _ := net.SplitHostPort(istiod)
	return fmt.Sprintf(`node:
  id: sidecar~10.128.200.1~front-1.shop~shop.svc.cluster.local
  cluster: front.shop
  locality: {}
  metadata: {CLUSTER_ID: Kubernetes, NAMESPACE: shop, NODE_NAME: %s, INSTANCE_IPS: 10.128.200.1, ISTIO_VERSION: 1.32.0}
dynamic_resources:
  ads_config: {api_type: GRPC, transport_api_version: V3, set_node_on_first_message_only: true, grpc_services: [{envoy_grpc: {cluster_name: xds-grpc}}]}
  cds_config: {resource_api_version: V3, initial_fetch_timeout: 0s, ads: {}}
static_resources:
  clusters:
    - name: xds-grpc
      type: STATIC
      typed_extension_protocol_options: &http2
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      load_assignment: {cluster_name: xds-grpc, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}]}
    - name: sds-grpc
      type: STATIC
      typed_extension_protocol_options: *http2
      load_assignment: {cluster_name: sds-grpc, endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: %s}}}}]}]}
  listeners:
    - name: checkout
      address: {socket_address: {address: 127.0.0.1, port_value: 0}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: checkout
                http_filters: [{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
                route_config:
                  validate_clusters: false
                  virtual_hosts: [{name: checkout, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: %q}}]}]
`, node, host, port, socket, istioCluster)
}

// TestIstio does what the page says with a real istiod and a real Envoy: istiod gives the
// Envoy its cluster and Isobar the endpoints, the EnvoyFilter makes the Envoy take them
// from Isobar, and the Envoy's load reports arrive there. What istiod lists is followed;
// without istiod nothing changes; and without the EnvoyFilter the cluster is Istio's.
func TestIstio(t *testing.T) {
	c, k := newZones(t)
	k.programs = newPrograms(t)
	c.deploy("shop", "checkout", 6)
	eventually(t, time.Minute, "the Pods are ready", func() bool { ready, _ := k.addresses(); return len(ready) == 6 })
	control := c.startIstiod()
	xds := freeAddress(t)
	page := readIstioPage(t, control.xds, xds)
	s := serve(t, fmt.Sprintf("xds: {listen: %q}\nadmin: {listen: \"127.0.0.1:0\", writable: true}\nstop_spread: 0s\ntick: 1s\nreport_interval: 1s\nstate_dir: %s\n%s",
		xds, filepath.Join(t.TempDir(), "state"), strings.Replace(page.configuration, "selector: none=none", "kubeconfig: "+c.kubeconfig(c.tokenOf())+", selector: none=none", 1)))
	fragment, err := exec.CommandContext(t.Context(), buildIsobar(t), page.bootstrap...).Output()
	if err != nil {
		t.Fatal(err)
	}
	const filters = "/apis/networking.istio.io/v1alpha3/namespaces/shop/envoyfilters"
	c.create(filters+"?fieldValidation=Strict", page.filter)

	e := runEnvoy(t, envoy.Config{Bootstrap: []byte(sidecarBootstrap(control.xds, serveSecrets(t), "node-b")), Merge: fragment})
	address, err := e.Listener(t.Context(), "checkout")
	if err != nil {
		t.Fatal(err)
	}
	call := callsTo(t, address)
	defer func() {
		if t.Failed() {
			clusters, _ := e.Get(context.WithoutCancel(t.Context()), "/config_dump?resource=dynamic_active_clusters&name_regex=.*checkout.*")
			t.Logf("the cluster %s\nclients %s", clusters, get(t, "http://"+s.AdminAddress()+"/v1/clients"))
		}
	}()
	// spread sends 60 requests, and returns the localities that got some.
	spread := func() []string {
		before := received(t, e, istioCluster)
		for range 60 {
			if err := call(); err != nil {
				return []string{err.Error()}
			}
		}
		var out []string
		for locality, n := range received(t, e, istioCluster) {
			if n > before[locality] {
				out = append(out, locality)
			}
		}
		slices.Sort(out)
		return out
	}
	goTo := func(why string, want ...string) {
		t.Helper()
		var last []string
		defer func() {
			if t.Failed() {
				t.Logf("%s: requests went to %q, want %q", why, last, want)
			}
		}()
		eventually(t, time.Minute, why, func() bool { last = spread(); return slices.Equal(last, want) })
	}
	goTo("the Envoy is in the zone of its Node, which is the nearest", "us/b")
	eventually(t, 30*time.Second, "the Envoy's load in the plan", func() bool { spread(); return demandOf(t, s, "checkout", "us/b") > 0 })

	drain := `{"service": "checkout", "locality": "us/b", "reason": "test"}`
	post(t, "http://"+s.AdminAddress()+"/v1/drain?force=true", drain)
	eventually(t, time.Minute, "a drain in Isobar", func() bool { got := spread(); return len(got) > 0 && !slices.Contains(got, "us/b") })
	post(t, "http://"+s.AdminAddress()+"/v1/undrain", drain)
	goTo("the drain is taken back", "us/b")

	// A Pod of the mesh, as the injector labels it: Envoy decides by this metadata whether
	// it uses mutual TLS.
	var pods corev1.PodList
	c.do(http.MethodGet, "/api/v1/namespaces/shop/pods?fieldSelector=spec.nodeName%3Dnode-c", nil, &pods)
	c.do(http.MethodPatch, "/api/v1/namespaces/shop/pods/"+pods.Items[0].Name, map[string]any{"metadata": map[string]any{"labels": map[string]string{"security.istio.io/tlsMode": "istio"}}}, nil)
	eventually(t, time.Minute, "the metadata of the endpoint at the Envoy", func() bool {
		dump, err := e.Get(t.Context(), "/config_dump?include_eds")
		return err == nil && regexp.MustCompile(`(?s)"cluster_name": "checkout".*"tlsMode": "istio"`).Match(dump)
	})

	c.do(http.MethodDelete, filters+"/checkout-by-isobar", nil, nil)
	eventually(t, time.Minute, "without the EnvoyFilter the endpoints are Istio's", func() bool {
		dump, err := e.Get(t.Context(), "/config_dump?include_eds")
		return err == nil && bytes.Contains(dump, []byte(`"cluster_name": "`+istioCluster+`"`))
	})
	c.create(filters+"?fieldValidation=Strict", page.filter)
	goTo("with the EnvoyFilter they are Isobar's again", "us/b")

	_ = control.process.Process.Kill()
	goTo("istiod is gone", "us/b")
	<-time.After(5 * time.Second)
	goTo("istiod is gone for a while", "us/b")
	t.Logf("requests by zone since the cluster came last: %v; demand of us/b in the plan %.1f/s", received(t, e, istioCluster), demandOf(t, s, "checkout", "us/b"))
}

func post(t *testing.T, url, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if data, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("POST %s: %s %s %v", url, resp.Status, data, err)
	}
}
