package xds_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

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
