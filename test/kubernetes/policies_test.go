package kubernetes_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
)

const policies = "/apis/isobar.dev/v1alpha1/namespaces/shop/loadbalancingpolicies"

// defineResources creates the CRDs and waits until the API server has their resources.
func (c *cluster) defineResources() {
	c.t.Helper()
	files, err := filepath.Glob("../../deploy/kubernetes/crds/*.yaml")
	if err != nil || len(files) == 0 {
		c.t.Fatal("no CRDs", err)
	}
	for _, file := range files {
		c.apply(strings.TrimPrefix(filepath.ToSlash(file), "../../"))
	}
	eventually(c.t, 30*time.Second, "the API server has the custom resources", func() bool {
		return c.request(adminToken, http.MethodGet, policies, nil, nil) == nil
	})
}

// policy is one for Services of the namespace shop, from JSON.
func (c *cluster) policy(name, spec string) error {
	body := json.RawMessage(`{"apiVersion": "isobar.dev/v1alpha1", "kind": "LoadBalancingPolicy", "metadata": {"name": "` + name + `"}, "spec": ` + spec + `}`)
	return c.request(adminToken, http.MethodPost, policies+"?fieldValidation=Strict", body, nil)
}

// TestPolicyRules: the API server accepts the CRD, the example, and a policy with all
// lists at their limits; it says of each mistake within a policy what to write.
func TestPolicyRules(t *testing.T) {
	c := newCluster(t)
	c.create("/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	c.defineResources()
	c.apply("examples/kubernetes/policy.yaml")
	var targets, zones []string
	for letter := range strings.SplitSeq("abcdefghijklmnop", "") {
		targets = append(targets, `{"kind": "Service", "name": "`+letter+strings.Repeat("x", 62)+`", "sectionName": "grpc"}`)
		for _, n := range []string{"1", "2", "3", "4"} {
			zones = append(zones, `{"zone": "`+letter+n+strings.Repeat("x", 61)+`", "maxRate": 1}`)
		}
	}
	all, few := strings.Join(targets, ","), `[{"kind": "Service", "name": "checkout"}]`
	for name, spec := range map[string]string{
		"full": `{"targetRefs": [` + all + `], "mode": "Bounded", "maxShift": 30, "capacity": {"maxRatePerEndpoint": 100, "concurrencyPerEndpoint": 8, "localities": [` + strings.Join(zones, ",") + `]},
			"healthCheck": {"http": {"path": "/health"}, "interval": "1m30s", "timeout": "250ms"}, "failover": {"threshold": 70}}`,
		"tcp":  `{"targetRefs": ` + few + `, "healthCheck": {"tcp": {}}}`,
		"fast": `{"targetRefs": ` + few + `, "healthCheck": {"grpc": {}, "interval": "500ms"}}`,
	} {
		if err := c.policy(name, spec); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for spec, want := range map[string]string{
		`{"targetRefs": []}`: "should have at least 1 items",
		`{"targetRefs": [` + all + `, {"kind": "Service", "name": "checkout"}]}`:                                              "must have at most 16 items",
		`{"targetRefs": [{"kind": "Deployment", "name": "checkout"}]}`:                                                        `supported values: \"Service\"`,
		`{"targetRefs": [{"kind": "Service", "name": "checkout"}, {"kind": "Service", "name": "checkout"}]}`:                  "a target occurs twice: name each Service, or port of a Service, once",
		`{"targetRefs": ` + few + `, "mode": "full"}`:                                                                         `supported values: \"Observe\", \"Bounded\", \"Auto\", \"Full\"`,
		`{"targetRefs": ` + few + `, "maxShift": 10}`:                                                                         "maxShift has no effect in this mode: set mode to Bounded, or remove maxShift",
		`{"targetRefs": ` + few + `, "mode": "Bounded", "maxShift": 0}`:                                                       "should be greater than or equal to 1",
		`{"targetRefs": ` + few + `, "healthCheck": {"interval": "1s"}}`:                                                      "give one of grpc, http and tcp",
		`{"targetRefs": ` + few + `, "healthCheck": {"tcp": {}, "http": {"path": "/"}}}`:                                      "give one of grpc, http and tcp",
		`{"targetRefs": ` + few + `, "healthCheck": {"tcp": {}, "interval": "1s", "timeout": "2s"}}`:                          "timeout is longer than interval",
		`{"targetRefs": ` + few + `, "healthCheck": {"tcp": {}, "interval": "99ms"}}`:                                         "interval has to be between 100ms and 1h",
		`{"targetRefs": ` + few + `, "healthCheck": {"tcp": {}, "timeout": "1ms"}}`:                                           "timeout has to be 10ms or more",
		`{"targetRefs": ` + few + `, "healthCheck": {"tcp": {}, "interval": "5"}}`:                                            "should match",
		`{"targetRefs": ` + few + `, "healthCheck": {"http": {"path": "health"}}}`:                                            "should match",
		`{"targetRefs": ` + few + `, "capacity": {"concurrencyPerEndpoint": 8}}`:                                              "concurrencyPerEndpoint says nothing without a rate",
		`{"targetRefs": ` + few + `, "capacity": {"localities": [{"zone": "a", "maxRate": 0}]}}`:                              "should be greater than or equal to 1",
		`{"targetRefs": ` + few + `, "capacity": {"localities": [{"zone": "a", "maxRate": 1}, {"zone": "a", "maxRate": 2}]}}`: "a zone occurs twice",
		`{"targetRefs": ` + few + `, "failover": {"threshold": 101}}`:                                                         "should be less than or equal to 100",
		`{"targetRefs": ` + few + `, "modus": "Full"}`:                                                                        `unknown field \"spec.modus\"`,
	} {
		if err := c.policy("wrong", spec); err == nil || codeOf(err)/100 != 4 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
		_ = c.request(adminToken, http.MethodDelete, policies+"/wrong", nil, nil)
	}
}

// states waits until the conditions of a policy that are false have these reasons, and
// returns their messages.
func (c *cluster) states(name string, want map[string]string) (messages string) {
	c.t.Helper()
	var p v1alpha1.LoadBalancingPolicy
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the last status of %s: %+v", name, p.Status)
		}
	}()
	eventually(c.t, 20*time.Second, "the conditions of "+name, func() bool {
		c.do(http.MethodGet, policies+"/"+name, nil, &p)
		if len(p.Status.Ancestors) != 1 || len(p.Status.Ancestors[0].Conditions) != 3 {
			return false
		}
		got := map[string]string{}
		messages = ""
		for _, cond := range p.Status.Ancestors[0].Conditions {
			if cond.Status != metav1.ConditionTrue {
				got[cond.Type] = cond.Reason
				messages += cond.Message + "\n"
			}
			if cond.ObservedGeneration != p.Generation {
				return false
			}
		}
		return maps.Equal(got, want)
	})
	return messages
}

// TestPolicies: a policy makes Isobar balance a Service that nothing else selects, by the
// permissions of the manifests alone; each mistake gets a status that names the fix;
// kubectl prints the states.
func TestPolicies(t *testing.T) {
	c, _ := newZones(t)
	c.defineResources()
	c.deploy("shop", "checkout", 3)
	c.deploy("shop", "cart", 3)
	c.do(http.MethodPatch, "/api/v1/namespaces/shop/services/checkout", map[string]any{"metadata": map[string]any{"labels": map[string]any{"isobar.dev/balance": nil}}}, nil)
	c.node("node-x", "", "")
	c.create("/api/v1/namespaces/shop/services", map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]string{"name": "lost"},
		"spec": map[string]any{"clusterIP": "None", "ports": []any{map[string]any{"name": "grpc", "port": 80}}},
	})
	s := slice("lost", 0, 1)
	s.Endpoints[0].Zone, s.Endpoints[0].NodeName = nil, new("node-x")
	c.create("/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", s)
	create := func(name, spec string) {
		t.Helper()
		if err := c.policy(name, spec); err != nil {
			t.Fatal(err)
		}
	}
	create("checkout", `{"targetRefs": [{"kind": "Service", "name": "checkout", "sectionName": "grpc"}], "mode": "Full", "capacity": {"maxRatePerEndpoint": 100}}`)
	i := watch(t, kubernetes.Cluster{Kubeconfig: c.kubeconfig(c.tokenOf()), Selector: balanced, Policies: true})
	eventually(t, 60*time.Second, "both Services are served", func() bool {
		return len(i.endpoints("checkout.shop:80")) == 3 && len(i.endpoints("cart.shop:80")) == 3
	})
	o, err := i.registry.Get("checkout.shop:80")
	if err != nil || o.Service.Mode.String() != "full" || o.Service.Localities[0].Endpoints[0].MaxRate != 100 {
		t.Errorf("in force is %+v, %v", o.Service, err)
	}
	c.states("checkout", map[string]string{})
	<-time.After(1100 * time.Millisecond) // ages count in seconds
	create("second", `{"targetRefs": [{"kind": "Service", "name": "checkout", "sectionName": "grpc"}]}`)
	create("port", `{"targetRefs": [{"kind": "Service", "name": "cart", "sectionName": "grcp"}]}`)
	create("absent", `{"targetRefs": [{"kind": "Service", "name": "chekout"}]}`)
	create("lost", `{"targetRefs": [{"kind": "Service", "name": "lost"}]}`)
	for name, m := range map[string]struct {
		reasons map[string]string
		message string
	}{
		"second": {map[string]string{"Accepted": "Conflicted", "Programmed": "Conflicted"}, "policy checkout is older and has the same target: delete one of the two"},
		"port":   {map[string]string{"ResolvedRefs": "PortNotFound", "Programmed": "PortNotFound"}, "Service cart has no TCP port with the name grcp: write one of grpc as sectionName"},
		"absent": {map[string]string{"ResolvedRefs": "TargetNotFound", "Programmed": "TargetNotFound"}, "namespace shop has no Service chekout with a TCP port"},
		"lost":   {map[string]string{"Programmed": "EndpointsLeftOut"}, "has no zone: label Node node-x with topology.kubernetes.io/zone"},
	} {
		if got := c.states(name, m.reasons); !strings.Contains(got, m.message) {
			t.Errorf("%s: %s, want %q", name, got, m.message)
		}
	}
	analysis, err := kubernetes.NewAnalysis(&kubernetes.Config{Cluster: kubernetes.Cluster{Kubeconfig: c.kubeconfig(adminToken), Policies: true}}, "isobar/isobar")
	if err != nil {
		t.Fatal(err)
	}
	unread, err := analysis.ReadCluster(t.Context())
	found := fmt.Sprint(analysis.Findings())
	for _, want := range []string{"policy checkout is older", "with the name grcp", "no Service chekout", "label Node node-x", "{Node node-x it has no zone"} {
		if !strings.Contains(found, want) || err != nil || len(unread) > 0 {
			t.Errorf("isobar kubernetes analyze finds %s, %v, %v, want %q", found, unread, err, want)
		}
	}
	if strings.Contains(found, "ServiceAccount") {
		t.Errorf("permissions are missing: %s", found)
	}
	t.Logf("kubectl get lbp:\n%s", c.table(policies))
	if got := c.table(policies); !strings.Contains(got, "checkout|Full|True|True|") || !strings.Contains(got, "second|Observe|False|False|") {
		t.Errorf("kubectl prints\n%s", got)
	}
	c.do(http.MethodDelete, policies+"/checkout", nil, nil)
	c.states("second", map[string]string{})
	eventually(t, 10*time.Second, "the younger policy is in force", func() bool {
		o, err := i.registry.Get("checkout.shop:80")
		return err == nil && o.Service.Mode.String() == "observe"
	})

	// Less than what is needed is told with the rule that is missing, and changes nothing.
	role := "/apis/rbac.authorization.k8s.io/v1/clusterroles/isobar"
	var whole map[string]any
	c.do(http.MethodGet, role, nil, &whole)
	rules, _ := whole["rules"].([]any)
	c.do(http.MethodPut, role, map[string]any{"metadata": map[string]string{"name": "isobar"}, "rules": rules[:len(rules)-1]}, nil)
	<-time.After(500 * time.Millisecond)
	create("later", `{"targetRefs": [{"kind": "Service", "name": "cart"}], "mode": "Full"}`)
	i.until(20*time.Second, "the missing permission is named", func(s kubernetes.Status) bool {
		return strings.Contains(s.StatusFailure, "give the service account patch of loadbalancingpolicies/status.isobar.dev")
	})
	if o, err := i.registry.Get("cart.shop:80"); err != nil || o.Service.Mode.String() != "full" {
		t.Errorf("cart is %s, %v", o.Service.Mode, err)
	}
	c.do(http.MethodPut, role, map[string]any{"metadata": map[string]string{"name": "isobar"}, "rules": rules}, nil)
	c.states("later", map[string]string{})
	// The service account writes statuses and nothing else.
	token := c.tokenOf()
	for path, method := range map[string]string{policies + "/later": http.MethodDelete, policies: http.MethodPost} {
		if code := codeOf(c.request(token, method, path, map[string]any{}, nil)); code != http.StatusForbidden {
			t.Errorf("%s %s: %d, want 403", method, path, code)
		}
	}
}

// table returns what kubectl prints, without the ages.
func (c *cluster) table(path string) string {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "https://"+c.address+path, http.NoBody)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	resp, err := c.client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var table metav1.Table
	if err := json.NewDecoder(resp.Body).Decode(&table); err != nil {
		c.t.Fatal(err)
	}
	var out strings.Builder
	for _, d := range table.ColumnDefinitions {
		out.WriteString(d.Name + "|")
	}
	for _, row := range table.Rows {
		out.WriteString("\n")
		for _, cell := range row.Cells {
			text, _ := cell.(string)
			out.WriteString(text + "|")
		}
	}
	return out.String()
}

// TestCRDsAreGenerated: the CRDs and the code of their types are what make crds writes.
func TestCRDsAreGenerated(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bin/kubernetes/controller-gen", "object", "crd", "paths=./internal/discovery/kubernetes/v1alpha1",
		"output:crd:dir="+dir, "output:object:dir="+dir)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		want, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		path := "../../deploy/kubernetes/crds/"
		if filepath.Ext(f.Name()) == ".go" {
			path = "../../internal/discovery/kubernetes/v1alpha1/"
		}
		got, err := os.ReadFile(path + f.Name())
		if err != nil || !bytes.HasSuffix(got, bytes.TrimPrefix(want, []byte("---\n"))) {
			t.Errorf("%s%s is not what make crds writes: %v", path, f.Name(), err)
		}
	}
	if len(files) < 2 {
		t.Errorf("%d files", len(files))
	}
}
