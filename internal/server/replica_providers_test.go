package server_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/apitest"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// controlPlane lists the endpoints of one service, which change.
type controlPlane struct {
	endpointservicev3.UnimplementedEndpointDiscoveryServiceServer

	pipe *bufconn.Listener

	mu      sync.Mutex
	ports   []uint32
	changed chan struct{} // closed by the next change
}

func startControlPlane(t *testing.T, ports ...uint32) *controlPlane {
	t.Helper()
	p := &controlPlane{pipe: bufconn.Listen(1 << 20), ports: ports, changed: make(chan struct{})}
	g := grpc.NewServer()
	endpointservicev3.RegisterEndpointDiscoveryServiceServer(g, p)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(p.pipe) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *controlPlane) dial(ctx context.Context, _ string) (net.Conn, error) {
	return p.pipe.DialContext(ctx)
}

func (p *controlPlane) lists(ports ...uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports = ports
	close(p.changed)
	p.changed = make(chan struct{})
}

// StreamEndpoints implements the service.
func (p *controlPlane) StreamEndpoints(s endpointservicev3.EndpointDiscoveryService_StreamEndpointsServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	for version := 1; ; version++ {
		p.mu.Lock()
		m := &endpointv3.ClusterLoadAssignment{ClusterName: "cart"}
		l := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Region: "us", Zone: "a"}}
		for _, port := range p.ports {
			l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
				}}},
			}}})
		}
		m.Endpoints = append(m.Endpoints, l)
		changed := p.changed
		p.mu.Unlock()
		listed, err := anypb.New(m)
		if err != nil {
			return err
		}
		v := strconv.Itoa(version)
		if err := s.Send(&discoveryv3.DiscoveryResponse{VersionInfo: v, Nonce: v, TypeUrl: resource.EndpointsURL, Resources: []*anypb.Any{listed}}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return nil
		}
	}
}

// listedPorts are the ports of the endpoints of a service in a replica's plan.
func (m *member) listedPorts() string {
	p := m.server.Plan()
	if p == nil || p.Spec("cart") == nil {
		return ""
	}
	var out []string
	for _, l := range p.Spec("cart").Localities {
		for _, e := range l.Endpoints {
			_, port, _ := net.SplitHostPort(e.Address)
			out = append(out, port)
		}
	}
	return strings.Join(out, " ")
}

// TestGroupBesideAnotherControlPlane asserts that the endpoints that another control
// plane lists are those of the leader's view on every replica; that a new leader whose
// control plane lists less removes nothing until it has been complete for long enough;
// that it takes what is added at once; and that the last replica of a group goes on so.
func TestGroupBesideAnotherControlPlane(t *testing.T) {
	t.Parallel()
	first, second := startControlPlane(t, 1, 2), startControlPlane(t, 1)
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	const discovery = "discovery: {xds: {server: \"127.0.0.1:1\", services: [{name: cart, localities: [{locality: us/a, max_rate: 100}]}]}}\n"
	const settle = 4 * time.Second
	configs := []string{
		replicaConfig(t, "a", listen[0], election, fileServices, peers...) + discovery,
		replicaConfig(t, "b", listen[1], election, fileServices, peers...) + discovery,
	}
	begin := func(which int, plane *controlPlane) *member {
		return startMemberWith(t, configs[which], server.Options{ReplicaTiming: quick, DialSource: plane.dial, ProviderGrace: settle})
	}
	a := begin(0, first)
	testhelp.Eventually(t, "a leads with what its control plane lists", func() bool { return a.group().Leader == "a" && a.listedPorts() == "1 2" })
	b := begin(1, second)
	testhelp.Eventually(t, "b has what a's control plane lists, not its own's", func() bool {
		return b.group().Removes && b.listedPorts() == "1 2" && strings.Contains(b.operated(), "cart of xds")
	})
	first.lists(1, 2, 3)
	testhelp.Eventually(t, "a change reaches both", func() bool { return a.listedPorts() == "1 2 3" && b.listedPorts() == "1 2 3" })

	restarted := time.Now()
	b.end()
	b = begin(1, second) // what it lists is not old enough yet
	testhelp.Eventually(t, "b follows again", func() bool { return b.group().Removes && b.listedPorts() == "1 2 3" })
	a.end()
	testhelp.Eventually(t, "b leads", func() bool { return b.group().Leader == "b" })
	second.lists(1, 4)
	kept := false
	testhelp.Eventually(t, "b takes the new endpoint, and later removes what it does not list", func() bool {
		got := b.listedPorts()
		if early := time.Since(restarted) < settle; early && !strings.Contains(got, "2") && got != "" {
			t.Fatalf("b removed endpoints %v after its start: %s", time.Since(restarted), got)
		}
		kept = kept || strings.Contains(got, "2") && strings.Contains(got, "4")
		return got == "1 4"
	})
	if !kept {
		t.Error("b did not hold endpoints that its control plane does not list")
	}

	b.end()
	b = begin(1, second)
	testhelp.Eventually(t, "b leads alone", func() bool { return b.group().Leader == "b" && b.listedPorts() == "1 4" })
	second.lists(4)
	testhelp.Eventually(t, "b removes endpoints though no majority of the group is there", func() bool { return b.listedPorts() == "4" })
}

// listed counts the endpoints of a service in the plan of a replica.
func (m *member) listed(service string) int {
	p := m.server.Plan()
	if p == nil {
		return 0
	}
	spec := p.Spec(service)
	if spec == nil {
		return -1
	}
	n := 0
	for i := range spec.Localities {
		n += len(spec.Localities[i].Endpoints)
	}
	return n
}

// TestKubernetesInAGroup asserts that replicas serve what the leader's watch lists, that a
// new leader goes on with it, removes at once endpoints that the cluster does not have,
// and removes no service before its watch has been complete for long.
func TestKubernetesInAGroup(t *testing.T) {
	api := apitest.New(t)
	api.Put(apitest.Node("n1", "us", "a"), apitest.Service("shop", "checkout"), apitest.Slice("shop", "checkout-1", "a", "10.1.0.1", "10.1.0.2"),
		apitest.Service("shop", "cart"), apitest.Slice("shop", "cart-1", "a", "10.1.0.3"))
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	config := func(n int) string {
		text := replicaConfig(t, string(rune('a'+n)), listen[n], election, "- {name: own, localities: [{locality: us/a, endpoints: [\"127.0.0.1:9\"]}]}\n", peers...)
		return text + "discovery: {kubernetes: {kubeconfig: " + api.Kubeconfig() + "}}\n"
	}
	a := startMember(t, config(0))
	testhelp.Eventually(t, "a leads and serves the cluster", func() bool { return a.listed("checkout.shop:80") == 2 && a.listed("own") == 1 })
	b := startMember(t, config(1))
	testhelp.Eventually(t, "b follows", func() bool {
		return b.group().Leader == "a" && b.listed("checkout.shop:80") == 2 && b.listed("cart.shop:80") == 1
	})
	testhelp.Eventually(t, "the owner on a follower", func() bool {
		var o isobar.Object
		b.read("/v1/services/checkout.shop:80", &o)
		return o.Owner == isobar.OwnerKubernetes
	})
	api.Put(apitest.Slice("shop", "checkout-1", "a", "10.1.0.1", "10.1.0.2", "10.1.0.4"))
	testhelp.Eventually(t, "a change of the cluster on both", func() bool { return a.listed("checkout.shop:80") == 3 && b.listed("checkout.shop:80") == 3 })
	if !a.group().Agreed {
		t.Error("the replicas' files differ")
	}

	a.end()
	testhelp.Eventually(t, "b leads", func() bool { return b.group().Leader == "b" })
	api.Put(apitest.Slice("shop", "checkout-1", "a", "10.1.0.4"))
	api.Remove(apitest.Service("shop", "cart"))
	testhelp.Eventually(t, "endpoints that are gone", func() bool { return b.listed("checkout.shop:80") == 1 })
	if n := b.listed("cart.shop:80"); n != 1 {
		t.Errorf("a leader that started a moment ago has %d endpoints of a Service that its watch does not have, want 1", n)
	}
}
