package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/apitest"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// writeText replaces the file.
func (w *heldWorld) writeText(text string) {
	w.t.Helper()
	text = "xds: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\", writable: true}\nstop_spread: 0s\ntick: 1s\nreport_interval: 1s\n" + text
	if err := os.WriteFile(w.path+".new", []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(w.path+".new", w.path); err != nil {
		w.t.Fatal(err)
	}
}

// newKubernetesWorld serves the Services checkout and cart of a cluster.
func newKubernetesWorld(t *testing.T) (w *heldWorld, api *apitest.Server, source string) {
	t.Helper()
	api = apitest.New(t)
	api.Put(apitest.Node("n1", "us", "a"), apitest.Service("shop", "checkout"), apitest.Slice("shop", "checkout-1", "a", "10.1.0.1", "10.1.0.2"),
		apitest.Service("shop", "cart"), apitest.Slice("shop", "cart-1", "a", "10.1.0.3"))
	w = &heldWorld{t: t, path: filepath.Join(t.TempDir(), "isobar.yaml"), kept: store.NewMemory()}
	t.Cleanup(func() { _ = w.kept.Close() })
	source = "discovery: {kubernetes: {kubeconfig: " + api.Kubeconfig() + ", services: [{name: \"checkout.shop:80\", localities: [{locality: us/a, max_rate: 50}]}"
	return w, api, source
}

// TestEndpointsFromKubernetes: the Services of a cluster are served with its endpoints
// and the file's settings, operators see how things stand, and a Service that is gone
// from the cluster goes.
func TestEndpointsFromKubernetes(t *testing.T) {
	t.Parallel()
	w, api, source := newKubernetesWorld(t)
	w.writeText(source + ", {name: \"absent.shop:80\"}]}}\n")
	w.serve()
	w.in("cart.shop:80", "checkout.shop:80")
	var o isobar.Object
	w.read("/v1/services/checkout.shop:80", &o)
	if o.Owner != isobar.OwnerKubernetes || o.Service.Localities[0].MaxRate != 50 || o.Service.Localities[0].Endpoints[1].Address != "10.1.0.2:8080" {
		t.Errorf("in force is %+v", o)
	}
	var state kubernetes.Status
	if code := w.read("/v1/discovery/kubernetes", &state); code != http.StatusOK || !state.Listed || len(state.Services) != 3 {
		t.Errorf("the state is answered with %d, %+v", code, state)
	}
	w.attention(admin.DiscoveryWaiting, "absent.shop:80: its clients get no endpoints: the Kubernetes cluster has no such Service with this port")
	api.Put(apitest.Slice("shop", "cart-1", "nowhere", "10.1.0.3"))
	testhelp.Eventually(t, "an endpoint is left out", func() bool {
		return slices.ContainsFunc(w.status().Attention, func(a admin.Attention) bool { return a.Code == admin.EndpointsLeftOut })
	})
	attends(t, w.status(), admin.EndpointsLeftOut)
	w.attention(admin.EndpointsLeftOut, "cart.shop:80: 1 endpoint of the Kubernetes cluster is left out: endpoint 10.1.0.3 is in zone nowhere, whose region is not known")
	api.Remove(apitest.Service("shop", "cart"))
	w.in("checkout.shop:80")
	w.writeText("services: []\ndiscovery: {}\n")
	w.Reread()
	w.in()
}

// TestPoliciesOfKubernetes: a policy of the cluster decides the mode of a service, and
// operators see where one is not in force.
func TestPoliciesOfKubernetes(t *testing.T) {
	t.Parallel()
	w, api, source := newKubernetesWorld(t)
	api.Put(apitest.Policy("shop", "cart", "cart", 1), apitest.Policy("shop", "wrong", "chekout", 1))
	w.writeText(strings.Replace(source, "services:", "policies: true, selector: none=here, services:", 1) + "]}}\n")
	w.serve()
	w.in("cart.shop:80")
	var o isobar.Object
	w.read("/v1/services/cart.shop:80", &o)
	if o.Owner != isobar.OwnerKubernetes || o.Service.Mode != isobar.ModeFull {
		t.Errorf("in force is %+v", o)
	}
	w.attention(admin.PolicyNotInForce, "LoadBalancingPolicy shop/wrong is not in force for Service chekout: namespace shop has no Service chekout with a TCP port")
	attends(t, w.status(), admin.PolicyNotInForce)
	testhelp.Eventually(t, "the status of the policy", func() bool { return len(api.Policy("shop", "cart").Status.Ancestors) == 1 })
}

// attention waits until a status has an item that begins so.
func (w *heldWorld) attention(code admin.Code, text string) {
	w.t.Helper()
	testhelp.Eventually(w.t, text, func() bool {
		return slices.ContainsFunc(w.status().Attention, func(a admin.Attention) bool { return a.Code == code && strings.HasPrefix(a.Text, text) })
	})
}

// TestKubernetesServicesUnderLoad: a reload that does not concern the Services of a
// cluster leaves them to it, and one that would remove what clients send to is held.
func TestKubernetesServicesUnderLoad(t *testing.T) {
	t.Parallel()
	w, api, source := newKubernetesWorld(t)
	w.writeText(source + "]}}\n")
	w.serve()
	w.in("cart.shop:80", "checkout.shop:80")
	stop := w.report("cart.shop:80")
	defer stop()
	w.loaded("cart.shop:80")
	other := "services: [{name: other, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}]\n"
	w.writeText(other + source + "]}}\n")
	w.Reread()
	w.in("cart.shop:80", "checkout.shop:80", "other")
	api.Put(apitest.Slice("shop", "cart-1", "a", "10.1.0.9"))
	testhelp.Eventually(t, "the new endpoint of cart", func() bool {
		s, ok := w.Plan().Service("cart.shop:80")
		return ok && len(s.Spec.Localities) == 1 && s.Spec.Localities[0].Endpoints[0].Address == "10.1.0.9:8080"
	})
	for text, want := range map[string]string{
		other: "discovery: missing, but 2 services whose endpoints it lists are in force and stay",
		other + "discovery: {dns: {services: [{name: d, localities: [{locality: us/a, lookups: [\"a.example:80\"]}]}]}}\n": "removes 2 of 3 services",
		other + strings.Replace(source, "kubeconfig", "selector: \"app!=x\", namespaces: [shop], kubeconfig", 1) + "]}}\n": "",
	} {
		w.writeText(text)
		_, err := w.Reload("")
		if want == "" && err != nil || want != "" && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	w.writeText("services: [{name: other, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}, {name: \"checkout.shop:80\", localities: [{locality: us/a, endpoints: [\"10.0.0.2:80\"]}]}]\ndiscovery: {}\n")
	held, err := w.Reload("")
	if want := "removes 1 service of the Kubernetes cluster that clients send to"; !strings.Contains(fmt.Sprint(err), want) || held == nil {
		t.Fatalf("%v, %+v, want %q", err, held, want)
	}
	w.in("cart.shop:80", "checkout.shop:80", "other")
	if _, err := w.Reload(held.Digest); err != nil {
		t.Fatal(err)
	}
	w.in("checkout.shop:80", "other")
}

// TestServiceMovesToKubernetes: a service of the file that clients send to goes over to
// the cluster once that lists it, and to another provider that the file names.
func TestServiceMovesToKubernetes(t *testing.T) {
	t.Parallel()
	w, _, source := newKubernetesWorld(t)
	other := "services: [{name: other, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}"
	w.writeText(other + ", {name: \"cart.shop:80\", localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}]\n")
	w.serve()
	stop := w.report("cart.shop:80")
	defer stop()
	w.loaded("cart.shop:80")
	for _, step := range []struct{ source, owner string }{
		{source + "]}}\n", isobar.OwnerKubernetes},
		{source + "]}, dns: {services: [{name: \"cart.shop:80\", localities: [{locality: us/a, lookups: [\"a.invalid:80\"]}]}]}}\n", isobar.OwnerDNS},
		{source + ", {name: \"cart.shop:80\"}]}}\n", isobar.OwnerKubernetes},
	} {
		w.writeText(other + "]\n" + step.source)
		if _, err := w.Reload(""); err != nil {
			t.Fatal(err)
		}
		var last isobar.Object
		testhelp.Eventually(t, "cart of "+step.owner, func() bool {
			if code := w.read("/v1/services/cart.shop:80", &last); code != http.StatusOK {
				t.Fatalf("cart is missing on its way to %s", step.owner)
			}
			return last.Owner == step.owner
		})
	}
}

// read gets an object of the admin API.
func (w *heldWorld) read(path string, out any) (status int) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.AdminAddress()+path, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode
}

// TestClientsOnNodes: a real gRPC client and a checker that tell no locality, but the Node
// that they run on, are in its zone, for assignments, load reports and checks.
func TestClientsOnNodes(t *testing.T) {
	t.Parallel()
	w, _, source := newKubernetesWorld(t)
	w.writeText(source + "]}}\n")
	w.serve()
	w.in("cart.shop:80", "checkout.shop:80")
	resolver, err := xds.NewXDSResolverWithConfigForTesting([]byte(fmt.Sprintf(`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"node": {"id": "front-1", "cluster": "front", "metadata": {"NODE_NAME": "n1"}}}`, w.XDSAddress())))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///checkout.shop:80", grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	conn.Connect()
	var clients admin.ClientList
	testhelp.Eventually(t, "the client in us/a, with its load reports", func() bool {
		w.read("/v1/clients", &clients)
		return len(clients.Clients) == 1 && clients.Clients[0].Locality == "us/a" && clients.Clients[0].LRS != nil
	})

	direct, err := grpc.NewClient(w.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = direct.Close() }()
	s, err := healthv3.NewHealthDiscoveryServiceClient(direct).StreamHealthCheck(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	machine, err := structpb.NewStruct(map[string]any{"NODE_NAME": "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&healthv3.HealthCheckRequestOrEndpointHealthResponse{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{
		HealthCheckRequest: &healthv3.HealthCheckRequest{Node: &corev3.Node{Id: "checker-1", Metadata: machine}, Capability: &healthv3.Capability{
			HealthCheckProtocols: []healthv3.Capability_Protocol{healthv3.Capability_TCP},
		}},
	}}); err != nil {
		t.Fatal(err)
	}
	var checkers admin.CheckerList
	testhelp.Eventually(t, "the checker in us/a", func() bool {
		w.read("/v1/checkers", &checkers)
		return len(checkers.Checkers) == 1 && checkers.Checkers[0].Locality.String() == "us/a"
	})
}
