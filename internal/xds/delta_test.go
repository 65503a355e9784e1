package xds_test

import (
	"errors"
	"io"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// versions reads the versions of the resources that came last.
func (c *client) versions(url string, names ...string) map[string]string {
	c.w.t.Helper()
	c.subscribe(url, names...)
	out := map[string]string{}
	for _, m := range c.take() {
		for _, r := range m.(*discoveryv3.DeltaDiscoveryResponse).GetResources() {
			out[r.GetName()] = r.GetVersion()
		}
	}
	return out
}

func TestDeltaInitialVersions(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2), serve("gone", 3))
		before := w.delta(at("us-east/b"))
		held := before.versions(edsURL, "a", "b", "gone")
		clusters := before.versions(cdsURL)
		before.close()
		w.publish(serve("b", 4), without("gone"))

		c := w.delta(at("us-east/b"))
		// What the client has is not sent again; what changed and what is gone is.
		c.deltaRequest(edsURL, held, "a", "b", "gone").equals("eds v2: b@4").ack(edsURL).equals("eds v2: gone@none").ack(edsURL).equals("eds v2: -gone").ack(edsURL).nothing()
		c.deltaRequest(cdsURL, clusters).equals("cds v2: -gone").ack(cdsURL).nothing()
		subs := w.server.Subscriptions()
		if len(subs) != 3 || subs[0].Service != "a" || subs[0].Acked != 1 || subs[0].AckedAt.IsZero() {
			w.t.Errorf("a client that holds the content counts as having it: %+v", subs)
		}
		// Later they are not a matter of the protocol.
		c.deltaRequest(edsURL, held, "a").equals("eds v2: a@1").ack(edsURL).nothing()
	})
}

// An Envoy that reconnects asks for its endpoints after its clusters came: what
// became of the clusters decides whether it waits for the endpoints.
func TestDeltaEndpointsFollowClustersThatChangedWhileAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		before := w.delta(at("us-east/b"))
		clusters := before.versions(cdsURL)
		held := before.versions(edsURL, "a", "b")
		before.close()
		w.publish(withORCA("a"))
		c := w.delta(at("us-east/b"))
		c.deltaRequest(cdsURL, clusters).equals("cds v2: a+orca").ack(cdsURL)
		c.deltaRequest(edsURL, held, "a", "b").equals("eds v2: a@1").ack(edsURL).nothing()
	})
}

func TestDeltaFirstRequestIsAnswered(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		before := w.delta(at("us-east/b"))
		held := before.versions(edsURL, "a")
		before.close()
		c := w.delta(at("us-east/b"))
		c.deltaRequest(edsURL, held, "a").equals("eds v1:").ack(edsURL)
		c.subscribe(ldsURL).equals("lds v1:").ack(ldsURL).nothing()
	})
}

func TestDeltaWildcards(t *testing.T) {
	t.Run("old form", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1), serve("b", 2))
			c := w.delta(at("us-east/b"))
			c.subscribe(cdsURL).equals("cds v1: a b").ack(cdsURL).nothing()
			w.publish(serve("c", 3), withORCA("a"), without("b"))
			c.equals("cds v2: a+orca c").ack(cdsURL).equals("cds v2: -b").ack(cdsURL).nothing()
			c.subscribe(cdsURL, "-*").nothing()
			w.publish(serve("d", 4))
			c.nothing()
		})
	})
	t.Run("star", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1), serve("b", 2))
			c := w.delta(at("us-east/b"))
			c.subscribe(cdsURL, "a").equals("cds v1: a").ack(cdsURL).nothing()
			c.subscribe(cdsURL, "*").equals("cds v1: b").ack(cdsURL).nothing()
			// The wildcard still covers it: the client is told so.
			c.subscribe(cdsURL, "-a").equals("cds v1: a").ack(cdsURL).nothing()
			c.subscribe(cdsURL, "*").equals("cds v1: a b").ack(cdsURL).nothing()
			c.subscribe(cdsURL, "-*", "b").equals("cds v1: b").ack(cdsURL).nothing()
			w.publish(withORCA("a"))
			c.nothing()
			w.publish(withORCA("b"))
			c.equals("cds v3: b+orca")
		})
	})
	t.Run("listeners", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			c := w.delta(at("us-east/b"))
			c.subscribe(ldsURL, "*").equals("lds v1:").ack(ldsURL)
			c.subscribe(ldsURL, "a").equals("lds v1: a").ack(ldsURL).nothing()
			// The wildcard does not cover it: the client is told that, too.
			c.subscribe(ldsURL, "-a").equals("lds v1: -a").ack(ldsURL).nothing()
			// Listeners that it holds from somebody else are not ours to keep.
			d := w.delta(at("us-east/b"))
			d.deltaRequest(ldsURL, map[string]string{"foreign": "7"}).equals("lds v1: -foreign").ack(ldsURL).nothing()
		})
	})
}

func TestDeltaSingleService(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.open(edsDeltaMethod, at("us-east/b"), true)
		c.subscribe("", "a").equals("eds v1: a@1")
		c.send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: c.kind(edsURL).nonce})
		w.publish(serve("a", 2))
		c.equals("eds v2: a@2")
	})
}

func TestTypesThatAreNotServed(t *testing.T) {
	const secret = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		// Delta can say that there is nothing; state of the world cannot.
		w.delta(at("us-east/b")).subscribe(secret, "a").equals("other v1: -a")
		c := w.ads(at("us-east/b"))
		c.request(secret, "a").nothing().request(edsURL, "a").equals("eds v1: a@1")
	})
}

// oneService is a plan with one service whose endpoints are all gone.
type oneService struct{}

func (oneService) VersionString() string      { return "1" }
func (oneService) RequestLimit(string) uint32 { return 0 }
func (oneService) Awaited() []isobar.Service  { return nil }

func (oneService) ServiceNames() []string { return []string{"a"} }

func (oneService) Spec(name string) *isobar.Service {
	if name != "a" {
		return nil
	}
	return &isobar.Service{Name: "a"}
}

func (oneService) Assignment(service string, source isobar.Locality) *isobar.Assignment {
	return &isobar.Assignment{Service: service, Source: source, OverprovisioningFactor: 140}
}

func (oneService) Basis(string) any { return nil }

func dial(t *testing.T) endpointservice.EndpointDiscoveryServiceClient {
	t.Helper()
	engine := xds.New(xds.Options{})
	engine.Publish(view.NewBuilder(view.Options{}).Build(oneService{}, nil))
	server := grpc.NewServer(grpc.ForceServerCodecV2(rpc.ServerCodec()))
	xds.RegisterEDS(server, engine, false)
	conn, stop := testhelp.Serve(t, server)
	t.Cleanup(func() {
		stop()
		engine.Stop()
	})
	return endpointservice.NewEndpointDiscoveryServiceClient(conn)
}

var want = &endpointv3.ClusterLoadAssignment{ClusterName: "a"}

// The type may be left out: the method tells it.
func TestStream(t *testing.T) {
	s, err := dial(t).StreamEndpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Send(&discoveryv3.DiscoveryRequest{ResourceNames: []string{"a"}}), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	got := &endpointv3.ClusterLoadAssignment{}
	if err := r.GetResources()[0].UnmarshalTo(got); err != nil || !proto.Equal(got, want) || r.GetTypeUrl() != resource.EndpointsURL {
		t.Errorf("got %v, %v", r, err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestDelta(t *testing.T) {
	s, err := dial(t).DeltaEndpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a"}}), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	got := &endpointv3.ClusterLoadAssignment{}
	if err := r.GetResources()[0].GetResource().UnmarshalTo(got); err != nil || !proto.Equal(got, want) || r.GetTypeUrl() != resource.EndpointsURL {
		t.Errorf("got %v, %v", r, err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}
