package xds_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

const (
	adsV2Method      = "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources"
	adsV2DeltaMethod = "/envoy.service.discovery.v2.AggregatedDiscoveryService/DeltaAggregatedResources"
	edsV2Method      = "/envoy.api.v2.EndpointDiscoveryService/StreamEndpoints"
	ads2017Method    = "/envoy.api.v2.AggregatedDiscoveryService/StreamAggregatedResources"

	edsURLv2 = resource.EndpointsURLv2
)

// Streams of v2 get what those of v3 get, under the type URLs of v2.
func TestV2(t *testing.T) {
	for _, method := range []string{adsV2Method, adsV2DeltaMethod} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			c := w.open(method, at("us-east/b"), true)
			ask := func(url string, names ...string) {
				if c.delta {
					c.subscribe(url, names...)
				} else {
					c.request(url, names...)
				}
			}
			ask(resource.ClusterURLv2, "a")
			c.equals("cds v1: a").ack(resource.ClusterURLv2)
			ask(edsURLv2, "a")
			c.equals("eds v1: a@1").ack(edsURLv2)
			w.publish(serve("a", 2))
			c.equals("eds v2: a@2").nack(edsURLv2, "no")
			w.publish()
			c.nothing()
			w.publish(serve("a", 3))
			c.equals("eds v4: a@3").ack(edsURLv2)
			synctest.Wait()
			if got := w.server.Clients()[0].API; got != "v2" {
				t.Errorf("the client is shown as one of %s", got)
			}
		})
	}
}

// A service for one type takes the type from its method, unless the request
// names the other API version's.
func TestTypeOfMethod(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.open(edsV2Method, at("us-east/b"), true)
		c.send(&discoveryv3.DiscoveryRequest{Node: c.node, ResourceNames: []string{"a"}})
		c.equals("eds v1: a@1")
		if c.kind(edsURLv2).version == "" {
			t.Error("the answer is not of v2")
		}
		newer := w.open(edsV2Method, at("us-east/b"), true)
		newer.request(edsURL, "a").equals("eds v1: a@1")
		if newer.kind(edsURL).version == "" {
			t.Error("the answer is not of v3, which was asked for")
		}
	})
}

// Clients of each API version in one locality get their own resources, and count together.
func TestAcknowledgementsOfAllAPIVersions(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		v3 := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		v2 := w.open(adsV2Method, at("us-east/b"), true).request(edsURLv2, "a").equals("eds v1: a@1")
		old := w.open(ads2017Method, at("us-east/b"), true).request(edsURLv2, "a").equals("eds v1: a@1").ack(edsURLv2)
		check := func(streams, acked int, all bool) {
			t.Helper()
			synctest.Wait()
			got := w.server.Subscriptions()
			if len(got) != 1 || got[0].Streams != streams || got[0].Acked != acked || got[0].AckedAt.IsZero() == all {
				t.Fatalf("got %+v, want %d streams, %d acknowledged", got, streams, acked)
			}
		}
		check(3, 2, false)
		v2.ack(edsURLv2)
		check(3, 3, true)
		w.publish(serve("a", 2))
		for _, c := range []*client{v3, v2, old} {
			c.equals("eds v2: a@2")
		}
		check(3, 0, false)
		v3.ack(edsURL)
		v2.close()
		check(2, 1, false)
		old.ack(edsURLv2)
		check(2, 2, true)
	})
}

// In 2017 a rejection was the version of before, and nothing else.
func Test2017RejectsByVersion(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.open(ads2017Method, at("us-east/b"), true).request(edsURLv2, "a").equals("eds v1: a@1").ack(edsURLv2)
		w.publish(serve("a", 2))
		c.equals("eds v2: a@2")
		c.send(&discoveryv3.DiscoveryRequest{
			TypeUrl: edsURLv2, VersionInfo: "v1", ResponseNonce: c.kind(edsURLv2).nonce, ResourceNames: []string{"a"},
		})
		if got := w.clientType(resource.Endpoints); got.LastNack == nil || got.Rejected != 1 || got.Acked != "v1" {
			t.Fatalf("got %+v, want a rejection", got)
		}
		w.publish()
		c.nothing()
		w.publish(serve("a", 3))
		c.equals("eds v4: a@3").ack(edsURLv2).nothing()
		if got := w.clientType(resource.Endpoints); !got.InSync || got.Acked != "v4" {
			t.Fatalf("got %+v, want in sync", got)
		}
	})
}

// A rule on the node makes methods of v2 those of 2017.
func TestRuleOnTheNode(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.open(edsV2Method, at("us-east/b"), true).request(edsURLv2, "a").equals("eds v1: a@1")
		synctest.Wait()
		if got := w.server.Clients()[0].API; got != "2017" {
			t.Errorf("the client is shown as one of %s", got)
		}
		c.close()
		w.open(edsV2Method, at("us-west/b"), true).request(edsURLv2, "a").equals("eds v1: a@1")
		synctest.Wait()
		if got := w.server.Clients()[0].API; got != "v2" {
			t.Errorf("the other client is shown as one of %s", got)
		}
	}, func(o *xds.Options) { o.Is2017 = func(n rpc.Node) bool { return n.Locality.Region == "us-east" } })
}

const tp = "xdstp://plane/"

// Under an xdstp name a service has the same content, and what it refers to is
// named alike.
func TestXDSTPNames(t *testing.T) {
	const (
		cluster   = tp + "envoy.config.cluster.v3.Cluster/a?x=1"
		endpoints = tp + "envoy.config.endpoint.v3.ClusterLoadAssignment/a?x=1"
	)
	inWorld(t, func(w *world) {
		w.publish(serve("b", 1))
		c := w.ads(at("us-east/b"))
		c.request(cdsURL, cluster).equals("cds v1:").ack(cdsURL)
		w.publish(serve("a", 1)) // appears later
		c.equals("cds v2: " + cluster).ack(cdsURL)
		c.request(edsURL, endpoints).equals("eds v2: " + endpoints + "@1").ack(edsURL)
		w.publish(serve("a", 2))
		c.equals("eds v3: " + endpoints + "@2").ack(edsURL)
		w.publish(withORCA("a")) // another cluster: its endpoints once more
		c.equals("cds v4: "+cluster+"+orca", "eds v4: "+endpoints+"@2").ack(cdsURL).ack(edsURL)
		if got := w.server.Subscriptions(); len(got) != 1 || got[0].Service != "a" || got[0].Acked != 1 {
			t.Errorf("subscribed: %+v", got)
		}
		if l := isobar.MustLocality("us-east/b"); !w.server.Subscribed(l, "a") || w.server.Subscribed(l, endpoints) {
			t.Error("the service is not known to be subscribed")
		}
		w.publish(without("a"))
		c.equals("cds v5:", "eds v5: "+endpoints+"@none").ack(cdsURL).ack(edsURL).nothing()
		// A name of another type stands for nothing.
		d := w.ads(at("us-east/b")).request(edsURL, tp+"envoy.config.cluster.v3.Cluster/b")
		w.publish(serve("b", 9))
		d.nothing()
	})
}

func living(name string, stale, ttl time.Duration) edit {
	return func(p *testPlan) {
		p.specs[name] = &isobar.Service{Name: name, Assignment: isobar.AssignmentSettings{EndpointStaleAfter: stale, ResourceTTL: ttl}}
		a := *p.assignments[name]
		a.EndpointStaleAfter, a.ResourceTTL = stale, ttl
		p.assignments[name] = &a
	}
}

// Endpoints that grow stale are sent again, unchanged, well before they do; what
// a client rejected is not.
func TestStaleEndpointsAreSentAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), living("a", 30*time.Second, 0), serve("b", 1))
		c := w.ads(at("us-east/b")).request(edsURL, "a", "b").equals("eds v1: a@1 b@1").ack(edsURL)
		d := w.delta(at("us-east/b")).subscribe(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		bad := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1").nack(edsURL, "no")
		<-time.After(time.Second) // the first look
		for range 5 {
			<-time.After(10 * time.Second) // of virtual time
			c.equals("eds v1: a@1").ack(edsURL)
			d.equals("eds v1: a@1").ack(edsURL)
		}
		bad.nothing()
		w.publish(living("a", 0, 0))
		c.equals("eds v2: a@1").ack(edsURL)
		d.equals("eds v2: a@1").ack(edsURL)
		<-time.After(time.Minute)
		c.nothing()
		d.nothing()
	})
}

// What was rejected together with something else is kept alive, alone: one of them
// may be as it should be, and must not grow stale for the other's sake.
func TestStaleEndpointsBesideABadOne(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), living("a", 30*time.Second, 0), serve("b", 1), living("b", 30*time.Second, 0))
		c := w.ads(at("us-east/b")).request(edsURL, "a", "b").equals("eds v1: a@1 b@1").ack(edsURL)
		d := w.delta(at("us-east/b")).subscribe(edsURL, "a", "b").equals("eds v1: a@1 b@1").ack(edsURL)
		<-time.After(6 * time.Second)
		w.publish(serve("a", 2), living("a", 30*time.Second, 0), serve("b", 2), living("b", 30*time.Second, 0))
		for _, s := range []*client{c, d} {
			s.equals("eds v2: a@2 b@2").nack(edsURL, "a is bad").nothing()
		}
		<-time.After(5 * time.Second)
		for _, s := range []*client{c, d} {
			s.equals("eds v2: a@2").nack(edsURL, "a is bad").equals("eds v2: b@2").ack(edsURL)
		}
		for range 3 {
			<-time.After(10 * time.Second)
			c.equals("eds v2: b@2").ack(edsURL)
			d.equals("eds v2: b@2").ack(edsURL)
		}
	})
}

// Clients that know of a TTL get heartbeats, or all of it again on streams that
// tell the state of the world; the others get nothing.
func TestHeartbeats(t *testing.T) {
	node := func(features ...string) *corev3.Node {
		n := at("us-east/b")
		n.ClientFeatures = features
		return n
	}
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), living("a", 0, 9*time.Second))
		plain := w.ads(node()).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		half := w.ads(node(rpc.FeatureTTL)).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL) // can't unwrap
		both := w.ads(node(rpc.FeatureTTL, rpc.FeatureWrapped)).request(edsURL, "a")
		delta := w.delta(node(rpc.FeatureTTL)).subscribe(edsURL, "a")

		first := resourceOf(t, both, true)
		if first.GetResource() == nil || first.GetTtl().AsDuration() != 9*time.Second || first.GetName() != "a" {
			t.Fatalf("got %v", first)
		}
		both.ack(edsURL)
		other := resourceOf(t, delta, false)
		if other.GetResource() == nil || other.GetTtl().AsDuration() != 9*time.Second || other.GetVersion() != first.GetVersion() {
			t.Fatalf("got %v", other)
		}
		delta.ack(edsURL)
		<-time.After(time.Second) // the first look
		for range 4 {
			<-time.After(3 * time.Second)
			for i, beat := range []*discoveryv3.Resource{resourceOf(t, both, true), resourceOf(t, delta, false)} {
				if (beat.GetResource() == nil) != (i == 1) || beat.GetVersion() != first.GetVersion() || beat.GetTtl().AsDuration() != 9*time.Second {
					t.Fatalf("%d: got %v", i, beat)
				}
			}
			both.ack(edsURL)
			delta.ack(edsURL)
		}
		plain.nothing()
		half.nothing()
	})
}

// resourceOf takes the one resource that came, as it is wrapped.
func resourceOf(t *testing.T, c *client, wrapped bool) *discoveryv3.Resource {
	t.Helper()
	got := c.take()
	if len(got) != 1 {
		t.Fatalf("%d responses came: %v", len(got), got)
	}
	if !wrapped {
		return got[0].(*discoveryv3.DeltaDiscoveryResponse).GetResources()[0]
	}
	r := &discoveryv3.Resource{}
	if err := got[0].(*discoveryv3.DiscoveryResponse).GetResources()[0].UnmarshalTo(r); err != nil {
		t.Fatal(err)
	}
	return r
}
