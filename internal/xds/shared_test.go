package xds_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds"
)

// Streams that subscribe to the same names share responses, and yet each goes its
// own way: what one rejects, leaves out, is slow to take or comes late for, no
// other notices.
func TestStreamsThatShareStayApart(t *testing.T) {
	names := []string{"a", "b", "c"}
	for seed := range uint64(80) {
		inWorld(t, func(w *world) {
			random := rand.New(rand.NewPCG(11, seed))
			w.publish(serve("a", 1), serve("b", 1))
			var clients []*client
			var held []map[string]string
			join := func() {
				clients = append(clients, w.ads(at("us-east/b")).request(edsURL, names...))
				held = append(held, map[string]string{})
			}
			join()
			join()
			for step := range 40 {
				n := names[random.IntN(len(names))]
				switch random.IntN(9) {
				case 0, 1, 2, 3:
					w.publish(serve(n, 2+step))
				case 4:
					w.publish(without(n))
				case 5:
					if len(clients) < 6 {
						join()
					}
				case 6:
					w.server.Clients()
					for i := range w.server.Introspect() {
						i.Resources()
					}
				case 7:
					if i := random.IntN(len(clients)); clients[i].kind(edsURL).nonce != "" {
						clients[i].request(edsURL, names[:1+random.IntN(2)]...).request(edsURL, names...)
					}
				}
				for i, c := range clients {
					switch random.IntN(4) {
					case 0, 1:
						answer(c, held[i])
					case 2:
						if step%7 == 0 && len(c.take()) > 0 {
							c.nack(edsURL, "no")
						}
					}
				}
			}
			for i, n := range names { // so that all have what they rejected, too
				w.publish(serve(n, 100+i))
			}
			for range 8 {
				for i, c := range clients {
					answer(c, held[i])
				}
			}
			want := map[string]string{"eds a": "100", "eds b": "101", "eds c": "102"}
			for i := range clients {
				if !sameMap(held[i], want) {
					w.t.Errorf("seed %d, client %d holds %v, want %v", seed, i, held[i], want)
				}
			}
			for _, s := range w.server.Subscriptions() {
				if s.Streams != len(clients) || s.Acked != len(clients) || s.AckedAt.IsZero() {
					w.t.Errorf("seed %d: %+v, want that all %d clients have what is published", seed, s, len(clients))
				}
			}
			for _, c := range w.server.Clients() {
				if !c.InSync {
					w.t.Errorf("seed %d: not in sync: %+v", seed, c)
				}
			}
			for i := range w.server.Introspect() {
				for _, r := range i.Resources() {
					if r.Delivery != xds.Accepted || r.Newer {
						w.t.Errorf("seed %d: %+v, want that it is accepted", seed, r)
					}
				}
			}
			for _, c := range clients {
				c.close()
			}
			if left := w.server.Subscriptions(); len(left) > 0 {
				w.t.Errorf("seed %d: %+v are left when all clients have gone", seed, left)
			}
		})
	}
}

// What is shared is told like everything else: on its way, and to be sent when
// what is on its way is answered.
func TestSharedResponsesAreTold(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 1))
		slow := w.ads(at("us-east/b")).request(edsURL, "a", "b").equals("eds v1: a@1 b@1").ack(edsURL)
		quick := w.ads(at("us-east/b")).request(edsURL, "a", "b").equals("eds v1: a@1 b@1").ack(edsURL)
		w.publish(serve("a", 2))
		quick.equals("eds v2: a@2").ack(edsURL).nothing()
		slow.equals("eds v2: a@2")
		w.publish(serve("a", 3))
		quick.equals("eds v3: a@3").ack(edsURL).nothing()
		slow.nothing()
		found := map[string]int{}
		for i := range w.server.Introspect() {
			for _, r := range i.Resources() {
				switch {
				case r.Name == "a" && r.Delivery == xds.Unanswered && r.Newer:
					found["a on its way, another waits"]++
				case r.Delivery == xds.Accepted && !r.Newer:
					found[r.Name]++
				}
			}
		}
		if found["a on its way, another waits"] != 1 || found["a"] != 1 || found["b"] != 2 {
			t.Errorf("%v", found)
		}
		if s := w.server.Subscriptions()[0]; s.Service != "a" || s.Acked != 1 || !s.AckedAt.IsZero() {
			t.Errorf("%+v, want that one of two has it", s)
		}
		slow.nack(edsURL, "no").equals("eds v3: a@3").ack(edsURL).nothing()
		if s := w.server.Subscriptions()[0]; s.Acked != 2 || s.AckedAt.IsZero() {
			t.Errorf("%+v, want that both have it", s)
		}
	})
}

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
