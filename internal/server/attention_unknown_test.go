package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
)

// unknown lists what status tells of services that do not exist.
func (w *world) unknown() (named, others []string) {
	w.t.Helper()
	<-time.After(11 * time.Second) // what clients miss is remembered for 10 s
	for _, a := range w.status().Attention {
		switch {
		case a.Code != admin.ServiceUnknown:
		case a.Service != "":
			named = append(named, a.Text)
		default:
			others = append(others, a.Text)
		}
	}
	return named, others
}

// asks lets a client subscribe to names until leave is called.
func (w *world) asks(id, zone string, names ...string) (leave func()) {
	w.t.Helper()
	ctx, leave := context.WithCancel(w.ctx)
	if _, _, err := subscribe(ctx, w.conn, nodeIn(id, zone), append(names, "checkout")...); err != nil {
		w.t.Fatal(err)
	}
	return leave
}

func namesOfNoService(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return out
}

// TestAttentionToUnknownServices asserts that status names a service that does not exist as long as clients subscribe
// to it, with the number of their streams, and counts what it does not name.
func TestAttentionToUnknownServices(t *testing.T) {
	inWorld(t, configuration(t), func(w *world) {
		w.ticks(1)
		expect := func(named []string, others ...string) {
			t.Helper()
			gotNamed, gotOthers := w.unknown()
			if !slices.EqualFunc(gotNamed, named, strings.Contains) || !slices.Equal(gotOthers, others) {
				t.Errorf("told %q and %q, want %q and %q", gotNamed, gotOthers, named, others)
			}
		}
		expect(nil)
		one, two := w.asks("one", "us/a", "chekout"), w.asks("two", "us/b", "chekout")
		expect([]string{"(streams that ask for it: 2, one of node \"one\""})
		one()
		expect([]string{"(streams that ask for it: 1, one of node \"two\""})
		two()
		expect(nil)

		hundred := w.asks("hundred", "us/a", namesOfNoService("x", 100)...)
		if named, others := w.unknown(); len(named) != 10 || len(others) != 0 { // of one stream ten are named
			t.Errorf("told %q and %q", named, others)
		}
		more := w.asks("more", "us/a", "one-more")
		const counted = "clients subscribe to 101 assignments of services that do not exist, 101 of them in us/a; this list names 100 services at most"
		if named, others := w.unknown(); len(named) != 11 || !slices.Equal(others, []string{counted}) {
			t.Errorf("told %q and %q", named, others)
		}
		hundred()
		more()
		expect(nil)
	})
}

// TestAttentionToUnknownServicesOfManyLocalities asserts that status tells of names that it does not list, also where each
// locality has few of them.
func TestAttentionToUnknownServicesOfManyLocalities(t *testing.T) {
	const localities, names = 210, 60
	inWorld(t, configuration(t), func(w *world) {
		w.ticks(1)
		var leave []func()
		for i := range localities {
			leave = append(leave, w.asks(fmt.Sprint("node-", i), fmt.Sprintf("us/z%03d", i), namesOfNoService(fmt.Sprint("x", i), names)...))
		}
		counted := fmt.Sprintf("clients subscribe to %d assignments of services that do not exist, %d of them in us/z000; this list names 100 services at most",
			localities*names, names)
		if named, others := w.unknown(); len(named) < 99 || !slices.Equal(others, []string{counted}) {
			t.Errorf("%d are named, and of others told %q", len(named), others)
		}
		for _, l := range leave {
			l()
		}
		if named, others := w.unknown(); len(named)+len(others) > 0 {
			t.Errorf("told %q and %q of clients that left", named, others)
		}
	})
}
