package xds_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/xds"
)

func manyNames(o *xds.Options) { o.StreamNames, o.NameMemory = 1<<30, 1<<30 }

// askedIn returns how many streams subscribe to a service, -1 if it is not listed, and how many
// services are listed.
func askedIn(list []load.Subscription, service string) (streams, listed int) {
	streams = -1
	for i := range list {
		if list[i].Service == service {
			streams = list[i].Streams
		}
	}
	return streams, len(list)
}

// The loop asks at each tick who subscribes to what: names that no service has, of which clients
// may ask for any number, must cost it nothing.
func TestUnknownNamesAreNotCopied(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		var clients []*client
		for i := range 10 {
			names := append(numbered(fmt.Sprint("x", i), 10_000), "a")
			clients = append(clients, w.ads(at("us-east/b")).request(edsURL, names...).equals("eds v1: a@1"))
		}
		synctest.Wait()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		list := w.server.Subscriptions()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<16 {
			t.Errorf("to list the subscriptions takes %d bytes", took)
		}
		if n, listed := askedIn(list, "a"); n != 10 || listed != 101 {
			t.Errorf("%d streams ask for a among %d subscriptions, want 10 and 101", n, listed)
		}
		if l, n, _ := w.server.MissingIn(); l != isobar.MustLocality("us-east/b") || n != 100_000 {
			t.Errorf("%d names are missing in %v", n, l)
		}
		for _, c := range clients {
			c.close()
		}
		synctest.Wait()
		if _, _, n := w.server.MissingIn(); n != 0 || len(w.server.Subscriptions()) != 0 {
			t.Errorf("%d names are missing, and %v subscribed, after the stream has ended", n, w.server.Subscriptions())
		}
	}, manyNames)
}

// However many localities ask for names that no service has, 10,000 of them are listed at most.
func TestUnknownNamesOfManyLocalities(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		for i := range 250 {
			w.ads(at(fmt.Sprintf("us-east/%d", i))).request(edsURL, append(numbered("x", 60), "a")...).equals("eds v1: a@1")
		}
		_, listed := askedIn(w.server.Subscriptions(), "a")
		if listed != 250+10_000 {
			t.Errorf("%d subscriptions are listed", listed)
		}
	})
}

// A service that comes is listed with all that ask for it, by whatever name, even if it was left out
// before; one that goes is a name that no service has.
func TestSubscriptionsOfServicesThatComeAndGo(t *testing.T) {
	const late, alias = "shop.prod:80", "shop.prod.svc.cluster.local:80"
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		many := w.ads(at("us-east/b")).request(edsURL, append(numbered("b", 300), "a")...).equals("eds v1: a@1")
		one := w.ads(at("us-east/b")).request(edsURL, late, alias).nothing()
		other := w.ads(at("us-east/b")).request(edsURL, tp+"envoy.config.endpoint.v3.ClusterLoadAssignment/"+late).nothing()
		want := func(streams, missing int) {
			t.Helper()
			synctest.Wait()
			list := w.server.Subscriptions()
			if n, _ := askedIn(list, late); n != streams {
				t.Errorf("%d streams ask for %s, want %d: %d subscriptions", n, late, streams, len(list))
			}
			if _, _, n := w.server.MissingIn(); n != missing {
				t.Errorf("%d names are missing, want %d", n, missing)
			}
		}
		want(-1, 303)
		w.publish(serve(late, 2))
		want(3, 300)
		w.publish(without("a"))
		want(3, 301)
		w.publish(serve("a", 1))
		want(3, 300)
		one.take()
		one.request(edsURL, late)
		want(2, 300)
		w.publish(without(late))
		many.close()
		one.close()
		w.publish(serve("c", 1))
		want(1, 1)
		other.close()
		want(-1, 0)
	})
}
