package kubernetes_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
)

// manifest is an object of a file of deploy/kubernetes.
type manifest map[string]any

func (m manifest) kind() string { s, _ := m["kind"].(string); return s }

func (m manifest) metadata(field string) string {
	meta, _ := m["metadata"].(map[string]any)
	s, _ := meta[field].(string)
	return s
}

// collections are where objects of a kind are.
var collections = map[string]string{
	"Namespace": "/api/v1/namespaces", "ServiceAccount": "/api/v1/namespaces/NS/serviceaccounts", "Service": "/api/v1/namespaces/NS/services",
	"ConfigMap": "/api/v1/namespaces/NS/configmaps", "StatefulSet": "/apis/apps/v1/namespaces/NS/statefulsets", "Deployment": "/apis/apps/v1/namespaces/NS/deployments",
	"ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "LoadBalancingPolicy": "/apis/isobar.dev/v1alpha1/namespaces/NS/loadbalancingpolicies",
	"PodDisruptionBudget": "/apis/policy/v1/namespaces/NS/poddisruptionbudgets", "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/NS/networkpolicies",
	"Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles", "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/rolebindings",
}

func (m manifest) collection() string {
	return strings.ReplaceAll(collections[m.kind()], "NS", m.metadata("namespace"))
}

// apply creates all objects of a file of the repository, in its order.
func (c *cluster) apply(name string) []manifest {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		c.t.Fatal(err)
	}
	var out []manifest
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var m manifest
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			c.t.Fatal(err)
		}
		c.create(m.collection()+"?fieldValidation=Strict", m)
		out = append(out, m)
	}
}

func (c *cluster) node(name, region, zone string) {
	c.t.Helper()
	c.create("/api/v1/nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelTopologyRegion: region, corev1.LabelTopologyZone: zone},
	}})
}

// TestPermissions: the manifests are ones that a real API server takes, to the last
// field; their permissions are enough and no more, and one that is missing is named.
func TestPermissions(t *testing.T) {
	c := newCluster(t)
	c.apply("deploy/kubernetes/isobar.yaml")
	c.namespace("shop")
	c.node("n1", "us-east1", "us-east1-b")
	token := c.tokenOf()
	for path, want := range map[string]int{
		"/api/v1/services": 0, "/api/v1/nodes": 0, "/apis/discovery.k8s.io/v1/endpointslices": 0,
		"/api/v1/secrets": 403, "/api/v1/pods": 403, "/api/v1/configmaps": 403, "/api/v1/namespaces/isobar/secrets": 403, "/api/v1/endpoints": 403,
		"/api/v1/nodes/n1": 403, "/apis/rbac.authorization.k8s.io/v1/clusterroles": 403, "/apis/coordination.k8s.io/v1/leases": 403,
	} {
		if code := codeOf(c.request(token, http.MethodGet, path, nil, nil)); code != want {
			t.Errorf("GET %s: %d, want %d", path, code, want)
		}
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		if code := codeOf(c.request(token, method, "/api/v1/namespaces/shop/services", service, nil)); code != http.StatusForbidden {
			t.Errorf("%s of a Service: %d, want 403", method, code)
		}
	}
	in := kubernetes.Cluster{Kubeconfig: c.kubeconfig(token)}
	i := watch(t, in)
	i.until(20*time.Second, "it is listed", func(s kubernetes.Status) bool { return s.Listed })

	c.do(http.MethodDelete, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/isobar", nil, nil)
	i = watch(t, in)
	i.until(20*time.Second, "the missing permission is named", func(s kubernetes.Status) bool {
		return strings.Contains(s.Failure, "give the service account list and watch of") && strings.Contains(s.Failure, "by a ClusterRole")
	})
	t.Log(i.status().Failure)

	c.apply("deploy/kubernetes/rbac-namespaces.yaml")
	in.Namespaces = []string{"shop"}
	i = watch(t, in)
	i.until(20*time.Second, "it is listed with the Role", func(s kubernetes.Status) bool { return s.Listed })
	c.do(http.MethodDelete, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/isobar-nodes", nil, nil)
	eventually(t, 20*time.Second, "the API server knows that the permission is gone", func() bool {
		return codeOf(c.request(token, http.MethodGet, "/api/v1/nodes", nil, nil)) == http.StatusForbidden
	})
	i = watch(t, in)
	i.until(20*time.Second, "it is listed without Nodes", func(s kubernetes.Status) bool { return s.Listed })
	if w := i.watchOf("nodes"); w.State != kubernetes.WatchWithout {
		t.Errorf("watch of Nodes: %+v", w)
	}
	in.Namespaces = []string{"pay", "shop"}
	i = watch(t, in)
	i.until(20*time.Second, "the namespace is named", func(s kubernetes.Status) bool {
		return strings.Contains(s.Failure, "by a Role in namespace pay")
	})
	status, err := json.Marshal(i.status())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(string(status))
}
