package xds_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
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

// news gives the names of what came since, once each, without accepting it.
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
