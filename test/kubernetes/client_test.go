package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/xds"
	corev1 "k8s.io/api/core/v1"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/server"
)

// environment expands the variables of a container as kubelets do.
func environment(t *testing.T, pod *corev1.Pod, container string) map[string]string {
	t.Helper()
	at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	if at < 0 {
		t.Fatalf("no container %s", container)
	}
	label := regexp.MustCompile(`^metadata\.labels\['(.+)'\]$`)
	out := map[string]string{}
	for _, e := range pod.Spec.Containers[at].Env {
		value := regexp.MustCompile(`\$\((\w+)\)`).ReplaceAllStringFunc(e.Value, func(s string) string { return out[s[2:len(s)-1]] })
		if e.ValueFrom != nil {
			switch path := e.ValueFrom.FieldRef.FieldPath; {
			case path == "metadata.name":
				value = pod.Name
			case label.MatchString(path):
				value = pod.Labels[label.FindStringSubmatch(path)[1]]
			default:
				t.Fatalf("no field %s", path)
			}
		}
		out[e.Name] = value
	}
	return out
}

// TestClient runs a grpc-go client with the bootstrap that a Pod of the example gets,
// against a server that reads its endpoints from the cluster: it is in the region and
// zone of its Node.
func TestClient(t *testing.T) {
	c, _ := newZones(t)
	c.deploy("shop", "checkout", 3)
	pods := c.bound("examples/kubernetes/grpc-client.yaml", "front")
	s, client := c.serveTLS(identitytest.Leaf{}, "")
	for i := range pods {
		pod := &pods[i]
		bootstrap := strings.NewReplacer("isobar.isobar.svc:18000", s.XDSAddress(), "/etc/isobar-client/ca.crt", client.ClientCA,
			"/etc/isobar-client/tls.crt", client.Cert, "/etc/isobar-client/tls.key", client.Key).Replace(environment(t, pod, "front")["GRPC_XDS_BOOTSTRAP_CONFIG"])
		resolver, err := xds.NewXDSResolverWithConfigForTesting([]byte(bootstrap))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient("xds:///checkout.shop:80", grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		conn.Connect()
		zone := strings.TrimPrefix(pod.Spec.NodeName, "node-")
		want := regexp.MustCompile(`"` + pod.Name + `"[^{}]*"us/` + zone + `"|"us/` + zone + `"[^{}]*"` + pod.Name + `"`)
		var last string
		defer func() {
			if t.Failed() {
				t.Logf("bootstrap %s\nclients %s", bootstrap, last)
			}
		}()
		eventually(t, 30*time.Second, pod.Name+" is a client in us/"+zone, func() bool {
			last = get(t, "http://"+s.AdminAddress()+"/v1/clients")
			return want.MatchString(last)
		})
	}
}

// TestSidecar runs the Envoys of the example of a program with an Envoy beside it, each
// with the configuration that its Pod gets: each is in the zone of its Node, sends
// requests to the Pods of its own zone, and its load reports arrive. The first of them has
// a cluster of its own, which names its assignment by the DNS name of the Service.
func TestSidecar(t *testing.T) {
	c, k := newZones(t)
	k.programs = newPrograms(t)
	c.deploy("shop", "checkout", 3)
	listed := c.watchSlices("shop", "checkout") // behind the Pods while the controller's cache is out of date
	eventually(t, time.Minute, "an endpoint in each zone", func() bool { return len(listed.last()) == 3 })
	pods := c.bound("examples/kubernetes/envoy-sidecar.yaml", "web")
	s, client := c.serveTLS(identitytest.Leaf{DNS: []string{"isobar.isobar.svc"}}, "defaults: {mode: observe, protocol: grpc}\ntick: 1s\nreport_interval: 1s\n")
	host, port, err := net.SplitHostPort(s.XDSAddress())
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		pod := &pods[i]
		bootstrap := strings.NewReplacer(`"isobar.isobar.svc", port_value: 18000`, fmt.Sprintf("%q, port_value: %s", host, port),
			"/etc/isobar-client/ca.crt", client.ClientCA, "/etc/isobar-client/tls.crt", client.Cert, "/etc/isobar-client/tls.key", client.Key,
			"port_value: 10000", "port_value: 0", "checkout.shop:8080", "checkout.shop:80").Replace(environment(t, pod, "envoy")["CONFIGURATION"])
		cluster := "checkout.shop:80"
		if i == 0 {
			cluster = "own"
			bootstrap = withOwnCluster(t, bootstrap, cluster, "checkout.shop.svc.cluster.local:80")
		}
		e := runEnvoy(t, envoy.Config{Bootstrap: []byte(bootstrap)})
		address, err := e.Listener(t.Context(), "checkout")
		if err != nil {
			t.Fatal(err)
		}
		checks := callsTo(t, address)
		zone := "us/" + strings.TrimPrefix(pod.Spec.NodeName, "node-")
		eventually(t, 30*time.Second, "an answer to "+zone, func() bool { return checks() == nil })
		eventually(t, 30*time.Second, "the load of "+zone, func() bool {
			for range 20 {
				if err := checks(); err != nil {
					t.Errorf("%s: %v", zone, err)
				}
			}
			return demandOf(t, s, "checkout.shop:80", zone) > 0
		})
		if got := received(t, e, cluster); len(got) != 1 || got[zone] < 20 {
			t.Errorf("of an Envoy in %s each zone got %v", zone, got)
		}
	}
}

// withOwnCluster adds a cluster to the bootstrap of the example, to which all requests go and
// which takes the assignment of a name from Isobar.
func withOwnCluster(t *testing.T, bootstrap, name, assignment string) string {
	t.Helper()
	cluster := fmt.Sprintf(`  clusters:
    - name: %s
      type: EDS
      eds_cluster_config: {service_name: %q, eds_config: {resource_api_version: V3, ads: {}}}
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
`, name, assignment)
	out := strings.Replace(bootstrap, "\n  clusters:\n", "\n"+cluster, 1)
	out = strings.Replace(out, `cluster: "checkout.shop:80"`, fmt.Sprintf("cluster: %q", name), 1)
	if !strings.Contains(out, assignment) || !strings.Contains(out, fmt.Sprintf("cluster: %q", name)) {
		t.Fatalf("the example has no clusters, or no route:\n%s", bootstrap)
	}
	return out
}

// bound creates the Deployment of a file of the repository, whose Pods have a label app,
// and returns them once each has a Node.
func (c *cluster) bound(file, app string) []corev1.Pod {
	c.t.Helper()
	c.apply(file)
	var pods corev1.PodList
	eventually(c.t, 60*time.Second, "the Pods of "+app+" are bound", func() bool {
		c.do(http.MethodGet, "/api/v1/namespaces/shop/pods?labelSelector=app%3D"+app, nil, &pods)
		bound := 0
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName != "" {
				bound++
			}
		}
		return bound == 3
	})
	return pods.Items
}

// serveTLS runs a server with a certificate that takes its endpoints from the cluster and
// asks clients for certificates, and returns it with the files of a client.
func (c *cluster) serveTLS(leaf identitytest.Leaf, more string) (*server.Server, identity.Files) {
	t := c.t
	t.Helper()
	ca, dir := identitytest.NewCA(t), t.TempDir()
	files, own := ca.Write(dir, leaf), filepath.Join(dir, "client")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	client := ca.Write(own, identitytest.Leaf{DNS: []string{"front.example"}})
	return serve(t, fmt.Sprintf("xds: {listen: \"127.0.0.1:0\", tls: {cert: %s, key: %s, client_ca: %s}}\nadmin: {listen: \"127.0.0.1:0\"}\nstop_spread: 0s\nstate_dir: %s\n"+
		"discovery: {kubernetes: {kubeconfig: %s, selector: %s}}\n%s",
		files.Cert, files.Key, files.ClientCA, filepath.Join(dir, "state"), c.kubeconfig(c.tokenOf()), balanced, more)), client
}

// serve runs a server with a configuration until the test ends.
func serve(t *testing.T, text string) *server.Server {
	t.Helper()
	cfg, _, err := config.Decode("isobar.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	listeners, err := listen.All(t.Context(), &cfg.Fixed)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(cfg, listeners, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// demandOf returns the requests per second that the clients of a locality want to send, by
// the plan.
func demandOf(t *testing.T, s *server.Server, service, from string) float64 {
	t.Helper()
	var v admin.PlanView
	if err := json.Unmarshal([]byte(get(t, "http://"+s.AdminAddress()+"/v1/plan?service="+service)), &v); err != nil || len(v.Services) == 0 {
		return 0
	}
	for _, source := range v.Services[0].Sources {
		if source.Source.String() == from {
			return source.Demand
		}
	}
	return 0
}

// runEnvoy starts an Envoy that ends with the test.
func runEnvoy(t *testing.T, c envoy.Config) *envoy.Process {
	t.Helper()
	c.Path, c.Dir = envoyPath, t.TempDir()
	var log bytes.Buffer
	c.Log = &log
	e, err := envoy.Start(t.Context(), c)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, log.String(), c.Bootstrap)
	}
	t.Cleanup(func() {
		e.Kill()
		if t.Failed() {
			t.Logf("Envoy wrote, at its end:\n%s", log.Bytes()[max(0, log.Len()-3000):])
		}
	})
	if err := e.AwaitReady(t.Context(), 30*time.Second); err != nil {
		t.Fatalf("%v\n%s\n%s", err, log.String(), c.Bootstrap)
	}
	return e
}

// received returns how many requests the endpoints of each locality got from an Envoy.
func received(t *testing.T, e *envoy.Process, cluster string) map[string]int {
	t.Helper()
	data, err := e.Get(t.Context(), "/clusters?format=json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Clusters []struct {
			Name  string `json:"name"`
			Hosts []struct {
				Stats []struct {
					Name  string `json:"name"`
					Value string `json:"value"`
				} `json:"stats"`
				Locality struct {
					Region string `json:"region"`
					Zone   string `json:"zone"`
				} `json:"locality"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, c := range all.Clusters {
		if c.Name != cluster {
			continue
		}
		for _, h := range c.Hosts {
			for _, s := range h.Stats {
				if s.Name == "rq_total" && s.Value != "" { // none is left out
					n, err := strconv.Atoi(s.Value)
					if err != nil {
						t.Fatal(err)
					}
					out[h.Locality.Region+"/"+h.Locality.Zone] += n
				}
			}
		}
	}
	return out
}

// callsTo returns a function that sends one request through an Envoy.
func callsTo(t *testing.T, address string) func() error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
