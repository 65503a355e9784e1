package xds_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds"
)

// Clients list the names of a request in whatever order, some name one twice,
// and many share a list: what counts is which names there are.
func TestNamesInAnyOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		all := []string{"a", "b", "c", "d", "e"}
		for i, name := range all {
			w.publish(serve(name, i+1))
		}
		random := rand.New(rand.NewPCG(1, 2))
		others := []*client{w.ads(at("us-east/b")), w.ads(at("us-east/b"))}
		for _, c := range others {
			c.request(edsURL, "c", "a", "b")
			c.settled()
		}
		c := w.ads(at("us-east/b"))
		var before []string
		port := 10
		for step := range 300 {
			names := slices.Clone(before)
			switch random.IntN(4) {
			case 0: // other names, often as many
				names = slices.Clone(all)
				random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
				names = names[:1+random.IntN(3)]
			case 1: // one of them twice, instead of another
				if len(names) > 1 {
					names[random.IntN(len(names))] = names[random.IntN(len(names))]
				}
			}
			if len(names) == 0 {
				names = []string{"a"}
			}
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			want := map[string]bool{}
			for _, n := range names {
				want[n] = !slices.Contains(before, n)
			}
			c.request(edsURL, names...)
			if got := news(w.t, c); got != list(want) {
				t.Fatalf("step %d: %v after %v brought %q, want %q", step, names, before, got, list(want))
			}
			before = names
			shuffled := slices.Clone(names)
			random.Shuffle(len(names), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			c.request(edsURL, shuffled...).nothing()

			// What changes comes to whoever asks for it; it is accepted at the next step.
			port++
			changed := all[random.IntN(len(all))]
			w.publish(serve(changed, port))
			want = map[string]bool{changed: slices.Contains(names, changed)}
			if got := news(w.t, c); got != list(want) {
				t.Fatalf("step %d: a change of %q brought %q to who asks for %v", step, changed, got, names)
			}
		}
		for _, c := range others {
			if got := len(c.settled()); got == 0 {
				t.Error("a stream with a list that it shares got nothing")
			}
		}
	})
}

// news returns the names of what came since, once each, without accepting it.
func news(t *testing.T, c *client) string {
	t.Helper()
	got := map[string]bool{}
	for _, m := range c.take() {
		_, resources, _ := strings.Cut(describe(t, m), ": ")
		for r := range strings.FieldsSeq(resources) {
			name, _, _ := strings.Cut(r, "@")
			got[name] = true
		}
	}
	return list(got)
}

// list lists the names that are set, sorted.
func list(names map[string]bool) string {
	var out []string
	for n, set := range names {
		if set {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

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
