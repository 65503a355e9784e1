package xdsclient_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/discovery/xdsclient"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unfit is an address with which a service does not go together with the others.
const unfit = "10.66.6.6"

func validate(services []isobar.Service) error {
	for i := range services {
		for _, l := range services[i].Localities {
			for _, e := range l.Endpoints {
				if strings.HasPrefix(e.Address, unfit) {
					return fmt.Errorf("service %s does not go together with the others", services[i].Name)
				}
			}
		}
	}
	return nil
}

// control is the other control plane: it hands each stream to the test.
type control struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	endpointservicev3.UnimplementedEndpointDiscoveryServiceServer

	streams chan *upstream
}

// upstream is one stream as the control plane sees it.
type upstream struct {
	t        *testing.T
	ads      bool
	requests chan *discoveryv3.DiscoveryRequest
	send     chan *discoveryv3.DiscoveryResponse
	end      chan error
}

type serverStream interface {
	grpc.ServerStream
	Send(resp *discoveryv3.DiscoveryResponse) error
	Recv() (*discoveryv3.DiscoveryRequest, error)
}

func (c *control) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return c.serve(s, true)
}

func (c *control) StreamEndpoints(s endpointservicev3.EndpointDiscoveryService_StreamEndpointsServer) error {
	return c.serve(s, false)
}

func (c *control) serve(s serverStream, ads bool) error {
	u := &upstream{ads: ads, requests: make(chan *discoveryv3.DiscoveryRequest, 100), send: make(chan *discoveryv3.DiscoveryResponse), end: make(chan error)}
	go func() {
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			u.requests <- r
		}
	}()
	select {
	case c.streams <- u:
	case <-s.Context().Done():
		return nil
	}
	for {
		select {
		case resp := <-u.send:
			if err := s.Send(resp); err != nil {
				return err
			}
		case err := <-u.end:
			return err
		case <-s.Context().Done():
			return nil
		}
	}
}

// request waits for the next request.
func (u *upstream) request() *discoveryv3.DiscoveryRequest {
	u.t.Helper()
	select {
	case r := <-u.requests:
		return r
	case <-time.After(time.Minute):
		u.t.Fatal("no request within a minute")
		return nil
	}
}

// silent fails if there is a request that nobody expects.
func (u *upstream) silent() {
	u.t.Helper()
	synctest.Wait()
	select {
	case r := <-u.requests:
		u.t.Errorf("an unexpected request: %v", r)
	default:
	}
}

// answer sends assignments and returns the request that acknowledges or refuses
// them.
func (u *upstream) answer(version string, list ...*endpointv3.ClusterLoadAssignment) *discoveryv3.DiscoveryRequest {
	u.t.Helper()
	resp := &discoveryv3.DiscoveryResponse{VersionInfo: version, Nonce: "nonce of " + version, TypeUrl: resource.EndpointsURL}
	for _, m := range list {
		resource, err := anypb.New(m)
		if err != nil {
			u.t.Fatal(err)
		}
		resp.Resources = append(resp.Resources, resource)
	}
	u.send <- resp
	r := u.request()
	if r.GetResponseNonce() != resp.GetNonce() {
		u.t.Errorf("the answer to %q has nonce %q", version, r.GetResponseNonce())
	}
	return r
}

// accepted is answer, and wants it acknowledged.
func (u *upstream) accepted(version string, list ...*endpointv3.ClusterLoadAssignment) {
	u.t.Helper()
	if r := u.answer(version, list...); r.GetErrorDetail() != nil || r.GetVersionInfo() != version {
		u.t.Errorf("%s was answered by version %q and %v", version, r.GetVersionInfo(), r.GetErrorDetail())
	}
}

// world is a client, the registry that it fills, and the other control plane,
// in virtual time.
type world struct {
	t        *testing.T
	control  *control
	listener *bufconn.Listener
	kept     *store.Memory
	metrics  *prometheus.Registry
	registry *discovery.Registry
	client   *xdsclient.Client
	stop     func()
	down     sync.Mutex // held while the server can't be reached
}

// inWorld runs a test with a configured client.
func inWorld(t *testing.T, cfg *xdsclient.Config, test func(w *world)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		w := &world{t: t, kept: store.NewMemory(), control: &control{streams: make(chan *upstream)}}
		w.serve()
		w.start(cfg)
		test(w)
		w.stop()
	})
}

// serve starts the other control plane.
func (w *world) serve() {
	w.listener = bufconn.Listen(1 << 20)
	srv := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(srv, w.control)
	endpointservicev3.RegisterEndpointDiscoveryServiceServer(srv, w.control)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(w.listener)
	}()
	w.t.Cleanup(func() {
		srv.Stop()
		<-done
	})
}

func (w *world) dial(ctx context.Context, _ string) (net.Conn, error) {
	if !w.down.TryLock() {
		return nil, status.Error(codes.Unavailable, "the network is down")
	}
	w.down.Unlock()
	return w.listener.DialContext(ctx)
}

// start begins a process on the store.
func (w *world) start(cfg *xdsclient.Config) {
	w.t.Helper()
	var err error
	if w.registry, err = discovery.Open(w.t.Context(), discovery.Options{Store: w.kept, Validate: validate, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		w.t.Fatal(err)
	}
	w.metrics = prometheus.NewRegistry()
	if w.client, err = xdsclient.Open(w.t.Context(), xdsclient.Options{Registry: w.registry.Provider(isobar.OwnerXDS), Store: w.kept, Dial: w.dial, Registerer: w.metrics}); err != nil {
		w.t.Fatal(err)
	}
	w.configure(cfg)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.client.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

// configure gives the client a configuration, and the file these services.
func (w *world) configure(cfg *xdsclient.Config, file ...isobar.Service) {
	w.t.Helper()
	if err := w.client.Configure(cfg, func(listed, unknown []isobar.Service) error {
		_, err := w.registry.SetConfigured(file, []discovery.Provided{{Owner: isobar.OwnerXDS, Listed: listed, Awaited: unknown}}, nil, nil)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

// stream waits for the next stream and returns it with its first request.
func (w *world) stream() (*upstream, *discoveryv3.DiscoveryRequest) {
	w.t.Helper()
	select {
	case u := <-w.control.streams:
		u.t = w.t
		return u, u.request()
	case <-time.After(time.Hour):
		w.t.Fatal("no stream within an hour")
		return nil, nil
	}
}

// endpoints returns the addresses of a service by locality, as they are in force;
// nil for a service that is not.
func (w *world) endpoints(name string) map[string][]string {
	w.t.Helper()
	synctest.Wait()
	o, err := w.registry.Get(name)
	if err != nil {
		return nil
	}
	out := map[string][]string{}
	for _, l := range o.Service.Localities {
		out[l.Locality.String()] = []string{}
		for _, e := range l.Endpoints {
			out[l.Locality.String()] = append(out[l.Locality.String()], e.Address)
		}
	}
	return out
}

// status returns the state of one service.
func (w *world) status(name string) xdsclient.ServiceStatus {
	w.t.Helper()
	synctest.Wait()
	s, ok := w.client.Status()
	if !ok {
		w.t.Fatal("no status")
	}
	for _, e := range s.Services {
		if e.Name == name {
			return e
		}
	}
	w.t.Fatalf("no status of %s", name)
	return xdsclient.ServiceStatus{}
}

// configuration asks for services by EDS names "eds-" and the name.
func configuration(names ...string) *xdsclient.Config {
	cfg := &xdsclient.Config{Server: "other:1", Node: xdsclient.Node{ID: "i", Cluster: "c"}, EmptyHold: 5 * time.Minute}
	for _, n := range names {
		cfg.Services = append(cfg.Services, xdsclient.Service{EDSName: "eds-" + n, Settings: isobar.Service{Name: n}, Ceiling: 0.7})
	}
	return cfg
}

// assignment lists endpoints "10.0.0.N:80" in locality us/a.
func assignment(name string, hosts ...string) *endpointv3.ClusterLoadAssignment {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: "eds-" + name}
	if len(hosts) > 0 {
		l := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Region: "us", Zone: "a"}}
		for _, h := range hosts {
			l.LbEndpoints = append(l.LbEndpoints, endpoint(h))
		}
		m.Endpoints = append(m.Endpoints, l)
	}
	return m
}

func endpoint(ip string) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
		}}},
	}}}
}

// edited applies a change to a copy.
func edited(m *endpointv3.ClusterLoadAssignment, f func(*endpointv3.ClusterLoadAssignment)) *endpointv3.ClusterLoadAssignment {
	out, _ := proto.Clone(m).(*endpointv3.ClusterLoadAssignment)
	f(out)
	return out
}
