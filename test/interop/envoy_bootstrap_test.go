package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// namedBackend answers HTTP/1 requests with a name, until the test ends.
func namedBackend(t *testing.T, name string) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// webService is the configuration of a service with one endpoint in us/a.
func webService(name, address string) string {
	return fmt.Sprintf("  - {name: %q, localities: [{locality: us/a, endpoints: [%q]}]}\n", name, address)
}

// request sends one to a listener; the host is the Host header.
func request(ctx context.Context, listener, host string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listener+"/", http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// answers waits until a listener answers for the host with 200 and the body.
func answers(t *testing.T, listener, host, body string) {
	t.Helper()
	await(t, "answer "+body+" for "+host, func() error {
		status, got, err := request(t.Context(), listener, host)
		if err == nil && (status != http.StatusOK || got != body) {
			err = fmt.Errorf("%d %q", status, got)
		}
		return err
	})
}

// reports waits until the load of a client's node has arrived.
func (s *isobar) reports(node string) {
	s.t.Helper()
	await(s.t, "load report of "+node, func() error {
		c, err := s.client(node)
		if err == nil && (c.LRS == nil || c.LRS.LastReport.IsZero()) {
			err = errors.New("no report yet")
		}
		return err
	})
}

// TestEnvoyBootstrap starts Envoys from exactly what `isobar bootstrap envoy`
// prints, before the server runs: they wait, then they serve and report.
func TestEnvoyBootstrap(t *testing.T) {
	t.Parallel()
	for _, version := range envoyVersions() {
		for _, variant := range []struct {
			name string
			args []string
			host string // what leads to the server
			tls  bool
		}{
			{name: "clusters from CDS"},
			{name: "host name", host: "localhost"},
			{name: "one cluster in the file", args: []string{"--service", "checkout"}},
			{name: "clusters in the file", args: []string{"--service", "checkout", "--service", "pay", "--service", "nosuch"}},
			{name: "probes", args: []string{"--checks"}},
			{name: "mutual TLS", tls: true},
			{name: "mutual TLS and a host name", host: "localhost", tls: true},
		} {
			t.Run(version+" "+variant.name, func(t *testing.T) {
				t.Parallel()
				xds, args := "", variant.args
				if variant.tls {
					f := identitytest.NewCA(t).Write(t.TempDir(), identitytest.Leaf{})
					xds = fmt.Sprintf(", tls: {cert: %q, key: %q, client_ca: %q}", f.Cert, f.Key, f.ClientCA)
					args = append(args, "--ca", f.ClientCA, "--cert", f.Cert, "--key", f.Key)
				}
				s := prepareIsobar(t, time.Second, xds, "services:\n"+webService("checkout", namedBackend(t, "c"))+webService("pay", namedBackend(t, "p")))
				server := s.xds
				if variant.host != "" {
					_, port, err := net.SplitHostPort(s.xds)
					if err != nil {
						t.Fatal(err)
					}
					server = net.JoinHostPort(variant.host, port)
				}
				listener := testhelp.FreePort(t)
				p := startEnvoy(t, version, envoyBootstrap(t, append(args, "--server", server, "--cluster", "shop",
					"--locality", "us/a", "--node-id", "e1", "--listener", listener)...))
				p.waits(t, listener)
				s.run()
				answers(t, listener, "checkout", "c")
				if variant.name != "one cluster in the file" { // one cluster in the file: all requests go there
					answers(t, listener, "pay:80", "p")
				}
				s.reports("e1")
				if len(variant.args) == 1 {
					p.probes(t)
				}
			})
		}
	}
}

// waits checks that an Envoy without its first configuration is not ready and
// accepts no connection.
func (p *proxy) waits(t *testing.T, listener string) {
	t.Helper()
	if _, err := p.Get(t.Context(), "/ready"); err == nil {
		t.Error("Envoy is ready without a server")
	}
	if _, _, err := request(t.Context(), listener, "checkout"); err == nil {
		t.Error("Envoy answers requests without a server")
	}
}

// probes waits until an Envoy has been told what to probe.
func (p *proxy) probes(t *testing.T) {
	t.Helper()
	await(t, "health check specifier", func() error {
		stats, err := p.Stats(t.Context(), "^hds_delegate")
		if err == nil && stats["hds_delegate.updates"] == 0 {
			err = fmt.Errorf("statistics %v", stats)
		}
		return err
	})
}

// TestEnvoyBootstrapBeside merges what --beside prints into the bootstrap of an
// Envoy whose cluster comes from elsewhere, and is as the comment in it says.
func TestEnvoyBootstrapBeside(t *testing.T) {
	t.Parallel()
	s := prepareIsobar(t, time.Second, "", "services:\n"+webService("checkout", namedBackend(t, "c")))
	fragment := envoyBootstrap(t, "--beside", "--checks", "--server", s.xds, "--cluster", "shop", "--locality", "us/a", "--node-id", "e1")
	listener := testhelp.FreePort(t)
	own := parse(t, envoyBootstrap(t, "--server", s.xds, "--locality", "us/a", "--listener", listener))
	merged := parse(t, fragment)
	static := merged["static_resources"].(map[string]any)
	static["listeners"] = own["static_resources"].(map[string]any)["listeners"]
	cluster := parse(t, strings.Join(commented.FindAllString(fragment, -1), "\n"))
	cluster["name"] = "checkout"
	static["clusters"] = append(static["clusters"].([]any), cluster)
	p := startEnvoy(t, envoy.Newest, marshal(t, merged))
	p.waits(t, listener)
	s.run()
	answers(t, listener, "checkout", "c")
	s.reports("e1")
	p.probes(t)
}

// commented finds the settings in the comment at the beginning of what --beside
// prints. YAML reads the number sign as the beginning of a comment: it goes.
var commented = regexp.MustCompile(`(?m)^#   .*$`)

// parse reads YAML, or the settings in comments.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	if strings.HasPrefix(text, "#   ") {
		text = regexp.MustCompile(`(?m)^#   `).ReplaceAllString(text, "")
	}
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	out, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestEnvoyBootstrapPage does what docs/how-to/envoy.md says, to the letter but
// for addresses and file names: each command, and each block of YAML.
func TestEnvoyBootstrapPage(t *testing.T) {
	t.Parallel()
	page := string(read(t, "../../docs/how-to/envoy.md"))
	s := startIsobar(t, "services:\n"+webService("checkout", namedBackend(t, "c")))
	_, port, err := net.SplitHostPort(s.xds)
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^ {4,}isobar bootstrap envoy (.*) > envoy.yaml$`).FindAllStringSubmatch(page, -1)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(commands) != 3 || len(blocks) != 3 {
		t.Fatalf("the page has %d commands and %d blocks of YAML: adapt this test", len(commands), len(blocks))
	}
	listener := make([]string, 3)
	files := make([]map[string]any, 3)
	for i, command := range commands {
		listener[i] = testhelp.FreePort(t)
		call := strings.NewReplacer("isobar.example:18000", "localhost:"+port, "--listener 10000", "--listener "+listener[i],
			"us-east/b", "us/a").Replace(command[1])
		files[i] = parse(t, envoyBootstrap(t, append(strings.Fields(call), "--node-id", fmt.Sprint("page-", i))...))
	}
	resources := func(i int) map[string]any { return files[i]["static_resources"].(map[string]any) }
	listenersOfPage := func(i int) any {
		_, port, err := net.SplitHostPort(listener[i])
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, strings.ReplaceAll(blocks[0][1], "10000", port))["listeners"]
	}
	resources(1)["listeners"] = listenersOfPage(1)
	// The last one is a bootstrap of the reader's own, with the cluster of the page.
	resources(2)["listeners"] = listenersOfPage(2)
	cluster := parse(t, blocks[1][1])
	cluster["name"] = "checkout"
	clusters := resources(2)["clusters"].([]any)
	resources(2)["clusters"] = []any{clusters[0], cluster}
	for i := range files {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			startEnvoy(t, envoy.Newest, marshal(t, files[i]))
			answers(t, listener[i], "checkout", "c")
			s.on(t).reports(fmt.Sprint("page-", i))
		})
	}
}

// TestEnvoyBootstrapTimeout: with a timeout Envoy goes on without the server,
// as the page says, and without one it waits longer than Envoy's own 15 seconds
// (at full length; else longer than the timeout of the other).
func TestEnvoyBootstrapTimeout(t *testing.T) {
	t.Parallel()
	s := prepareIsobar(t, time.Second, "", "services:\n"+webService("checkout", namedBackend(t, "c")))
	start := func(args ...string) (*proxy, string) {
		listener := testhelp.FreePort(t)
		return startEnvoy(t, envoy.Newest, envoyBootstrap(t, append(args, "--server", s.xds, "--locality", "us/a", "--listener", listener)...)), listener
	}
	waiting, at := start("--service", "checkout")
	timeout := time.Second
	if interopAll() {
		timeout = 16 * time.Second
	}
	impatient, early := start("--initial-fetch-timeout", timeout.String())
	if err := impatient.AwaitReady(t.Context(), patience); err != nil {
		t.Fatal(err)
	}
	if status, _, err := request(t.Context(), early, "checkout"); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("without a server and after the timeout the answer is %d, %v", status, err)
	}
	waiting.waits(t, at)
	s.run()
	answers(t, early, "checkout", "c")
	answers(t, at, "checkout", "c")
}

// TestEnvoySharedBootstrap: Envoy takes $(HOSTNAME) in its file as it is, and
// --service-node overrides it.
func TestEnvoySharedBootstrap(t *testing.T) {
	t.Parallel()
	s := startIsobar(t, "services:\n"+webService("checkout", namedBackend(t, "c")))
	file := envoyBootstrap(t, "--server", s.xds, "--locality", "us/a", "--node-id", "$(HOSTNAME)")
	startEnvoy(t, envoy.Newest, file)
	startEnvoyWith(t, envoy.Config{Path: envoyBinary(t, envoy.Newest), Bootstrap: []byte(file), Args: []string{"--service-node", "pod-7"}})
	for _, id := range []string{"$(HOSTNAME)", "pod-7"} {
		await(t, "client "+id, func() error {
			_, err := s.client(id)
			return err
		})
	}
}

// TestEnvoyManyClustersOutsideADS: each EDS cluster outside ADS is a request to
// the server. All get their endpoints, beyond the 1,024 requests that Envoy
// allows by itself, and load reports go on.
func TestEnvoyManyClustersOutsideADS(t *testing.T) {
	if !interopAll() {
		return // 1,500 streams take too long for every run; the circuit breakers are tested in cmd/isobar
	}
	const clusters = 1500
	services := "services:\n"
	backend := namedBackend(t, "c")
	for i := range clusters {
		services += webService(fmt.Sprint("s", i), backend)
	}
	s := startIsobar(t, services)
	listener := testhelp.FreePort(t)
	args := []string{"--server", s.xds, "--locality", "us/a", "--node-id", "e1", "--listener", listener}
	for i := range clusters {
		args = append(args, "--service", fmt.Sprint("s", i))
	}
	const overADS, alone = "ads: {}", "api_config_source: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: isobar}}]}"
	file := strings.ReplaceAll(envoyBootstrap(t, args...), "          "+overADS, "          "+alone)
	if n := strings.Count(file, alone); n != clusters {
		t.Fatalf("%d clusters outside ADS", n)
	}
	p := startEnvoy(t, envoy.Newest, file)
	if err := p.AwaitReady(t.Context(), patience); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 1023, 1024, 1025, clusters - 1} {
		answers(t, listener, fmt.Sprint("s", i), "c")
	}
	stats, err := p.Stats(t.Context(), `^cluster\.s[0-9]*\.membership_total$`)
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range stats {
		if n != 1 {
			t.Errorf("%s is %d", name, n)
		}
	}
	await(t, "load of the last service", func() error {
		_, _, err := request(t.Context(), listener, fmt.Sprint("s", clusters-1))
		if err != nil {
			return err
		}
		v, err := s.plan(fmt.Sprint("s", clusters-1))
		if err == nil && (len(v.Services[0].Sources) == 0 || v.Services[0].Sources[0].Demand == 0) {
			err = errors.New("no demand")
		}
		return err
	})
}
