package kubernetes_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"
	corev1 "k8s.io/api/core/v1"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/server"
)

// environment expands the variables of a container as kubelets do.
func environment(t *testing.T, pod *corev1.Pod) map[string]string {
	t.Helper()
	label := regexp.MustCompile(`^metadata\.labels\['(.+)'\]$`)
	out := map[string]string{}
	for _, e := range pod.Spec.Containers[0].Env {
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
	c.apply("examples/kubernetes/grpc-client.yaml")
	var pods corev1.PodList
	eventually(t, 60*time.Second, "the Pods of the client are bound", func() bool {
		c.do(http.MethodGet, "/api/v1/namespaces/shop/pods?labelSelector=app%3Dfront", nil, &pods)
		bound := 0
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName != "" {
				bound++
			}
		}
		return bound == 3
	})

	ca, dir := identitytest.NewCA(t), t.TempDir()
	files, own := ca.Write(dir, identitytest.Leaf{}), filepath.Join(dir, "client")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	client := ca.Write(own, identitytest.Leaf{DNS: []string{"front.example"}})
	text := fmt.Sprintf("xds: {listen: \"127.0.0.1:0\", tls: {cert: %s, key: %s, client_ca: %s}}\nadmin: {listen: \"127.0.0.1:0\"}\nstop_spread: 0s\nstate_dir: %s\n"+
		"discovery: {kubernetes: {kubeconfig: %s, selector: %s}}\n", files.Cert, files.Key, files.ClientCA, filepath.Join(dir, "state"), c.kubeconfig(c.tokenOf()), balanced)
	s := serve(t, text)

	for i := range pods.Items {
		pod := &pods.Items[i]
		bootstrap := strings.NewReplacer("isobar.isobar.svc:18000", s.XDSAddress(), "/etc/isobar-client/ca.crt", client.ClientCA,
			"/etc/isobar-client/tls.crt", client.Cert, "/etc/isobar-client/tls.key", client.Key).Replace(environment(t, pod)["GRPC_XDS_BOOTSTRAP_CONFIG"])
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

// serve runs a server with a configuration until the test ends.
func serve(t *testing.T, text string) *server.Server {
	t.Helper()
	cfg, _, err := config.Decode("isobar.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	listeners, err := listen.All(t.Context(), cfg)
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
