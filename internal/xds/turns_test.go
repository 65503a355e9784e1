package xds_test

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/prometheus/client_golang/prometheus"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds"
)

// TestStreamsThatWaitEnd: only a few requests are decoded and handled at once. A stream
// whose request waits for its turn ends when its client goes away, and keeps nothing of
// what the client sent until then.
func TestStreamsThatWaitEnd(t *testing.T) {
	for name, method := range map[string]string{"state of the world": adsMethod, "delta": adsDeltaMethod} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			var handle chan struct{}
			inWorld(t, func(w *world) {
				handle = make(chan struct{})
				w.publish(serve("a", 1))
				var all []*client
				handled := min(16, max(4, 2*runtime.GOMAXPROCS(0)))
				for range 5 * handled {
					c := w.open(method, at("us-east/a"), true)
					c.want(edsURL, "a")
					all = append(all, c)
				}
				synctest.Wait()
				open := func() int { return int(testhelp.Metric(t, registry, "isobar_xds_streams")) }
				if open() != len(all) {
					t.Fatalf("%d streams are open, want %d", open(), len(all))
				}
				for _, c := range all {
					c.cancel()
				}
				synctest.Wait()
				if open() > handled {
					t.Errorf("%d streams are open whose clients are gone, want at most %d, whose requests are handled", open(), handled)
				}
				close(handle)
				synctest.Wait()
				if open() != 0 {
					t.Errorf("%d streams are open whose clients are gone", open())
				}
			}, func(o *xds.Options) {
				o.Registerer = registry
				o.Admit = func(context.Context, rpc.Node) error {
					<-handle
					return nil
				}
			})
		})
	}
}

// TestFewRequestsAreAnsweredAtOnce: single requests wait for their turn before they are
// decoded, and those that came over HTTP before their names are listed.
func TestFewRequestsAreAnsweredAtOnce(t *testing.T) {
	var asked atomic.Int64
	var answer chan struct{}
	inWorld(t, func(w *world) {
		answer = make(chan struct{})
		w.publish(serve("a", 1))
		most := min(16, max(4, 2*runtime.GOMAXPROCS(0)))
		var all sync.WaitGroup
		for range 2 * most {
			all.Go(func() {
				r := &discoveryv3.DiscoveryRequest{Node: at("us-east/b"), TypeUrl: edsURL, ResourceNames: []string{"a"}}
				if _, err := endpointservice.NewEndpointDiscoveryServiceClient(w.conn).FetchEndpoints(w.t.Context(), r); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if got := w.poll("/v3/discovery:endpoints", pollBody("", "n", "a")); got.status != http.StatusOK {
					t.Errorf("%d %s", got.status, got.body)
				}
			})
		}
		synctest.Wait()
		if n := int(asked.Load()); n != most {
			t.Errorf("%d requests are handled at once, want %d", n, most)
		}
		close(answer)
		all.Wait()
	}, func(o *xds.Options) {
		o.Admit = func(context.Context, rpc.Node) error {
			asked.Add(1)
			<-answer
			asked.Add(-1)
			return nil
		}
	})
}

// TestWhoAsksAgainIsSlowedDown: a client that says in each answer all that it
// wants, and refuses what it gets, is sent the same again, but not as fast as the
// network goes.
func TestWhoAsksAgainIsSlowedDown(t *testing.T) {
	for _, names := range [][]string{{"*"}, {"a", "b"}} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1), serve("b", 2))
			c := w.delta(at("us-east/b"))
			c.send(&discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: cdsURL, ResourceNamesSubscribe: names})
			start, answers := time.Now(), 0
			for answers < 1000 && time.Since(start) < 10*time.Second {
				for _, m := range c.take() {
					answers++
					nonce := m.(*discoveryv3.DeltaDiscoveryResponse).GetNonce()
					c.send(&discoveryv3.DeltaDiscoveryRequest{
						TypeUrl: cdsURL, ResponseNonce: nonce, ResourceNamesSubscribe: names, ErrorDetail: &statuspb.Status{Message: "no"},
					})
				}
				<-time.After(100 * time.Millisecond)
			}
			if answers < 5 || answers > 20 {
				t.Errorf("%q: %d answers in 10 s", names, answers)
			}
		})
	}
}

// heapInUse is what is in use after the garbage was collected, of pools too.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// largeNode is a node whose description takes a megabyte.
func largeNode(machine bool) *corev3.Node {
	n := at("us-east/b")
	n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue(strings.Repeat("x", 1<<20))}}
	if machine {
		n.Locality, n.Metadata.Fields[rpc.MachineKey] = nil, structpb.NewStringValue("m")
	}
	return n
}

// asks are ways to ask for endpoints; each returns what reports whether there was an answer.
var asks = map[string]func(w *world, node *corev3.Node) (answered func() bool){
	"state of the world": func(w *world, node *corev3.Node) func() bool {
		c := w.open(adsMethod, node, true)
		c.send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: edsURL, ResourceNames: []string{"a"}, VersionInfo: "7"})
		return func() bool { return len(c.take()) > 0 }
	},
	"delta": func(w *world, node *corev3.Node) func() bool {
		c := w.open(adsDeltaMethod, node, true).subscribe(edsURL, "a")
		return func() bool { return len(c.take()) > 0 }
	},
	"single": func(w *world, node *corev3.Node) func() bool {
		return later(func() bool {
			r := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: edsURL, ResourceNames: []string{"a"}}
			_, err := endpointservice.NewEndpointDiscoveryServiceClient(w.conn).FetchEndpoints(w.t.Context(), r)
			return err == nil
		})
	},
	"poll": func(w *world, node *corev3.Node) func() bool {
		return later(func() bool {
			body := pollBody("", strings.Repeat("n", 10), "a", strings.Repeat(" ", 1<<20)) // a name that is refused would end it
			body = strings.Replace(body, `,"`+strings.Repeat(" ", 1<<20)+`"`, strings.Repeat(" ", 1<<20), 1)
			if node.GetLocality() == nil {
				body = strings.Replace(body, `"locality"`, `"metadata":{"NODE_NAME":"m"},"x"`, 1)
			}
			return w.poll("/v3/discovery:endpoints", body).status == http.StatusOK
		})
	},
}

// later calls f meanwhile and returns what waits for what it returns.
func later(f func() bool) func() bool {
	out := make(chan bool, 1)
	go func() { out <- f() }()
	return func() bool { return <-out }
}

// TestRequestsThatWaitKeepNoMessage asserts that a request which waits, for the first plan, for
// the locality of its client or for a version, keeps nothing of a large message, whatever way it
// came, and is answered afterwards.
func TestRequestsThatWaitKeepNoMessage(t *testing.T) {
	const clients, most = 20, 8 << 20
	for name, ask := range asks {
		for _, awaited := range []string{"plan", "locality", "version"} {
			if awaited == "version" && name != "state of the world" {
				continue // their versions have no order
			}
			t.Run(name+" "+awaited, func(t *testing.T) {
				var goOn chan struct{}
				inWorld(t, func(w *world) {
					goOn = make(chan struct{})
					if awaited != "plan" {
						w.publish(serve("a", 1))
					}
					node := largeNode(awaited == "locality")
					before := heapInUse()
					var all []func() bool
					for range clients {
						all = append(all, ask(w, node))
					}
					synctest.Wait()
					if grown := heapInUse() - before; grown > most {
						t.Errorf("%d messages of 1 MiB that wait take %d KiB", clients, grown>>10)
					}
					if awaited == "plan" {
						w.publish(serve("a", 1))
					}
					close(goOn)
					for _, answered := range all {
						if !answered() {
							t.Error("no answer")
						}
					}
				}, func(o *xds.Options) {
					switch awaited {
					case "locality":
						o.Place = func(context.Context, string, *rpc.Node) { <-goOn }
					case "version":
						o.Await = func(context.Context, string, string) error {
							<-goOn
							return nil
						}
					}
				})
			})
		}
	}
}

// TestRejectionsKeepNoMore asserts that of the reason for a rejection only the beginning is kept.
func TestRejectionsKeepNoMore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		var all []*client
		for range 20 {
			all = append(all, w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1"))
		}
		before := heapInUse()
		for _, c := range all {
			c.nack(edsURL, strings.Repeat("x", 1<<20))
		}
		synctest.Wait()
		if grown := heapInUse() - before; grown > 4<<20 {
			t.Errorf("20 rejections with reasons of 1 MiB keep %d KiB", grown>>10)
		}
	})
}
