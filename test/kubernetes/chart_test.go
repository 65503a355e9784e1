package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
)

const chart = "../../deploy/helm/isobar"

// helm runs it, and returns what it writes to its standard output.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(servers, "helm"), args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir(), "KUBECONFIG=/nonexistent")
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s%s", err, out.String(), failure.String())
	}
	return out.String(), nil
}

// render returns the objects of the chart with a file of values.
func render(t *testing.T, values string, more ...string) []manifest {
	t.Helper()
	text, err := helm(t, append([]string{"template", "isobar", chart, "--namespace", "isobar", "--kube-version", "1.37.2", "-f", values}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	var out []manifest
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var m manifest
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", values, err)
		}
		if len(m) > 0 {
			out = append(out, m)
		}
	}
}

// TestChartRefuses: values that contradict each other, and a missing tls.mode, are refused.
func TestChartRefuses(t *testing.T) {
	for set, want := range map[string]string{
		"":                                      "mode",
		"tls.mode=none":                         "mode",
		"tls.mode=certManager":                  "name",
		"tls.mode=insecure,x=1":                 "additional properties 'x' not allowed",
		"tls.mode=insecure,config.xds.listen=1": "xds",
	} {
		if _, err := helm(t, "template", "isobar", chart, "--set", set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: %v, want %q", set, err, want)
		}
	}
}

// TestChart: with each file of values the chart passes helm lint, its configuration is
// one that the server takes without a warning, the API server takes every object to the
// last field, and the permissions are enough.
func TestChart(t *testing.T) {
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	c := newCluster(t)
	for _, name := range []string{"isobar", "shop", "pay"} {
		c.create("/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}})
	}
	for _, values := range files {
		t.Run(filepath.Base(values), func(t *testing.T) {
			if out, err := helm(t, "lint", "--strict", chart, "-f", values); err != nil {
				t.Error(out, err)
			}
			objects := render(t, values)
			for _, m := range objects {
				if m.kind() == "ConfigMap" {
					data, _ := m["data"].(map[string]any)
					text, _ := data["isobar.yaml"].(string)
					if _, warnings, err := config.Decode("isobar.yaml", []byte(text)); err != nil || len(warnings) > 0 {
						t.Errorf("%v %v\n%s", err, warnings, text)
					}
				}
				if collections[m.kind()] == "" { // of operators that the cluster does not have
					continue
				}
				path := m.collection()
				if err := c.request(adminToken, http.MethodPost, path+"?dryRun=All&fieldValidation=Strict", m, nil); err != nil {
					t.Errorf("%s %s: %v", m.kind(), m.metadata("name"), err)
				}
			}
		})
	}
}

// TestChartRuns: the container's arguments run as a process, with the configuration of the
// chart and the permissions of its service account: a Service with a policy is balanced.
func TestChartRuns(t *testing.T) {
	c, _ := newZonesWith(t, func(c *cluster) {
		c.namespace("isobar")
		for _, m := range render(t, chart+"/ci/existing-secret-values.yaml") {
			if collections[m.kind()] != "" {
				c.create(m.collection()+"?fieldValidation=Strict", m)
			}
		}
	})
	eventually(t, 30*time.Second, "the custom resource", func() bool { return c.request(adminToken, http.MethodGet, policies, nil, nil) == nil })
	c.deploy("shop", "checkout", 3)
	c.deploy("shop", "cart", 3)
	if err := c.policy("checkout", `{"targetRefs": [{"kind": "Service", "name": "checkout"}], "mode": "Full"}`); err != nil {
		t.Fatal(err)
	}
	var stateful struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	c.do(http.MethodGet, "/apis/apps/v1/namespaces/isobar/statefulsets/isobar", nil, &stateful)
	var file corev1.ConfigMap
	c.do(http.MethodGet, "/api/v1/namespaces/isobar/configmaps/isobar", nil, &file)

	// The files of the container are elsewhere in a process.
	ca, dir := identitytest.NewCA(t), t.TempDir()
	tls := ca.Write(dir, identitytest.Leaf{DNS: []string{"isobar.isobar.svc"}})
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(strings.Repeat("secret", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	xds, admin := freeAddress(t), freeAddress(t)
	text := strings.NewReplacer("/etc/isobar-tls/tls.crt", tls.Cert, "/etc/isobar-tls/tls.key", tls.Key, "/etc/isobar-tls/ca.crt", tls.ClientCA,
		"/etc/isobar-token/token", filepath.Join(dir, "token"), "/var/lib/isobar", filepath.Join(dir, "state"), "0.0.0.0:18000", xds, "0.0.0.0:18080", admin,
		"  kubernetes:\n", "  kubernetes:\n    kubeconfig: "+c.kubeconfig(c.tokenOf())+"\n").Replace(file.Data["isobar.yaml"])
	path := filepath.Join(dir, "isobar.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "isobar")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/isobar-xds/isobar/cmd/isobar").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	args := stateful.Spec.Template.Spec.Containers[0].Args
	if len(args) == 0 || args[len(args)-1] != "/etc/isobar/isobar.yaml" {
		t.Fatalf("arguments %q", args)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, append(args[:len(args)-1:len(args)-1], path)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	c.states("checkout", map[string]string{})
	if got := c.table(policies); !strings.Contains(got, "checkout|Full|True|True|") {
		t.Errorf("kubectl prints\n%s", got)
	}
	analysis, err := kubernetes.NewAnalysis(&kubernetes.Config{Cluster: kubernetes.Cluster{Kubeconfig: c.kubeconfig(adminToken), Policies: true}}, "isobar/isobar")
	if err != nil {
		t.Fatal(err)
	}
	if unread, err := analysis.ReadCluster(t.Context()); err != nil || len(unread) > 0 {
		t.Fatal(unread, err)
	}
	if found, err := json.Marshal(analysis.Findings()); err != nil || string(found) != "null" && string(found) != "[]" {
		t.Errorf("isobar kubernetes analyze finds %s, %v", found, err)
	}
}
