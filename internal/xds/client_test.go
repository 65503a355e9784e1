package xds_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// client is one stream of a client written for these tests.
type client struct {
	w      *world
	kinds  map[string]*seen // by type URL
	node   *corev3.Node
	delta  bool
	stream grpc.ClientStream
	cancel context.CancelFunc
	paused chan struct{} // closed to start receiving

	mu    sync.Mutex
	inbox []proto.Message
	ended error
}

// seen is what the client got last of a type.
type seen struct {
	version, nonce string
	names          []string
}

func at(locality string) *corev3.Node {
	l := isobar.MustLocality(locality)
	return &corev3.Node{
		Id: "node-" + strings.ReplaceAll(locality, "/", "-"), Cluster: "frontend", UserAgentName: "test",
		Locality: &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone},
	}
}

const (
	adsMethod      = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	adsDeltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	edsMethod      = "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"
	edsDeltaMethod = "/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints"
	cdsMethod      = "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters"
	ldsMethod      = "/envoy.service.listener.v3.ListenerDiscoveryService/StreamListeners"
	rdsMethod      = "/envoy.service.route.v3.RouteDiscoveryService/StreamRoutes"
)

func (w *world) ads(node *corev3.Node) *client { return w.open(adsMethod, node, true) }

func (w *world) delta(node *corev3.Node) *client { return w.open(adsDeltaMethod, node, true) }

// open opens a stream; one that does not receive has to be resumed.
func (w *world) open(method string, node *corev3.Node, receiving bool) *client {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	stream, err := w.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		cancel()
		w.t.Fatal(err)
	}
	c := &client{
		w: w, kinds: map[string]*seen{}, node: node, delta: strings.Contains(method, "Delta"),
		stream: stream, cancel: cancel, paused: make(chan struct{}),
	}
	go c.receive()
	if receiving {
		c.resume()
	}
	return c
}

func (c *client) resume() { close(c.paused) }

func (c *client) receive() {
	select {
	case <-c.paused:
	case <-c.stream.Context().Done():
	}
	for {
		var m proto.Message = &discoveryv3.DiscoveryResponse{}
		if c.delta {
			m = &discoveryv3.DeltaDiscoveryResponse{}
		}
		err := c.stream.RecvMsg(m)
		c.mu.Lock()
		if err != nil {
			c.ended = err
			c.mu.Unlock()
			return
		}
		c.inbox = append(c.inbox, m)
		c.mu.Unlock()
	}
}

// close ends the stream as a client that goes away.
func (c *client) close() {
	c.cancel()
	synctest.Wait()
}

// status is what the server ended the stream with; OK while it is open.
func (c *client) status() *status.Status {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil || errors.Is(c.ended, io.EOF) {
		return status.New(codes.OK, "")
	}
	return status.Convert(c.ended)
}

func (c *client) kind(url string) *seen {
	s := c.kinds[url]
	if s == nil {
		s = &seen{}
		c.kinds[url] = s
	}
	return s
}

func (c *client) send(m proto.Message) {
	c.w.t.Helper()
	if err := c.stream.SendMsg(m); err != nil && !errors.Is(err, io.EOF) {
		c.w.t.Fatal(err)
	}
}

// request subscribes to names as a state-of-the-world client does, showing what
// it got last.
func (c *client) request(url string, names ...string) *client {
	c.w.t.Helper()
	s := c.kind(url)
	s.names = names
	c.send(&discoveryv3.DiscoveryRequest{Node: c.node, TypeUrl: url, VersionInfo: s.version, ResponseNonce: s.nonce, ResourceNames: names})
	return c
}

// ack accepts the last response of a type.
func (c *client) ack(url string) *client {
	c.w.t.Helper()
	s := c.kind(url)
	if c.delta {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: s.nonce})
		return c
	}
	return c.request(url, s.names...)
}

// nack rejects the last response of a type.
func (c *client) nack(url, text string) *client {
	c.w.t.Helper()
	s := c.kind(url)
	detail := &statuspb.Status{Code: int32(codes.InvalidArgument), Message: text}
	if c.delta {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: s.nonce, ErrorDetail: detail})
		return c
	}
	c.send(&discoveryv3.DiscoveryRequest{TypeUrl: url, VersionInfo: s.version, ResponseNonce: s.nonce, ResourceNames: s.names, ErrorDetail: detail})
	return c
}

// subscribe is a delta request; names with a leading "-" are unsubscribed.
func (c *client) subscribe(url string, names ...string) *client {
	c.w.t.Helper()
	return c.deltaRequest(url, nil, names...)
}

func (c *client) deltaRequest(url string, initial map[string]string, names ...string) *client {
	c.w.t.Helper()
	r := &discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: url, InitialResourceVersions: initial}
	for _, n := range names {
		if rest, gone := strings.CutPrefix(n, "-"); gone {
			r.ResourceNamesUnsubscribe = append(r.ResourceNamesUnsubscribe, rest)
		} else {
			r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, n)
		}
	}
	c.send(r)
	return c
}

// take returns what has come since, once nothing more will come.
func (c *client) take() []proto.Message {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.inbox
	c.inbox = nil
	for _, m := range got {
		switch m := m.(type) {
		case *discoveryv3.DiscoveryResponse:
			s := c.kind(m.GetTypeUrl())
			s.version, s.nonce = m.GetVersionInfo(), m.GetNonce()
		case *discoveryv3.DeltaDiscoveryResponse:
			s := c.kind(m.GetTypeUrl())
			s.version, s.nonce = m.GetSystemVersionInfo(), m.GetNonce()
		}
	}
	return got
}

// equals checks what came since the last check, one text a response:
//
//	eds v1: a@1001 b@none
//	cds v2: a b+orca
//	lds v2:               (an empty response)
//	eds v3: a@1002 -b     (delta: b removed)
func (c *client) equals(want ...string) *client {
	c.w.t.Helper()
	var got []string
	for _, m := range c.take() {
		got = append(got, describe(c.w.t, m))
	}
	if !slices.Equal(got, want) {
		c.w.t.Fatalf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	return c
}

// nothing checks that nothing came.
func (c *client) nothing() *client {
	c.w.t.Helper()
	return c.equals()
}

// settled accepts everything that comes until nothing does, and returns it.
func (c *client) settled() []string {
	c.w.t.Helper()
	var got []string
	for range 100 {
		batch := c.take()
		if len(batch) == 0 {
			return got
		}
		for _, m := range batch {
			got = append(got, describe(c.w.t, m))
		}
		for _, m := range batch {
			c.ack(m.(interface{ GetTypeUrl() string }).GetTypeUrl())
		}
	}
	c.w.t.Fatal("it never settles")
	return nil
}

func describe(t *testing.T, m proto.Message) string {
	t.Helper()
	var words []string
	switch m := m.(type) {
	case *discoveryv3.DiscoveryResponse:
		words = append(words, fmt.Sprintf("%s %s:", resource.KindOf(m.GetTypeUrl()), m.GetVersionInfo()))
		for _, r := range m.GetResources() {
			words = append(words, describeResource(t, r))
		}
	case *discoveryv3.DeltaDiscoveryResponse:
		words = append(words, fmt.Sprintf("%s %s:", resource.KindOf(m.GetTypeUrl()), m.GetSystemVersionInfo()))
		for _, r := range m.GetResources() {
			text := describeResource(t, r.GetResource())
			if !strings.HasPrefix(text, r.GetName()) || r.GetVersion() == "" {
				t.Errorf("resource %q, version %q, holds %s", r.GetName(), r.GetVersion(), text)
			}
			words = append(words, text)
		}
		for _, n := range m.GetRemovedResources() {
			words = append(words, "-"+n)
		}
	}
	return strings.Join(words, " ")
}

func describeResource(t *testing.T, a *anypb.Any) string {
	t.Helper()
	var m proto.Message
	m, err := a.UnmarshalNew()
	if a.GetTypeUrl() == resource.EndpointsURLv2 {
		v3 := &endpointv3.ClusterLoadAssignment{} // v2 has the same fields
		m, err = v3, proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(a.GetValue(), v3)
	}
	if err != nil {
		t.Fatal(err)
	}
	switch m := m.(type) {
	case *endpointv3.ClusterLoadAssignment:
		if len(m.GetEndpoints()) == 0 {
			return m.GetClusterName() + "@none"
		}
		e := m.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint()
		out := fmt.Sprintf("%s@%d", m.GetClusterName(), e.GetAddress().GetSocketAddress().GetPortValue())
		for _, d := range m.GetPolicy().GetDropOverloads() {
			out += fmt.Sprintf(" drop %d/%s", d.GetDropPercentage().GetNumerator(), d.GetDropPercentage().GetDenominator())
		}
		return out
	case *clusterv3.Cluster:
		if m.GetLoadBalancingPolicy() != nil {
			return m.GetName() + "+orca"
		}
		return m.GetName()
	case interface{ GetName() string }:
		return m.GetName()
	default:
		return fmt.Sprintf("%T", m)
	}
}
