package xds_test

import (
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/isobar-xds/isobar"
)

// shed gives a service drops by class: jobs are sheddable.
func shed(name string, critical, sheddable float64) edit {
	rules := &isobar.Criticality{
		Clients: []isobar.ClientClass{{Client: "job-*", Class: isobar.ClassSheddable}},
		MaxShed: isobar.ClassFractions{1, 1, 1, 1},
	}
	return func(p *testPlan) {
		a := *p.assignments[name]
		a.Drop = critical
		a.Classes = &isobar.ClassDrops{Criticality: rules, Drops: isobar.ClassFractions{0, critical, sheddable, sheddable}}
		p.assignments[name] = &a
	}
}

func nodeOf(cluster string) *corev3.Node {
	n := at("us-east/b")
	n.Cluster = cluster
	return n
}

// Clients of one locality that drop different parts are told what concerns them
// only, and counted together: what all of them get is what they acknowledge.
func TestClassesAreToldApart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 1), shed("a", 0, 0.5))
		web := w.ads(nodeOf("web")).request(edsURL, "a", "b").equals("eds v1: a@1 b@1").ack(edsURL)
		job := w.ads(nodeOf("job-7")).request(edsURL, "a", "b").equals("eds v1: a@1 drop 50/HUNDRED b@1").ack(edsURL)
		acked := func(streams, acked int) {
			t.Helper()
			synctest.Wait()
			got := w.server.Subscriptions()
			if len(got) != 2 || got[0].Streams != streams || got[0].Acked != acked || got[0].AckedAt.IsZero() == (acked == streams) {
				t.Fatalf("got %+v, want %d of %d streams to have acknowledged", got, acked, streams)
			}
		}
		acked(2, 2)
		w.publish(shed("a", 0, 0.75))
		web.nothing()
		job.equals("eds v2: a@1 drop 75/HUNDRED")
		acked(2, 2) // where requests go has not changed
		job.ack(edsURL)
		w.publish(serve("a", 2), shed("a", 0.25, 0.75))
		web.equals("eds v3: a@2 drop 25/HUNDRED").ack(edsURL)
		acked(2, 1)
		job.equals("eds v3: a@2 drop 75/HUNDRED").ack(edsURL)
		acked(2, 2)
		w.publish(serve("a", 2)) // no classes any more
		web.equals("eds v4: a@2").ack(edsURL)
		job.equals("eds v4: a@2").ack(edsURL)
		acked(2, 2)
		web.close()
		job.close()
	})
}
