package kubernetes_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
	"github.com/isobar-xds/isobar/internal/identity"
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
					text = strings.Replace(text, "  group: isobar\n", "  group: isobar\n  name: isobar-0\n", 1) // the host name of a Pod
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

// install has helm install the chart, or upgrade it.
func (c *cluster) install(values string, more ...string) {
	c.t.Helper()
	args := []string{
		"upgrade", "--install", "isobar", chart, "--namespace", "isobar", "--kubeconfig", c.kubeconfig(adminToken), "-f", chart + "/ci/" + values,
	}
	if out, err := helm(c.t, append(args, more...)...); err != nil {
		c.t.Fatal(out, err)
	}
}

// TestChartGrows: helm installs the chart, upgrades it from one replica to three, which
// Kubernetes accepts, and removes it but for the custom resources and what users wrote.
func TestChartGrows(t *testing.T) {
	c, _ := installed(t, "insecure-values.yaml")
	if err := c.policy("checkout", `{"targetRefs": [{"kind": "Service", "name": "checkout"}]}`); err != nil {
		t.Fatal(err)
	}
	c.install("insecure-values.yaml", "--set", "replicas=3")
	const path = "/apis/apps/v1/namespaces/isobar/statefulsets/isobar"
	var stateful appsv1.StatefulSet
	c.do(http.MethodGet, path, nil, &stateful)
	if *stateful.Spec.Replicas != 3 {
		t.Errorf("%d replicas", *stateful.Spec.Replicas)
	}
	if out, err := helm(t, "uninstall", "isobar", "--namespace", "isobar", "--kubeconfig", c.kubeconfig(adminToken)); err != nil {
		t.Fatal(out, err)
	}
	if code := codeOf(c.request(adminToken, http.MethodGet, path, nil, nil)); code != http.StatusNotFound {
		t.Errorf("the StatefulSet: %d", code)
	}
	c.do(http.MethodGet, policies+"/checkout", nil, nil)
}

// installed installs the chart in a cluster of three zones, and waits for its custom
// resources.
func installed(t *testing.T, values string, more ...string) (*cluster, *kubelet) {
	t.Helper()
	c, k := newZonesWith(t, func(c *cluster) {
		c.namespace("isobar")
		c.namespace("pay")
		c.namespace("shop")
		c.install(values, more...)
	})
	eventually(t, 30*time.Second, "the custom resources", func() bool {
		return c.request(adminToken, http.MethodGet, policies, nil, nil) == nil && c.request(adminToken, http.MethodGet, states, nil, nil) == nil
	})
	return c, k
}

// member is a Pod of the chart as a process.
type member struct {
	t          *testing.T
	name       string
	xds, admin string // addresses
	peers      string
	program    string
	args       []string
	process    *exec.Cmd
	log        bytes.Buffer
}

// members makes a process of each Pod of the chart: the arguments of its container, the
// configuration of its ConfigMap with files and addresses of the test, and the
// permissions of its service account. It starts none.
func (c *cluster) members(xds, replicas identity.Files) []*member {
	t := c.t
	t.Helper()
	var stateful appsv1.StatefulSet
	c.do(http.MethodGet, "/apis/apps/v1/namespaces/isobar/statefulsets/isobar", nil, &stateful)
	var file corev1.ConfigMap
	c.do(http.MethodGet, "/api/v1/namespaces/isobar/configmaps/isobar", nil, &file)
	args := stateful.Spec.Template.Spec.Containers[0].Args
	if len(args) == 0 || args[len(args)-1] != "/etc/isobar/isobar.yaml" {
		t.Fatalf("arguments %q", args)
	}
	dir := t.TempDir()
	program, token := buildIsobar(t), filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("secret", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	out := make([]*member, *stateful.Spec.Replicas)
	kubeconfig := c.kubeconfig(c.tokenOf())
	replace := []string{
		"/etc/isobar-tls/tls.crt", xds.Cert, "/etc/isobar-tls/tls.key", xds.Key, "/etc/isobar-tls/ca.crt", xds.ClientCA, "/etc/isobar-token/token", token,
		"/etc/isobar-replica-tls/tls.crt", replicas.Cert, "/etc/isobar-replica-tls/tls.key", replicas.Key, "/etc/isobar-replica-tls/ca.crt", replicas.ClientCA,
		"  kubernetes:\n", "  kubernetes:\n    kubeconfig: " + kubeconfig + "\n",
		"kubernetes: {lease: isobar}", "kubernetes: {lease: isobar, namespace: isobar, kubeconfig: " + kubeconfig + "}",
	}
	for i := range out {
		m := &member{t: t, name: fmt.Sprintf("isobar-%d", i), xds: freeAddress(t), admin: freeAddress(t), peers: freeAddress(t), program: program}
		out[i] = m
		replace = append(replace, fmt.Sprintf("%s.isobar-replicas.isobar.svc:18001", m.name), m.peers)
	}
	for _, m := range out {
		own := slices.Concat(replace, []string{
			"/var/lib/isobar", filepath.Join(dir, m.name), "0.0.0.0:18000", m.xds, "0.0.0.0:18001", m.peers, "0.0.0.0:18080", m.admin,
			"  group: isobar\n", "  group: isobar\n  name: " + m.name + "\n",
		})
		path := filepath.Join(dir, m.name+".yaml")
		if err := os.WriteFile(path, []byte(strings.NewReplacer(own...).Replace(file.Data["isobar.yaml"])), 0o600); err != nil {
			t.Fatal(err)
		}
		m.args = append(slices.Clone(args[:len(args)-1]), path)
	}
	return out
}

// start starts the process, which ends with the test.
func (m *member) start() {
	m.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(m.t.Context()), m.program, m.args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = &m.log
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.process = cmd
	m.t.Cleanup(func() {
		if m.process == cmd {
			m.stop()
		}
		if m.t.Failed() {
			m.t.Logf("%s wrote\n%s", m.name, m.log.String())
		}
	})
}

// stop ends the process as a kubelet does.
func (m *member) stop() {
	m.t.Helper()
	cmd := m.process
	m.process = nil
	if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
		m.t.Errorf("%s: %v", m.name, err)
	}
}

func (m *member) kill() {
	m.t.Helper()
	cmd := m.process
	m.process = nil
	if err := cmd.Process.Kill(); err != nil {
		m.t.Fatal(err)
	}
	_ = cmd.Wait()
}

// get reads from the admin interface.
func (m *member) get(path string, into any) error { return m.ask(http.MethodGet, path, "", into) }

func (m *member) post(path, body string) error { return m.ask(http.MethodPost, path, body, nil) }

// endpoints counts those of a service that are in force.
func (m *member) endpoints(service string) int {
	var o isobar.Object
	if m.get("/v1/services/"+service, &o) != nil {
		return 0
	}
	n := 0
	for i := range o.Service.Localities {
		for _, e := range o.Service.Localities[i].Endpoints {
			if e.Health == isobar.Healthy {
				n++
			}
		}
	}
	return n
}

func (m *member) ask(method, path, body string, into any) error {
	req, err := http.NewRequestWithContext(context.WithoutCancel(m.t.Context()), method, "https://"+m.admin+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+strings.Repeat("secret", 8))
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", resp.Status, data)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}

// TestNewUser goes the way of the documentation: the chart, two Services, one policy with
// mode Full, and gRPC clients. The container's arguments run as a process, with the
// configuration of the chart and the permissions of its service account. Each mistake on
// the way gets a message that names what to write.
func TestNewUser(t *testing.T) {
	began := time.Now()
	c, k := installed(t, "existing-secret-values.yaml", "--set", "config.tick=1s,config.report_interval=1s")
	k.programs = newPrograms(t)
	c.deploy("shop", "checkout", 6)
	c.deploy("shop", "cart", 3)
	if err := c.policy("shop", `{"targetRefs": [{"kind": "Service", "name": "checkout"}, {"kind": "Service", "name": "cart"}], "mode": "Full"}`); err != nil {
		t.Fatal(err)
	}
	ca := identitytest.NewCA(t)
	client := ca.Write(t.TempDir(), identitytest.Leaf{DNS: []string{"web.example"}})
	m := c.members(ca.Write(t.TempDir(), identitytest.Leaf{}), identity.Files{})[0]
	m.start()
	eventually(t, 30*time.Second, "the policy is in force for both Services", func() bool {
		var p v1alpha1.LoadBalancingPolicy
		c.do(http.MethodGet, policies+"/shop", nil, &p)
		for _, a := range p.Status.Ancestors {
			if !meta.IsStatusConditionTrue(a.Conditions, "Programmed") {
				return false
			}
		}
		return len(p.Status.Ancestors) == 2
	})
	load := callersOf(t, m.xds, "checkout.shop:80", []string{"a", "b", "c"}, 20, &client)
	more := callersOf(t, m.xds, "cart.shop:80", []string{"a", "b", "c"}, 20, &client)
	var v admin.PlanView
	eventually(t, time.Minute, "both are balanced by the load of their clients", func() bool {
		if m.get("/v1/plan", &v) != nil || len(v.Services) != 2 {
			return false
		}
		for i := range v.Services {
			if s := &v.Services[i]; s.Mode != isobar.ModeFull || len(s.Sources) != 3 || s.Coverage < 0.99 {
				return false
			}
		}
		return true
	})
	took := time.Since(began)
	<-time.After(2 * time.Second)
	load.stop()
	more.stop()
	failed, errs := load.failures()
	others, moreErrs := more.failures()
	t.Logf("balanced %s after the chart was installed into a new cluster; %d requests, %d failed",
		took.Round(time.Second), load.sent.Load()+more.sent.Load(), failed+others)
	if failed+others > 0 {
		t.Error(errs, moreErrs)
	}
	if found := c.analyze(&kubernetes.Config{Cluster: kubernetes.Cluster{Policies: true}}); found != "[]" {
		t.Errorf("isobar kubernetes analyze finds %s", found)
	}

	// The mistakes: a Node without a zone, a wrong port, a second policy, less permissions.
	c.do(http.MethodPatch, "/api/v1/nodes/node-a", map[string]any{"metadata": map[string]any{"labels": map[string]any{corev1.LabelTopologyZone: nil}}}, nil)
	for name, spec := range map[string]string{
		"port": `{"targetRefs": [{"kind": "Service", "name": "cart", "sectionName": "grcp"}]}`, "second": `{"targetRefs": [{"kind": "Service", "name": "checkout"}]}`,
	} {
		if err := c.policy(name, spec); err != nil {
			t.Fatal(err)
		}
	}
	c.states("port", map[string]string{"ResolvedRefs": "PortNotFound", "Programmed": "PortNotFound"})
	if got := c.states("second", map[string]string{"Accepted": "Conflicted", "Programmed": "Conflicted"}); !strings.Contains(got, "delete one of the two") {
		t.Error(got)
	}
	const role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/isobar-isobar"
	c.do(http.MethodPatch, role, map[string]any{"rules": []any{map[string]any{
		"apiGroups": []string{"discovery.k8s.io"}, "resources": []string{"endpointslices"}, "verbs": []string{"list", "watch"},
	}}}, nil)
	found := c.analyze(&kubernetes.Config{Cluster: kubernetes.Cluster{Policies: true}})
	t.Logf("the messages of the mistakes: %s", found)
	for _, want := range []string{
		"label it with topology.kubernetes.io/zone, or set default_locality", "write one of grpc as sectionName", "policy shop is older and has the same target: delete one of the two",
		`it may not list services: add {apiGroups: [""], resources: [services], verbs: [list]} to a ClusterRole`,
	} {
		if !strings.Contains(strings.ReplaceAll(found, `\"`, `"`), want) {
			t.Errorf("isobar kubernetes analyze does not say %q: %s", want, found)
		}
	}
}

// analyze returns what isobar kubernetes analyze finds in the cluster, in JSON.
func (c *cluster) analyze(cfg *kubernetes.Config) string {
	c.t.Helper()
	cfg.Kubeconfig = c.kubeconfig(adminToken)
	analysis, err := kubernetes.NewAnalysis(cfg, "isobar/isobar")
	if err != nil {
		c.t.Fatal(err)
	}
	if unread, err := analysis.ReadCluster(c.t.Context()); err != nil || len(unread) > 0 {
		c.t.Fatal(unread, err)
	}
	found := analysis.Findings()
	if len(found) == 0 {
		return "[]"
	}
	text, err := json.Marshal(found)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}
