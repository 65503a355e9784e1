package xds_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds"
)

func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%06d", prefix, i)
	}
	return out
}

// nameBytes is what the server says that names take.
func nameBytes(t *testing.T, r *prometheus.Registry) float64 {
	t.Helper()
	synctest.Wait()
	return testhelp.Metric(t, r, "isobar_xds_name_bytes")
}

// TestNamesOfAStreamHaveABudget: in one request or many, state of the world or
// delta, whoever subscribes to more than a stream may is told so, and leaves
// nothing behind.
func TestNamesOfAStreamHaveABudget(t *testing.T) {
	registry := prometheus.NewRegistry()
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		for _, c := range []*client{
			w.ads(at("us-east/b")).request(edsURL, numbered("x", 3000)...),
			w.ads(at("us-east/b")).request(edsURL, numbered("x", 1200)...).request(rdsURL, numbered("x", 4500)...),
			w.delta(at("us-east/b")).subscribe(edsURL, numbered("x", 1200)...).subscribe(edsURL, numbered("y", 2000)...),
		} {
			got := c.status()
			if got.Code() != codes.ResourceExhausted || !strings.Contains(got.Message(), "too many names on one stream: they take ") {
				t.Errorf("got %v: %s", got.Code(), got.Message())
			}
		}
		few := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1")
		few.close()
		if n := nameBytes(t, registry); n != 0 {
			t.Errorf("%v bytes are left of streams that ended", n)
		}
	}, func(o *xds.Options) { o.StreamNames, o.Registerer = 1<<20, registry })
}

// TestNamesOfAllStreamsHaveABudget: streams with very many names get as far as
// there is room, and no further; those with a few are served nevertheless, and
// so are all that were there before.
func TestNamesOfAllStreamsHaveABudget(t *testing.T) {
	const limit = 4 << 20
	registry := prometheus.NewRegistry()
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		refused := 0
		var greedy []*client
		for i := range 40 {
			c := w.ads(at(fmt.Sprintf("us-east/%d", i))).request(edsURL, append(numbered(fmt.Sprint("x", i), 1000), "a")...)
			if got := c.status(); got.Code() == codes.OK {
				greedy = append(greedy, c.equals("eds v1: a@1").ack(edsURL))
			} else if refused++; got.Code() != codes.ResourceExhausted || !strings.Contains(got.Message(), "too many names on all streams: they take ") {
				t.Fatalf("got %v: %s", got.Code(), got.Message())
			}
		}
		if refused == 0 || len(greedy) < 2 {
			t.Fatalf("%d were served and %d refused", len(greedy), refused)
		}
		if n := nameBytes(t, registry); n > limit {
			t.Errorf("names take %v bytes, want at most %d", n, limit)
		}
		modest := w.ads(at("us-east/z")).request(edsURL, append(numbered("m", 100), "a")...).equals("eds v1: a@1").ack(edsURL)
		w.publish(serve("a", 2))
		modest.equals("eds v2: a@2").ack(edsURL)
		for _, c := range greedy {
			c.equals("eds v2: a@2").ack(edsURL)
			c.close()
		}
		modest.close()
		if n := nameBytes(t, registry); n != 0 {
			t.Errorf("%v bytes are left of streams that ended", n)
		}
	}, func(o *xds.Options) { o.NameMemory, o.Registerer = limit, registry })
}

// TestAnswersEndNoStream: what others subscribe to bars those that ask for more.
// Who answers what it was sent asks for nothing.
func TestAnswersEndNoStream(t *testing.T) {
	for _, delta := range []bool{true, false} {
		inWorld(t, func(w *world) {
			names := numbered("x", 250)
			w.publish(serve(names[0], 1))
			var c *client
			if delta {
				c = w.delta(at("us-east/b")).subscribe(edsURL, names...)
			} else {
				c = w.ads(at("us-east/b")).request(edsURL, names...)
			}
			c.settled()
			for range 30 { // each within what it may always have
				m := w.delta(at("us-east/b")).subscribe(edsURL, names[:90]...)
				if m.settled(); m.status().Code() != codes.OK {
					t.Fatal(m.status())
				}
			}
			w.publish(serve(names[0], 2))
			c.settled()
			c.nack(edsURL, "no")
			w.publish(serve(names[0], 3))
			c.settled()
			c.ack(edsURL)
			if got := c.status(); got.Code() != codes.OK {
				t.Errorf("delta %v: %v", delta, got)
			}
			if delta {
				c.subscribe(edsURL, "more")
			} else {
				c.request(edsURL, append(names, "more")...)
			}
			if got := c.status(); got.Code() != codes.ResourceExhausted {
				t.Errorf("delta %v, for more: %v", delta, got)
			}
		}, func(o *xds.Options) { o.NameMemory = 168 << 10 })
	}
}

// TestNamesOfOneAddressHaveABudget: an address without certificate gets an eighth of the
// memory for names, in few streams or many; what it shares with its own streams counts once,
// and all others go on.
func TestNamesOfOneAddressHaveABudget(t *testing.T) {
	const limit = 16 << 20
	registry := prometheus.NewRegistry()
	account := "10.0.0.1"
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		var same []*client
		for range 30 { // of a fleet behind one address
			same = append(same, w.ads(at("us-east/b")).request(edsURL, append(numbered("same", 1000), "a")...).equals("eds v1: a@1").ack(edsURL))
		}
		version := "eds v1: a@1"
		var open []*client
		greedy := func(names int, streams int) (refused int) {
			for range streams {
				c := w.ads(at("us-east/b")).request(edsURL, append(numbered(fmt.Sprint("x", len(open)), names), "a")...)
				open = append(open, c)
				if got := c.status(); got.Code() == codes.OK {
					c.equals(version).ack(edsURL)
				} else if refused++; got.Code() != codes.ResourceExhausted || !strings.Contains(got.Message(), "too many names on all streams of one address: they take ") {
					t.Fatalf("got %v: %s", got.Code(), got.Message())
				}
			}
			return refused
		}
		if n := greedy(1000, 10); n < 4 || n == 10 {
			t.Errorf("%d of 10 streams with many names were refused", n)
		}
		if n := greedy(100, 40); n < 20 {
			t.Errorf("%d of 40 streams with some names were refused", n)
		}
		if n := nameBytes(t, registry); n > limit/8+limit/32 {
			t.Errorf("names take %v bytes, want about %d at most", n, limit/8)
		}
		few := w.ads(at("us-east/b")).request(edsURL, append(numbered("few", 10), "a")...).equals("eds v1: a@1").ack(edsURL)
		account = "10.0.0.2"
		other := w.ads(at("us-east/b")).request(edsURL, append(numbered("other", 1000), "a")...).equals("eds v1: a@1").ack(edsURL)
		account = "" // a certificate was shown
		known := w.ads(at("us-east/b")).request(edsURL, append(numbered("known", 1000), "a")...).equals("eds v1: a@1").ack(edsURL)
		w.publish(serve("a", 2))
		few.equals("eds v2: a@2").ack(edsURL)
		for _, c := range append(same, other, known) {
			c.equals("eds v2: a@2").ack(edsURL)
			c.close()
		}
		for _, c := range open {
			if c.status().Code() == codes.OK {
				c.equals("eds v2: a@2").ack(edsURL)
			}
			c.close()
		}
		account, version = "10.0.0.1", "eds v2: a@2"
		if n := greedy(1000, 1); n != 0 {
			t.Error("the address is refused though its other streams ended")
		}
		few.close()
		open[len(open)-1].close()
		if n := nameBytes(t, registry); n != 0 {
			t.Errorf("%v bytes are left of streams that ended", n)
		}
	}, func(o *xds.Options) {
		o.NameMemory, o.Registerer = limit, registry
		o.Account = func(context.Context) string { return account }
	})
}

// TestStreamsThatAskAtOnceHaveABudget: however many streams of one address ask for names
// at the same moment, and whatever they share, they get no further than streams that ask
// one after the other.
func TestStreamsThatAskAtOnceHaveABudget(t *testing.T) {
	const memory = 32 << 20
	request := func(c *client, names []string) { c.request(edsURL, names...) }
	for name, test := range map[string]struct {
		streams, own int
		ask          func(c *client, names []string)
	}{
		"names of their own": {400, 150, request},
		"many names":         {20, 20_000, request},
		"and one that is":    {400, 150, func(c *client, names []string) { c.request(edsURL, append(names, "a")...) }},
		"delta":              {400, 150, func(c *client, names []string) { c.subscribe(edsURL, names...) }},
		"many names, delta":  {20, 20_000, func(c *client, names []string) { c.subscribe(edsURL, names...) }},
		"clusters":           {400, 150, func(c *client, names []string) { c.request(cdsURL, names...) }},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			most := int64(0)
			var server atomic.Pointer[xds.Server]
			stop := make(chan struct{})
			var watching sync.WaitGroup
			watching.Go(func() { // outside of the bubble, which it would keep from resting
				for {
					if s := server.Load(); s != nil {
						used, _ := s.NameMemory()
						most = max(most, used)
					}
					select {
					case <-stop:
						return
					default:
						runtime.Gosched()
					}
				}
			})
			inWorld(t, func(w *world) {
				w.publish(serve("a", 1))
				server.Store(w.server)
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16)) // more requests at the same moment
				clients := make([]*client, test.streams)
				for i := range clients {
					if strings.Contains(name, "delta") {
						clients[i] = w.delta(at("us-east/b"))
					} else {
						clients[i] = w.ads(at("us-east/b"))
					}
				}
				var all sync.WaitGroup
				for i, c := range clients {
					all.Go(func() { test.ask(c, numbered(fmt.Sprint("x", i), test.own)) })
				}
				all.Wait()
				synctest.Wait()
				for _, c := range clients {
					c.close()
				}
				if n := nameBytes(t, registry); n != 0 {
					t.Errorf("%v bytes are left of streams that ended", n)
				}
			}, func(o *xds.Options) {
				o.NameMemory, o.Registerer = memory, registry
				o.Account = func(context.Context) string { return "address" }
			})
			close(stop)
			watching.Wait()
			// Above the limit is at most what each stream may always have, and what a few
			// requests reserve while they are refused.
			if bound := int64(memory/8 + test.streams*(8<<10) + 24<<20); most > bound || most < 1<<20 {
				t.Errorf("names took up to %d bytes, want at most %d", most, bound)
			}
		})
	}
}
