package xds_test

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
)

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
