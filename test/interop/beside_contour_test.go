package interop

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// contourService is the name by which an Envoy of Contour asks for the endpoints of
// the port http of the Service checkout in the namespace shop.
const contourService = "shop/checkout/http"

// insideNetns is set in the process that has a network namespace of its own.
const insideNetns = "ISOBAR_INTEROP_NETNS"

// TestBesideContour does what docs/how-to/beside-contour.md says, with a real API
// server of Kubernetes: Contour gives an Envoy its listeners, routes and clusters,
// and Isobar the endpoints, which it has from Contour. It needs minutes the first
// time, for the API server is built then, and runs in `make interop-all` only.
//
// Kubernetes takes no endpoints on loopback. So the test runs itself in a network
// namespace, which has further addresses.
func TestBesideContour(t *testing.T) {
	if !interopAll() {
		return
	}
	c := contourFiles(t)
	if os.Getenv(insideNetns) != "" {
		c.beside(t)
		return
	}
	const setup = `ip link set lo up && ip address add 10.9.0.1/32 dev lo && ip address add 10.9.0.2/32 dev lo && exec "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--map-root-user", "sh", "-c", setup, "sh", os.Args[0],
		"-test.run=^TestBesideContour$", "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), insideNetns+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestBesideContour") {
		t.Errorf("%v\n%s", err, out)
	}
}

// contourSetup names what the test has installed while there is a network.
type contourSetup struct {
	contour, crds    string // the program, and the file of its custom resources
	apiServer, store string // programs: kube-apiserver and etcd
	envoy            string
}

func contourFiles(t *testing.T) contourSetup {
	t.Helper()
	const module = "github.com/projectcontour/contour"
	crds := filepath.Join(cached(t, "contour-crds-"+contourVersion, []byte(contourVersion), func(ctx context.Context, dir string) error {
		out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+contourVersion).Output()
		if err != nil {
			return err
		}
		var at struct{ Dir string }
		if err := json.Unmarshal(out, &at); err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(at.Dir, "examples/contour/01-crds.yaml"))
		return errors.Join(err, os.WriteFile(filepath.Join(dir, "crds.yaml"), data, 0o600))
	}), "crds.yaml")
	const servers = "../kubernetes/servers"
	built := cached(t, "kubernetes", append(read(t, servers+"/go.mod"), read(t, servers+"/go.sum")...), func(ctx context.Context, dir string) error {
		return errors.Join(
			command(ctx, servers, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "kube-apiserver"), "k8s.io/kubernetes/cmd/kube-apiserver"),
			command(ctx, servers, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "etcd"), "go.etcd.io/etcd/server/v3"))
	})
	return contourSetup{
		contour: goTool(t, module+"/cmd/contour", contourVersion), crds: crds, envoy: envoyBinary(t, envoy.Newest),
		apiServer: filepath.Join(built, "kube-apiserver"), store: filepath.Join(built, "etcd"),
	}
}

// The addresses of the test's network namespace.
const (
	apiAddress     = "127.0.0.1:6443"
	contourAddress = "127.0.0.1:8001"
	routerAddress  = "127.0.0.1:8002"
	ingressAddress = "127.0.0.1:8080"
)

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: test,
clusters: [{name: test, cluster: {server: "https://` + apiAddress + `", insecure-skip-tls-verify: true}}],
contexts: [{name: test, context: {cluster: test, user: test}}], users: [{name: test, user: {token: secret}}]}`

// beside runs within the network namespace.
func (c contourSetup) beside(t *testing.T) {
	t.Helper()
	a := startWebBackendAt(t, "a", "10.9.0.1:8080")
	startWebBackendAt(t, "b", "10.9.0.2:8080")
	api := c.startKubernetes(t)
	contour := c.startContour(t, api)
	s := prepareIsobar(t, time.Second, "", "")
	page := readContourPage(t, s.xds)
	s.configure(page.source)
	s.run()
	startEnvoy(t, envoy.Newest, page.router)
	g := &gateway{version: envoy.Newest, protocol: edsBeside, zone: "us/a", id: "beside-contour", listener: ingressAddress}
	g.client.Transport = &http.Transport{MaxIdleConnsPerHost: 10}
	t.Cleanup(g.client.CloseIdleConnections)
	startProgram(t, c.envoy, "-c", c.bootstrap(t), "--service-node", g.id, "--config-yaml", envoyBootstrap(t, page.flags...),
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
	served := func(want ...string) { t.Helper(); g.awaitServed(t, want...) }
	served("a", "b")
	await(t, "the Envoy's load in the plan", func() error {
		served("a", "b")
		_, source, err := s.source(contourService)
		if err == nil && source.Demand == 0 {
			err = errors.New("no demand")
		}
		return err
	})
	s.health(url.PathEscape(contourService), a.address, "draining")
	served("b")
	s.health(url.PathEscape(contourService), a.address, "")
	served("a", "b")
	api.apply(t, endpointSlice("10.9.0.1"))
	served("a")
	api.apply(t, endpointSlice("10.9.0.1", "10.9.0.2"))
	served("a", "b")

	api.apply(t, endpointSlice("10.9.0.2"))
	served("b")
	await(t, "list of Contour in the state directory", func() error { return s.lists("10.9.0.2", "10.9.0.1") })
	contour.stop()
	served("b")
	s.kill()
	served("b")
	s.run()
	served("b")
}

// lists returns nil once the server has saved that another control plane lists an address, and
// another one no more. It saves at most once a second, so a kill right after a change loses it.
func (s *isobar) lists(address, gone string) error {
	data, err := os.ReadFile(filepath.Join(filepath.Dir(s.config), "state", "xds-source.state"))
	if err == nil && (!bytes.Contains(data, []byte(address)) || bytes.Contains(data, []byte(gone))) {
		err = errors.New("what is saved is older")
	}
	return err
}

// kubeAPI calls the API server.
type kubeAPI struct{ client http.Client }

func (c contourSetup) startKubernetes(t *testing.T) *kubeAPI {
	t.Helper()
	dir := t.TempDir()
	tokens, key := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "sa.key")
	if err := errors.Join(os.WriteFile(tokens, []byte("secret,admin,1,system:masters\n"), 0o600),
		command(t.Context(), dir, "openssl", "genrsa", "-out", key, "2048")); err != nil {
		t.Fatal(err)
	}
	const store = "http://127.0.0.1:2379"
	startProgram(t, c.store, "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", store, "--advertise-client-urls", store,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync")
	startProgram(t, c.apiServer, "--etcd-servers", store, "--cert-dir", filepath.Join(dir, "certs"), "--bind-address", "127.0.0.1", "--secure-port", "6443",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--authorization-mode", "RBAC", "--token-auth-file", tokens, "--service-cluster-ip-range", "10.96.0.0/16",
		"--disable-admission-plugins", "ServiceAccount", "--advertise-address", "10.9.0.1", "--endpoint-reconciler-type", "none")
	api := &kubeAPI{http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
	t.Cleanup(api.client.CloseIdleConnections)
	await(t, "API server", func() error { return api.call(t, http.MethodGet, "/readyz", "") })
	return api
}

// call sends YAML.
func (k *kubeAPI) call(t *testing.T, method, path, body string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+apiAddress+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer secret")
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	resp, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %.500s", method, path, resp.Status, out)
	}
	return err
}

// kubeObject is an object of Kubernetes with the path of its kind.
type kubeObject struct{ kind, name, yaml string }

func (k *kubeAPI) apply(t *testing.T, objects ...kubeObject) {
	t.Helper()
	for _, o := range objects {
		await(t, o.kind+" "+o.name, func() error { // a custom resource is known only after a moment
			return k.call(t, http.MethodPatch, o.kind+"/"+o.name+"?fieldManager=test&force=true", o.yaml)
		})
	}
}

func endpointSlice(addresses ...string) kubeObject {
	return kubeObject{"/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", "checkout-1", `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: checkout-1, namespace: shop, labels: {kubernetes.io/service-name: checkout}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [` + strings.Join(addresses, "], conditions: {ready: true}}, {addresses: [") + `], conditions: {ready: true}}]
`}
}

// startContour starts Contour, and gives it a Service with an Ingress for all hosts.
func (c contourSetup) startContour(t *testing.T, api *kubeAPI) *program {
	t.Helper()
	for text := range strings.SplitSeq(string(read(t, c.crds)), "\n---\n") {
		if name := regexp.MustCompile(`(?m)^  name: (\S+)`).FindStringSubmatch(text); name != nil {
			api.apply(t, kubeObject{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name[1], text})
		}
	}
	api.apply(t, kubeObject{"/api/v1/namespaces", "shop", "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}"},
		kubeObject{"/api/v1/namespaces/shop/services", "checkout", "{apiVersion: v1, kind: Service, metadata: {name: checkout, namespace: shop}, " +
			"spec: {ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP}]}}"},
		endpointSlice("10.9.0.1", "10.9.0.2"),
		kubeObject{"/apis/networking.k8s.io/v1/namespaces/shop/ingresses", "checkout", "{apiVersion: networking.k8s.io/v1, kind: Ingress, " +
			"metadata: {name: checkout, namespace: shop}, spec: {defaultBackend: {service: {name: checkout, port: {number: 80}}}}}"},
		kubeObject{"/apis/projectcontour.io/v1/namespaces/shop/httpproxies", "other", "{apiVersion: projectcontour.io/v1, kind: HTTPProxy, " +
			"metadata: {name: other, namespace: shop}, spec: {virtualhost: {fqdn: checkout.example}, routes: [{services: [{name: checkout, port: 80}]}]}}"})
	dir := t.TempDir()
	settings, config := filepath.Join(dir, "contour.yaml"), filepath.Join(dir, "kubeconfig")
	if err := errors.Join(os.WriteFile(settings, []byte("tls: {}\n"), 0o600), os.WriteFile(config, []byte(kubeconfig), 0o600)); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(contourAddress, ":")
	_, ingressPort, _ := strings.Cut(ingressAddress, ":")
	return startProgram(t, c.contour, "serve", "--kubeconfig="+config, "--config-path="+settings, "--insecure", "--disable-leader-election",
		"--xds-address="+host, "--xds-port="+port, "--http-address=127.0.0.1", "--http-port=9000", "--health-address=127.0.0.1", "--health-port=9002",
		"--envoy-service-http-address=127.0.0.1", "--envoy-service-http-port="+ingressPort)
}

// bootstrap is the file that `contour bootstrap` writes, with the router as the xDS
// server.
func (c contourSetup) bootstrap(t *testing.T) string {
	t.Helper()
	host, port, _ := strings.Cut(routerAddress, ":")
	dir := t.TempDir()
	path := filepath.Join(dir, "envoy.json")
	if err := command(t.Context(), ".", c.contour, "bootstrap", "--xds-address="+host, "--xds-port="+port,
		"--admin-address="+filepath.Join(dir, "admin.sock"), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// contourPage is docs/how-to/beside-contour.md, with the addresses of the test.
type contourPage struct {
	source, router string
	flags          []string // of isobar bootstrap envoy
}

func readContourPage(t *testing.T, xds string) contourPage {
	t.Helper()
	_, port, _ := strings.Cut(xds, ":")
	_, contourPort, _ := strings.Cut(contourAddress, ":")
	_, routerPort, _ := strings.Cut(routerAddress, ":")
	page := strings.NewReplacer("contour.projectcontour:8001", contourAddress, "isobar.example:18000", xds,
		"address: isobar.example, port_value: 18000", "address: 127.0.0.1, port_value: "+port,
		"address: contour.projectcontour, port_value: 8001", "address: 127.0.0.1, port_value: "+contourPort,
		"address: 0.0.0.0, port_value: 8001", "address: 127.0.0.1, port_value: "+routerPort,
		"us-east/b", "us/a").Replace(string(read(t, "../../docs/how-to/beside-contour.md")))
	blocks := regexp.MustCompile("(?s) {3}```yaml\n(.*?) {3}```").FindAllStringSubmatch(page, -1)
	commands := regexp.MustCompile(`isobar bootstrap envoy ([^)"\n]*)`).FindAllStringSubmatch(page, -1)
	if len(blocks) != 2 || len(commands) != 1 {
		t.Fatalf("the page has %d blocks of YAML and %d commands: adapt this test", len(blocks), len(commands))
	}
	unindented := func(text string) string { return regexp.MustCompile(`(?m)^ {3}`).ReplaceAllString(text, "") }
	return contourPage{source: unindented(blocks[0][1]), router: unindented(blocks[1][1]), flags: strings.Fields(commands[0][1])}
}

// program runs until it is stopped, or the test ends.
type program struct {
	cmd *exec.Cmd
	log *testhelp.Log
}

func startProgram(t *testing.T, path string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.CommandContext(context.Background(), path, args...), log: new(testhelp.Log)}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			text := p.log.String()
			t.Logf("%s: %s", filepath.Base(path), text[max(0, len(text)-3000):])
		}
	})
	return p
}

// stop kills it. It may have ended on its own, which the test has seen.
func (p *program) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
