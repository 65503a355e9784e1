package kubernetes_test

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
)

// TestScale lists 10,000 endpoints in 1,000 Services, and measures the time from the
// acknowledged write of a slice until its endpoints are in force.
func TestScale(t *testing.T) {
	const services, each, writes = 1000, 10, 100
	c := newCluster(t)
	c.manyServices(services, each)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	i := watch(t, kubernetes.Cluster{Kubeconfig: c.kubeconfig(c.tokenOf()), Selector: balanced})
	eventually(t, time.Minute, "all services are in force", func() bool { return len(i.registry.List()) == services })
	listed := time.Since(began)
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d endpoints in %d Services: in force after %s, with %.0f MiB more on the heap",
		services*each, services, listed.Round(10*time.Millisecond), float64(after.HeapAlloc-before.HeapAlloc)/(1<<20))

	var took []time.Duration
	for n := range writes {
		name := fmt.Sprintf("s%d", n)
		s := slice(name, n, each)
		s.Endpoints = append(s.Endpoints, endpoint(9, n))
		c.do(http.MethodPut, "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/"+name, s, nil)
		at := time.Now()
		eventually(t, 10*time.Second, name, func() bool { return len(i.endpoints(name+".shop:80")) == each+1 })
		took = append(took, time.Since(at))
	}
	p50, p99 := quantile(took, 0.5), quantile(took, 0.99)
	t.Logf("from the acknowledged write of a slice until it is in force: p50 %s, p99 %s", p50.Round(time.Millisecond), p99.Round(time.Millisecond))
	if p99 > time.Second {
		t.Errorf("p99 %s, want at most 1 s", p99)
	}
}

func parallel(n int, do func(i int)) {
	var work sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	work.Wait()
}

func slice(service string, n, endpoints int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("grpc"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for e := range endpoints {
		s.Endpoints = append(s.Endpoints, endpoint(n/250, n%250*20+e))
	}
	return s
}

func endpoint(net, n int) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 100+net, n/250, n%250+1)}, Zone: new("a"), NodeName: new("n1"),
	}
}

// manyServices installs what Isobar may do, and makes Services s0, s1, … with so many
// endpoints each, all in us/a.
func (c *cluster) manyServices(services, each int) {
	c.t.Helper()
	c.apply("deploy/kubernetes/isobar.yaml")
	c.namespace("shop")
	c.node("n1", "us", "a")
	parallel(services, func(n int) {
		name := fmt.Sprintf("s%d", n)
		c.create("/api/v1/namespaces/shop/services", &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"isobar.dev/balance": "true"}},
			Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "grpc", Port: 80}}},
		})
		c.create("/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", slice(name, n, each))
	})
}
