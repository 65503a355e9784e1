package xds_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds"
)

// TestNamesOfNoServiceAreTold: a client that asks for a service that does not
// exist is in sync, and all of its calls fail. The name, and who asks for it, is
// told of the client and of all clients, counted and logged, until the service
// exists or the client asks no more.
func TestNamesOfNoServiceAreTold(t *testing.T) {
	registry := prometheus.NewRegistry()
	log := new(testhelp.Log)
	options := func(o *xds.Options) {
		o.Registerer, o.Log = registry, slog.New(slog.NewTextHandler(log, nil))
	}
	inWorld(t, func(w *world) {
		missing := func(want ...string) {
			t.Helper()
			var got []string
			for _, m := range w.server.Missing() {
				got = append(got, fmt.Sprintf("%s %d %s", m.Name, m.Streams, m.Node))
			}
			if strings.Join(got, ",") != strings.Join(want, ",") {
				t.Errorf("missing %q, want %q", got, want)
			}
			if n := testhelp.Metric(t, registry, "isobar_xds_missing_services"); int(n) != len(want) {
				t.Errorf("isobar_xds_missing_services is %v, want %d", n, len(want))
			}
		}
		w.publish(serve("checkout", 1), await("late"))
		c := w.ads(at("us-east/b"))
		c.request(ldsURL, "checkout", "late", "chekout", "grpc/server?xds.resource.listening_address=0.0.0.0:80").settled()
		d := w.delta(at("us-east/c"))
		d.subscribe(cdsURL, "chekout", "xdstp://us/envoy.config.cluster.v3.Cluster/chekout", "*").settled()
		missing("chekout 2 node-us-east-b")
		for _, client := range w.server.Clients() {
			if m := client.Types[0]; len(m.Missing) != 1 || m.Missing[0] != "chekout" || m.MissingCount < 1 || !m.InSync {
				t.Errorf("of %s: %+v", client.Node, m)
			}
		}
		if n := testhelp.Metric(t, registry, "isobar_xds_missing_names_total", "cds"); n != 2 {
			t.Errorf("%v subscriptions of clusters counted, want 2", n)
		}
		if text := log.String(); !strings.Contains(text, "name=chekout node=node-us-east-b") || strings.Contains(text, "name=late") {
			t.Errorf("log: %s", text)
		}
		c.request(ldsURL, "checkout").settled()
		<-time.After(11 * time.Second) // virtual
		missing("chekout 1 node-us-east-c")
		w.publish(serve("chekout", 2))
		d.settled()
		missing()
		w.publish(without("chekout")) // as when a service is removed
		d.settled()
		missing("chekout 1 node-us-east-c")
	}, options)
}

// Names of no service are counted and logged for each client that begins to ask for
// them, also where clients share what they are sent.
func TestMissingNamesOfClientsThatShare(t *testing.T) {
	registry := prometheus.NewRegistry()
	log := new(testhelp.Log)
	inWorld(t, func(w *world) {
		w.publish(serve("checkout", 1))
		for range 3 {
			w.ads(at("us-east/b")).request(edsURL, "checkout", "chekout").equals("eds v1: checkout@1").ack(edsURL)
		}
		if n := testhelp.Metric(t, registry, "isobar_xds_missing_names_total", "eds"); n != 3 {
			t.Errorf("%v subscriptions of assignments counted, want 3", n)
		}
		if text := log.String(); !strings.Contains(text, "name=chekout node=node-us-east-b") {
			t.Errorf("log: %s", text)
		}
		if m := w.server.Missing(); len(m) != 1 || m[0].Name != "chekout" || m[0].Streams != 3 {
			t.Errorf("missing %+v, want chekout of 3 streams", m)
		}
	}, func(o *xds.Options) {
		o.Registerer, o.Log = registry, slog.New(slog.NewTextHandler(log, nil))
	})
}
