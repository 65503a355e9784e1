package xds_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds"
)

func TestControlPlaneIsNamed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		sotw := w.ads(nil).request(edsURL, "a").take()
		if got := sotw[0].(*discoveryv3.DiscoveryResponse).GetControlPlane().GetIdentifier(); got != "test-plane" {
			w.t.Errorf("state of the world: %q", got)
		}
		delta := w.delta(nil).subscribe(edsURL, "a").take()
		if got := delta[0].(*discoveryv3.DeltaDiscoveryResponse).GetControlPlane().GetIdentifier(); got != "test-plane" {
			w.t.Errorf("delta: %q", got)
		}
	})
}

func TestSlowStreamDelaysNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		// Far more than the window of flow control.
		big := make([]int, 20_000)
		for i := range big {
			big[i] = i + 1
		}
		w.publish(serve("a", 1), func(p *testPlan) {
			p.assignments["big"] = assignmentOf("big", big...)
			p.specs["big"] = &isobar.Service{Name: "big"}
		})
		slow := w.open(adsMethod, at("us-east/b"), false)
		slow.request(edsURL, "a", "big")
		synctest.Wait()
		quick := w.ads(at("us-east/b"))
		quick.request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		for port := 2; port < 10; port++ {
			w.publish(serve("a", port))
			if got := quick.settled(); len(got) != 1 {
				w.t.Fatalf("the quick client got %q", got)
			}
		}
		slow.resume()
		slow.equals("eds v1: a@1 big@1").ack(edsURL).equals("eds v9: a@9").ack(edsURL).nothing()
	})
}

func TestAckedAtOfSubscriptions(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 1), serveAt("a", "eu-west/a", 9))
		start := time.Now()
		only := func() load.Subscription {
			w.t.Helper()
			synctest.Wait()
			for _, s := range w.server.Subscriptions() {
				if s.Service == "a" && s.Source.String() == "us-east/b" {
					return s
				}
			}
			return load.Subscription{}
		}
		clients := make([]*client, 20)
		for i := range clients {
			clients[i] = w.ads(at("us-east/b")).request(edsURL, "a", "b").equals("eds v1: a@1 b@1")
		}
		elsewhere := w.ads(at("eu-west/a")).request(edsURL, "a").equals("eds v1: a@9").ack(edsURL)
		for i, c := range clients[:18] {
			c.ack(edsURL)
			if got := only(); got.Streams != 20 || got.Acked != i+1 || !got.AckedAt.IsZero() {
				w.t.Fatalf("after %d of 20: %+v", i+1, got)
			}
		}
		<-time.After(time.Second)
		clients[18].ack(edsURL)
		at95 := start.Add(time.Second)
		if got := only(); !got.AckedAt.Equal(at95) {
			w.t.Fatalf("after 95%%: %+v, want acked at %v", got, at95)
		}
		<-time.After(time.Second)
		clients[19].nack(edsURL, "no")
		w.publish()              // the same content
		w.publish(serve("b", 2)) // something else
		for _, c := range clients {
			c.settled()
		}
		if got := only(); !got.AckedAt.Equal(at95) || got.Acked != 19 {
			w.t.Fatalf("after other news: %+v, want acked at %v", got, at95)
		}
		// A stream that joins begins with the current content.
		w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v3: a@1")
		if got := only(); got.Streams != 21 || !got.AckedAt.Equal(at95) {
			w.t.Fatalf("after another stream joined: %+v", got)
		}
		// Elsewhere something changes, here nothing does.
		w.publish(serveAt("a", "eu-west/a", 10))
		elsewhere.equals("eds v4: a@10")
		if got := only(); !got.AckedAt.Equal(at95) {
			w.t.Fatalf("after news elsewhere: %+v", got)
		}
		w.publish(serve("a", 2))
		// At once, even before any stream was told.
		if got := w.server.Subscriptions(); got[1].Service != "a" || got[1].Acked != 0 || !got[1].AckedAt.IsZero() {
			w.t.Fatalf("after a change: %+v", got)
		}
		<-time.After(time.Second)
		for _, c := range clients[:19] {
			c.settled()
		}
		if got := only(); got.Acked != 19 || !got.AckedAt.IsZero() {
			w.t.Fatalf("19 of 21: %+v", got)
		}
		// The ones that do not answer leave.
		clients[19].close()
		if got := only(); got.Streams != 20 || !got.AckedAt.Equal(start.Add(3*time.Second)) {
			w.t.Fatalf("19 of 20: %+v", got)
		}
	})
}

func TestChangedSignalsNewSubscriptions(t *testing.T) {
	inWorld(t, func(w *world) {
		signalled := func() bool {
			synctest.Wait()
			select {
			case <-w.server.Changed():
				return true
			default:
				return false
			}
		}
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b")).request(cdsURL)
		if c.settled(); signalled() {
			w.t.Error("clusters are no sources")
		}
		c.request(edsURL, "a", "b").settled()
		if !signalled() || signalled() {
			w.t.Error("want one signal for a new locality")
		}
		w.ads(at("us-east/b")).request(edsURL, "a").settled()
		if signalled() {
			w.t.Error("another stream of the same locality is no news")
		}
		w.ads(at("eu-west/a")).request(edsURL, "a").settled()
		if !signalled() {
			w.t.Error("another locality is news")
		}
		c.request(edsURL, "a", "b", "c").settled()
		if !signalled() {
			w.t.Error("another service is news")
		}
	})
}

func TestStreamsThatEndLeaveNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		for range 10 {
			c := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1")
			c.close()
		}
		synctest.Wait()
		if n, m := len(w.server.Clients()), len(w.server.Subscriptions()); n != 0 || m != 0 {
			w.t.Errorf("%d clients and %d subscriptions are left", n, m)
		}
	})
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		w.publish(serve("a", 2))
		c.equals("eds v2: a@2").nack(edsURL, "no").nothing()
		for name, want := range map[string]float64{
			"isobar_xds_streams": 1, "isobar_xds_requests_total": 3, "isobar_xds_pushes_total": 2,
			"isobar_xds_acks_total": 1, "isobar_xds_nacks_total": 1, "isobar_xds_push_errors_total": 0,
		} {
			if got := testhelp.Metric(w.t, registry, name); got != want {
				w.t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if testhelp.Metric(w.t, registry, "isobar_xds_sent_bytes_total") == 0 {
			w.t.Error("no bytes counted")
		}
	}, func(o *xds.Options) { o.Registerer = registry })
}
