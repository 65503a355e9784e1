package xds_test

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/prometheus/client_golang/prometheus"

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
