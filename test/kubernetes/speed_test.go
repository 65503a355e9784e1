package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// buildIsobar builds the program, and returns its path.
func buildIsobar(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "isobar")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/isobar")
	build.Dir = "../.." // of the module of the program
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// assignments is an EDS client that counts the endpoints that it was told.
type assignments struct {
	mu      sync.Mutex
	healthy map[string]int // by service
}

// follow subscribes to services until the test ends.
func follow(t *testing.T, address string, services []string) *assignments {
	t.Helper()
	a := &assignments{healthy: map[string]int{}}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, err := endpointservicev3.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(t.Context(), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	request := &discoveryv3.DiscoveryRequest{
		Node:          &corev3.Node{Id: "speed", Cluster: "web", Locality: &corev3.Locality{Region: "us", Zone: "a"}},
		TypeUrl:       "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
		ResourceNames: services,
	}
	if err := s.Send(request); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			m, err := s.Recv()
			if err != nil {
				return // the test has ended
			}
			a.take(m)
			request.VersionInfo, request.ResponseNonce = m.GetVersionInfo(), m.GetNonce()
			if err := s.Send(request); err != nil && !errors.Is(err, io.EOF) {
				return
			}
		}
	}()
	return a
}

func (a *assignments) take(m *discoveryv3.DiscoveryResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range m.GetResources() {
		var cla endpointv3.ClusterLoadAssignment
		if r.UnmarshalTo(&cla) != nil {
			continue
		}
		n := 0
		for _, l := range cla.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				if e.GetHealthStatus() == corev3.HealthStatus_HEALTHY || e.GetHealthStatus() == corev3.HealthStatus_UNKNOWN {
					n++
				}
			}
		}
		a.healthy[cla.GetClusterName()] = n
	}
}

// count returns the endpoints of a service; of all services if it is empty.
func (a *assignments) count(service string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if service != "" {
		return a.healthy[service]
	}
	all := 0
	for _, n := range a.healthy { //isobar:sorted it adds them up
		all += n
	}
	return all
}

// usage returns the processor time of a process, and its memory in MiB.
func usage(t *testing.T, pid int) (cpu time.Duration, resident float64) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	for _, field := range fields[11:13] { // user and system, in ticks of 10 ms
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		cpu += time.Duration(n) * 10 * time.Millisecond
	}
	pages, err := strconv.Atoi(fields[21])
	if err != nil {
		t.Fatal(err)
	}
	return cpu, float64(pages*os.Getpagesize()) / (1 << 20)
}

// TestSpeed measures what a client sees: 10,000 endpoints in 1,000 Services of a cluster,
// and the time from the acknowledged write of a slice until a client has its endpoints.
func TestSpeed(t *testing.T) {
	const services, each, writes = 1000, 10, 200
	c := newCluster(t)
	c.manyServices(services, each)
	names := make([]string, services)
	for n := range names {
		names[n] = fmt.Sprintf("s%d.shop:80", n)
	}
	xds := freeAddress(t)
	path := c.write("isobar.yaml", fmt.Sprintf("xds: {listen: %q}\nstop_spread: 0s\nstate_dir: %s\ndiscovery: {kubernetes: {kubeconfig: %s, selector: %s}}\n",
		xds, filepath.Join(t.TempDir(), "state"), c.kubeconfig(c.tokenOf()), balanced))
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), buildIsobar(t), "serve", "-c", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(cmd.Process.Kill(), cmd.Wait()) })
	began := time.Now()
	client := follow(t, xds, names)
	eventually(t, 2*time.Minute, "all endpoints at the client", func() bool { return client.count("") == services*each })
	listed := time.Since(began)
	before, resident := usage(t, cmd.Process.Pid)
	t.Logf("%d endpoints in %d Services: at a client %s after the start; the server took %s of CPU and %.0f MiB",
		services*each, services, listed.Round(10*time.Millisecond), before, resident)

	began = time.Now()
	var took []time.Duration
	for n := range writes {
		name := fmt.Sprintf("s%d", n)
		s := slice(name, n, each)
		s.Endpoints = append(s.Endpoints, endpoint(9, n))
		c.do(http.MethodPut, "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/"+name, s, nil)
		at := time.Now()
		eventually(t, 30*time.Second, name, func() bool { return client.count(names[n]) == each+1 })
		took = append(took, time.Since(at))
	}
	after, resident := usage(t, cmd.Process.Pid)
	t.Logf("from the acknowledged write of a slice until a client has its endpoints, %d times: p50 %s, p99 %s; the server took %.0f%% of a core and %.0f MiB",
		writes, quantile(took, 0.5).Round(time.Millisecond), quantile(took, 0.99).Round(time.Millisecond),
		100*(after-before).Seconds()/time.Since(began).Seconds(), resident)
	if p99 := quantile(took, 0.99); p99 > 5*time.Second {
		t.Errorf("p99 %s", p99)
	}
}
