package kubernetes_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// kubelet is scheduler and kubelet for one namespace: it binds Pods to Nodes in turn,
// gives them addresses and makes them ready, and ends those that are deleted after
// their grace.
type kubelet struct {
	c         *cluster
	namespace string
	nodes     []string
	startup   time.Duration // from binding until a Pod is ready
	grace     time.Duration // from the deletion until a Pod is gone
	programs  *programs     // what Pods run; nil = nothing

	mu    sync.Mutex
	next  int                  // number of the next Pod
	pods  map[string]podRecord // by UID
	ready map[string]bool      // addresses of Pods that are ready and not deleted
	gone  map[string]time.Time // addresses of Pods that are gone, and since when
}

type podRecord struct {
	address string
	zone    string // of its Node
	bound   time.Time
	ready   bool
	deleted time.Time
}

// run acts until the test ends.
func (k *kubelet) run() {
	k.pods, k.ready, k.gone = map[string]podRecord{}, map[string]bool{}, map[string]time.Time{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				k.look()
			}
		}
	}()
	k.c.t.Cleanup(func() {
		close(stop)
		<-done
	})
}

// look lists the Pods and does for each what is due.
func (k *kubelet) look() {
	var list corev1.PodList
	if k.c.request(adminToken, http.MethodGet, "/api/v1/namespaces/"+k.namespace+"/pods", nil, &list) != nil {
		return // the API server is away
	}
	now := time.Now()
	var work sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range list.Items {
		pod := &list.Items[i]
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			k.act(pod, now)
		})
	}
	work.Wait()
}

func (k *kubelet) act(pod *corev1.Pod, now time.Time) {
	k.mu.Lock()
	r, known := k.pods[string(pod.UID)]
	if !known {
		r = podRecord{address: fmt.Sprintf("10.128.%d.%d", k.next/250, k.next%250+1), bound: now}
		node := k.nodes[k.next%len(k.nodes)]
		r.zone = "us/" + strings.TrimPrefix(node, "node-")
		k.next++
		k.pods[string(pod.UID)] = r
		k.mu.Unlock()
		k.programs.start(r.address)
		_ = k.c.request(adminToken, http.MethodPost, "/api/v1/namespaces/"+k.namespace+"/pods/"+pod.Name+"/binding", &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
		}, nil) // a Pod that is gone needs no Node
		return
	}
	k.mu.Unlock()
	path := "/api/v1/namespaces/" + k.namespace + "/pods/" + pod.Name
	switch {
	case pod.DeletionTimestamp != nil && r.deleted.IsZero():
		r.deleted = now
		k.mu.Lock()
		delete(k.ready, r.address)
		k.mu.Unlock()
	case pod.DeletionTimestamp != nil && now.Sub(r.deleted) >= k.grace:
		k.programs.end(r.address)
		if k.c.request(adminToken, http.MethodDelete, path+"?gracePeriodSeconds=0", nil, nil) == nil {
			k.mu.Lock()
			k.gone[r.address] = time.Now()
			k.mu.Unlock()
		}
	case pod.DeletionTimestamp == nil && !r.ready && now.Sub(r.bound) >= k.startup:
		r.ready = k.setReady(pod, r.address, true) == nil
		k.mu.Lock()
		k.ready[r.address] = r.ready
		k.mu.Unlock()
	}
	k.mu.Lock()
	k.pods[string(pod.UID)] = r
	k.mu.Unlock()
}

// lose deletes a Node with its Pods; new ones go to the other Nodes.
func (k *kubelet) lose(node string) {
	k.c.t.Helper()
	k.mu.Lock()
	k.nodes = slices.DeleteFunc(slices.Clone(k.nodes), func(n string) bool { return n == node })
	k.mu.Unlock()
	k.c.do(http.MethodDelete, "/api/v1/nodes/"+node, nil, nil)
	var list corev1.PodList
	k.c.do(http.MethodGet, "/api/v1/namespaces/"+k.namespace+"/pods?fieldSelector=spec.nodeName%3D"+node, nil, &list)
	for n := range list.Items {
		k.c.do(http.MethodDelete, "/api/v1/namespaces/"+k.namespace+"/pods/"+list.Items[n].Name+"?gracePeriodSeconds=0", nil, nil)
	}
}

// setReady writes the status of a Pod.
func (k *kubelet) setReady(pod *corev1.Pod, address string, ready bool) error {
	condition := corev1.ConditionFalse
	if ready {
		condition = corev1.ConditionTrue
	}
	status := map[string]any{"status": map[string]any{
		"phase": "Running", "podIP": address, "podIPs": []any{map[string]string{"ip": address}},
		"conditions": []any{map[string]any{"type": "Ready", "status": string(condition)}, map[string]any{"type": "ContainersReady", "status": string(condition)}},
	}}
	return k.c.request(adminToken, http.MethodPatch, "/api/v1/namespaces/"+k.namespace+"/pods/"+pod.Name+"/status", status, nil)
}

// addresses returns those of ready Pods, and when those that are gone went.
func (k *kubelet) addresses() (ready map[string]bool, gone map[string]time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ready, gone = map[string]bool{}, map[string]time.Time{}
	for a, is := range k.ready {
		if is {
			ready[a] = true
		}
	}
	maps.Copy(gone, k.gone)
	return ready, gone
}

// kill ends a Pod without grace, as the loss of its machine does, and returns its address.
func (k *kubelet) kill(pod *corev1.Pod) string {
	k.c.t.Helper()
	k.programs.kill(pod.Status.PodIP)
	k.c.do(http.MethodDelete, "/api/v1/namespaces/"+k.namespace+"/pods/"+pod.Name+"?gracePeriodSeconds=0", nil, nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.ready, pod.Status.PodIP)
	k.gone[pod.Status.PodIP] = time.Now()
	return pod.Status.PodIP
}

// readyZones counts the Pods that are ready by locality.
func (k *kubelet) readyZones() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]int{}
	for _, r := range k.pods {
		if k.ready[r.address] {
			out[r.zone]++
		}
	}
	return out
}

// deploy makes a Service and a Deployment of a name.
func (c *cluster) deploy(namespace, name string, replicas int32) {
	c.t.Helper()
	labels := map[string]string{"app": name}
	c.create("/api/v1/namespaces/"+namespace+"/services", &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"isobar.dev/balance": "true"}},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Name: "grpc", Port: 80, TargetPort: intstr.FromString("grpc")}}},
	})
	surge, unavailable := intstr.FromString("25%"), intstr.FromString("10%")
	c.create("/apis/apps/v1/namespaces/"+namespace+"/deployments", &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: "example.invalid/main:1", Ports: []corev1.ContainerPort{{Name: "grpc", ContainerPort: 8080}},
				}}},
			},
		},
	})
}

func (c *cluster) patchDeployment(namespace, name string, spec map[string]any) {
	c.t.Helper()
	c.do(http.MethodPatch, "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+name, map[string]any{"spec": spec}, nil)
}

// newZones makes three zones with a Node each, a namespace shop and its kubelet, in a
// cluster with the manifests of Isobar.
func newZones(t *testing.T) (c *cluster, k *kubelet) {
	t.Helper()
	return newZonesWith(t, func(c *cluster) { c.apply("deploy/kubernetes/isobar.yaml") })
}

// newZonesWith is newZones with other objects of Isobar.
func newZonesWith(t *testing.T, install func(*cluster)) (c *cluster, k *kubelet) {
	t.Helper()
	c = newCluster(t)
	install(c)
	c.namespace("shop")
	k = &kubelet{c: c, namespace: "shop", startup: 200 * time.Millisecond, grace: 5 * time.Second}
	for _, zone := range []string{"a", "b", "c"} {
		c.node("node-"+zone, "us", zone)
		k.nodes = append(k.nodes, "node-"+zone)
	}
	k.run()
	return c, k
}
