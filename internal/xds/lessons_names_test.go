package xds_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// An empty name is a name that does not exist. One of it among others must not
// end the stream, which would take the others away, too.
func TestEmptyNameIsUnknown(t *testing.T) {
	t.Run("state of the world", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			c := w.ads(at("us-east/b"))
			c.request(edsURL, "", "a").equals("eds v1: a@1").ack(edsURL).nothing()
			c.request(cdsURL, "").equals("cds v1:").ack(cdsURL).nothing() // named, so no wildcard
			w.publish(serve("a", 2))
			c.equals("eds v2: a@2").ack(edsURL).nothing()
		})
	})
	t.Run("delta", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			c := w.delta(at("us-east/b"))
			c.subscribe(edsURL, "", "a").equals("eds v1: a@1 -").ack(edsURL).nothing()
			c.subscribe(edsURL, "-").nothing()
			d := w.delta(at("us-east/b"))
			d.deltaRequest(edsURL, map[string]string{"": "7"}, "", "a").equals("eds v1: a@1 -").ack(edsURL).nothing()
		})
	})
}

// A listener that is asked for by an alias, the DNS name of a Kubernetes Service, comes
// when its service does, however long after the request, and goes with it.
func TestAliasFollowsItsService(t *testing.T) {
	const alias = "a.shop.svc.cluster.local:80"
	inWorld(t, func(w *world) {
		w.publish(serve("b", 1))
		c := w.ads(at("us-east/b"))
		d := w.delta(at("us-east/b"))
		c.request(ldsURL, alias).equals("lds v1:").ack(ldsURL).nothing()
		d.subscribe(ldsURL, alias).equals("lds v1: -" + alias).ack(ldsURL).nothing()
		w.publish(serve("b", 2))
		w.publish(serve("c", 3))
		c.nothing()
		d.nothing()
		w.publish(serve("a.shop:80", 4))
		c.equals("lds v4: " + alias).ack(ldsURL).nothing()
		d.equals("lds v4: " + alias).ack(ldsURL).nothing()
		w.publish(serve("b", 5))
		w.publish(without("a.shop:80"))
		c.equals("lds v6:").ack(ldsURL).nothing()
		d.equals("lds v6: -" + alias).ack(ldsURL).nothing()
	})
}

// An Envoy whose own cluster names the DNS name of a Kubernetes Service gets the
// assignment of the service by this name. Subscriptions and acknowledgements count for
// the service. A service that has the name of the alias goes first while it exists.
func TestAssignmentByAlias(t *testing.T) {
	const alias, name = "a.shop.svc.cluster.local:80", "a.shop:80"
	inWorld(t, func(w *world) {
		w.publish(serve("b", 1))
		c := w.ads(at("us-east/b"))
		d := w.delta(at("us-east/b"))
		subscribed := func(services ...string) {
			w.t.Helper()
			synctest.Wait()
			var got []string
			for _, s := range w.server.Subscriptions() {
				got = append(got, s.Service)
				if s.Streams != 2 || s.Acked != 2 {
					w.t.Errorf("%s: %d of %d streams acknowledged", s.Service, s.Acked, s.Streams)
				}
				if len(w.server.StreamsOf(s.Service)) != 2 || !w.server.Subscribed(s.Source, s.Service) {
					w.t.Errorf("the streams that subscribe to %s are not found", s.Service)
				}
			}
			if !slices.Equal(got, services) {
				w.t.Errorf("subscriptions to %q, want %q", got, services)
			}
		}
		c.request(edsURL, alias).nothing()
		d.subscribe(edsURL, alias).equals("eds v1: -" + alias).ack(edsURL).nothing()
		if subs := w.server.Subscriptions(); len(subs) != 1 || subs[0].Service != name {
			w.t.Errorf("before the service exists: subscriptions %+v", subs)
		}
		w.publish(serve(name, 2))
		c.equals("eds v2: " + alias + "@2").ack(edsURL).nothing()
		d.equals("eds v2: " + alias + "@2").ack(edsURL).nothing()
		subscribed(name)
		if subs := w.server.Subscribers(func(xds.Subscriber) bool { return false }); len(subs) != 1 || subs[0].Service != name || subs[0].Streams != 2 {
			w.t.Errorf("subscribers %+v", subs)
		}
		w.publish(serve("b", 2))
		c.nothing()
		d.nothing()
		w.publish(serve(alias, 3))
		c.equals("eds v4: " + alias + "@3").ack(edsURL).nothing()
		d.equals("eds v4: " + alias + "@3").ack(edsURL).nothing()
		subscribed(alias)
		w.publish(without(alias))
		c.equals("eds v5: " + alias + "@2").ack(edsURL).nothing()
		d.equals("eds v5: " + alias + "@2").ack(edsURL).nothing()
		subscribed(name)
		c.close()
		d.close()
		synctest.Wait()
		if subs := w.server.Subscriptions(); len(subs) > 0 || w.server.Subscribed(isobar.MustLocality("us-east/b"), name) {
			w.t.Errorf("after the streams: subscriptions %+v", subs)
		}
	})
}

// A client that drops a name and takes it again has forgotten the resource,
// even if both requests answered a response that another has overtaken.
func TestNameDroppedAndTakenAgainInFlight(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(edsURL, "a", "b").equals("eds v1: a@1 b@2")
		first := *c.kind(edsURL)
		c.ack(edsURL).nothing()
		w.publish(serve("b", 3))
		c.equals("eds v2: b@3")
		stale := func(names ...string) {
			c.send(&discoveryv3.DiscoveryRequest{TypeUrl: edsURL, VersionInfo: first.version, ResponseNonce: first.nonce, ResourceNames: names})
		}
		stale("b")
		stale("a", "b")
		c.nothing()
		c.ack(edsURL).equals("eds v2: a@1").ack(edsURL).nothing()
		// A name that stays dropped is not sent.
		w.publish(serve("b", 4))
		c.equals("eds v3: b@4")
		stale("b")
		c.request(edsURL, "b").nothing()
	})
}

// Two clients that ask for the same name hold the same state of it, whether the
// service left while they were connected or before.
func TestDeltaGoneServiceIsRemovedAfterItsEmptyAssignment(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.delta(at("us-east/b"))
		c.subscribe(edsURL, "a").equals("eds v1: a@1").ack(edsURL).nothing()
		w.publish(without("a"))
		c.equals("eds v2: a@none").ack(edsURL).equals("eds v2: -a").ack(edsURL).nothing()
		late := w.delta(at("us-east/b"))
		late.subscribe(edsURL, "a").equals("eds v2: -a").ack(edsURL).nothing()
		w.publish(serve("a", 2))
		c.equals("eds v3: a@2").ack(edsURL).nothing()
		late.equals("eds v3: a@2").ack(edsURL).nothing()
	})
}

// A client that rejects the empty assignment keeps what it has: the name is not
// withdrawn beside it.
func TestDeltaRejectedEmptyAssignmentIsNotRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.delta(at("us-east/b"))
		c.subscribe(edsURL, "a").equals("eds v1: a@1").ack(edsURL).nothing()
		w.publish(without("a"))
		c.equals("eds v2: a@none").nack(edsURL, "no").nothing()
	})
}

// A first request that only unsubscribes asks for nothing.
func TestDeltaFirstUnsubscribeIsNoWildcard(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.delta(at("us-east/b"))
		c.subscribe(cdsURL, "-a").equals("cds v1:").ack(cdsURL)
		w.publish(serve("b", 2))
		c.nothing()
	})
}

// The feature that says that a client unwraps resources has two names.
func TestFeatureOfWrappedResources(t *testing.T) {
	for _, feature := range []string{"xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw"} {
		node := at("us-east/b")
		node.ClientFeatures = []string{feature}
		if n, err := rpc.NodeFrom(node); err != nil || !n.Wrapped {
			t.Errorf("%s: wrapped %v, error %v", feature, n.Wrapped, err)
		}
	}
}

// An Envoy does not finish its start before each of its assignments was answered,
// and one that came back after a service had left kept endpoints that the others
// had lost: names of no service are answered, and forgotten like others.
func TestEnvoysAreToldThatAServiceIsUnknown(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		node := at("us-east/b")
		node.UserAgentName = "envoy"
		c := w.ads(node)
		c.request(edsURL, "", "*", "a", "gone").equals("eds v1: a@1 gone@none").ack(edsURL).nothing()
		w.publish(serve("a", 2))
		c.equals("eds v2: a@2").ack(edsURL).nothing()
		w.publish(serve("gone", 3))
		c.equals("eds v3: gone@3").ack(edsURL).nothing()
		w.publish(without("gone"))
		c.equals("eds v4: gone@none").ack(edsURL).nothing()
		c.request(edsURL, "a", "gone", "more").equals("eds v4: more@none").ack(edsURL).nothing()
	})
}

// A grpc-js client compares what returns with what was removed, and ignores
// what is equal; C-core waits for routes that did not change. Each time a service
// returns to them, its listener and its cluster differ.
func TestWhatReturnsDiffersForClientsThatCompare(t *testing.T) {
	for agent, contents := range map[string]int{"gRPC Node Pure JS": 3, "gRPC C-core Linux": 3, "gRPC Go": 1, "gRPC Java": 1} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1), serve("b", 1))
			node := at("us-east/b")
			node.UserAgentName = agent
			for _, url := range []string{ldsURL, cdsURL} {
				c := w.ads(node)
				c.request(url, "a", "b")
				different, others := map[string]bool{}, map[string]bool{}
				for range 3 { // there, gone, there again
					w.publish(serve("a", 1))
					for _, m := range c.take() {
						for _, r := range m.(*discoveryv3.DiscoveryResponse).GetResources() {
							set := different
							if describeResource(t, r) != "a" {
								set = others
							}
							set[string(r.GetValue())] = true
						}
					}
					c.ack(url).nothing()
					w.publish(without("a"))
					c.equals(fmt.Sprintf("%s v%d: b", resource.KindOf(url), w.version)).ack(url).nothing()
				}
				if len(different) != contents || len(others) != 1 {
					t.Errorf("%s, %s: %d contents of what returned twice, want %d; %d of the other service", agent, url, len(different), contents, len(others))
				}
				c.close()
				w.publish(serve("a", 1))
			}
		})
	}
}

// A gRPC client learns from its cluster that a service is gone. An assignment
// without endpoints would remove what it keeps with ignore_resource_deletion.
func TestGRPCClientsAreNotToldTwiceThatAServiceIsGone(t *testing.T) {
	for _, cds := range []bool{true, false} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1), serve("b", 1))
			node := at("us-east/b")
			node.UserAgentName = "gRPC C-core Linux"
			c := w.ads(node)
			if cds {
				c.request(cdsURL, "a", "b").equals("cds v1: a b").ack(cdsURL)
			}
			c.request(edsURL, "a", "unknown").equals("eds v1: a@1").ack(edsURL).nothing()
			w.publish(without("a"))
			if cds {
				c.equals("cds v2: b").ack(cdsURL).nothing()
			} else {
				c.equals("eds v2: a@none").ack(edsURL).nothing()
			}
		})
	}
}

// An Envoy before 1.37 refuses clusters that name wrr_locality, and with them the
// others of the response.
func TestOldEnvoysGetNoWRRLocality(t *testing.T) {
	for version, want := range map[string]string{"1.36.2": "cds v1: a", "1.40.0": "cds v1: a+orca"} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1), withORCA("a"))
			node := at("us-east/b")
			node.UserAgentName, node.UserAgentVersionType = "envoy", &corev3.Node_UserAgentVersion{UserAgentVersion: version}
			w.ads(node).request(cdsURL, "*").equals(want)
		})
	}
}
