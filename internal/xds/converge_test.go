package xds_test

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Whatever happens in whichever order, a client that answers ends up with what
// is published.
func TestClientsConverge(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	for seed := range uint64(60) {
		inWorld(t, func(w *world) {
			random := rand.New(rand.NewPCG(7, seed))
			w.publish(serve("a", 1), serve("b", 1))
			sotw, delta := w.ads(at("us-east/b")), w.delta(at("us-east/b"))
			sotw.request(edsURL, names...)
			sotw.request(cdsURL)
			delta.subscribe(edsURL, names...)
			delta.subscribe(cdsURL)
			held := []map[string]string{{}, {}} // of both clients
			for step := range 30 {
				n := names[random.IntN(len(names))]
				switch random.IntN(5) {
				case 0:
					w.publish(without(n))
				case 1, 2:
					w.publish(serve(n, 2+step))
				case 3:
					if w.plan.specs[n] != nil {
						w.publish(withORCA(n))
					}
				}
				for i, c := range []*client{sotw, delta} {
					if random.IntN(3) > 0 {
						answer(c, held[i])
					}
				}
			}
			for range 8 {
				answer(sotw, held[0])
				answer(delta, held[1])
			}
			for i, protocol := range []string{"state of the world", "delta"} {
				if got, want := held[i], expected(w, names); !sameMap(got, want) {
					w.t.Errorf("seed %d, %s: the client holds %v, want %v", seed, protocol, got, want)
				}
			}
			for _, s := range w.server.Subscriptions() {
				if w.plan.specs[s.Service] != nil && (s.Acked != 2 || s.AckedAt.IsZero()) {
					w.t.Errorf("seed %d: %+v, want that both clients have what is published", seed, s)
				}
			}
			for _, c := range w.server.Clients() {
				if !c.InSync {
					w.t.Errorf("seed %d: not in sync: %+v", seed, c)
				}
			}
		})
	}
}

// answer applies and accepts what came, as a client does.
func answer(c *client, held map[string]string) {
	for _, m := range c.take() {
		words := strings.Fields(describe(c.w.t, m))
		kind := words[0]
		if kind == "cds" && !c.delta {
			for k := range held {
				if strings.HasPrefix(k, "cds ") {
					delete(held, k) // a full set
				}
			}
		}
		for _, word := range words[2:] {
			switch name, content, _ := strings.Cut(strings.ReplaceAll(word, "+", "@+"), "@"); {
			case strings.HasPrefix(name, "-"):
				if kind == "cds" { // Envoy ignores removals of assignments
					delete(held, "cds "+name[1:])
				}
			default:
				held[kind+" "+name] = content
			}
		}
		c.ack(m.(interface{ GetTypeUrl() string }).GetTypeUrl())
	}
}

func expected(w *world, names []string) map[string]string {
	want := map[string]string{}
	for _, n := range names {
		s := w.plan.specs[n]
		if s == nil {
			continue
		}
		want["cds "+n] = ""
		if s.ORCA.On {
			want["cds "+n] = "+orca"
		}
		e := w.plan.assignments[n].Priorities[0][0].Endpoints[0]
		want["eds "+n] = e.Address[strings.LastIndex(e.Address, ":")+1:]
	}
	return want
}

// sameMap ignores emptied assignments.
func sameMap(got, want map[string]string) bool {
	for k, v := range got {
		if v != "none" && want[k] != v {
			return false
		}
	}
	for k, v := range want {
		if got[k] != v {
			return false
		}
	}
	return true
}
