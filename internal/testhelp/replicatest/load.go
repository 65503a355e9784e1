package replicatest

import (
	"context"
	"crypto/sha256"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// Load is real grpc-go clients that send requests, and watchers.
type Load struct {
	failed, sent atomic.Int64
	watchers     []*watcher
	stop         func()
}

// StartLoad starts gRPC clients in a zone, and as many bare streams as the group has
// replicas.
func (g *Group) StartLoad(zone isobar.Locality, clients int) *Load {
	g.t.Helper()
	out, t := &Load{}, g.t
	ctx, cancel := context.WithCancel(g.t.Context())
	var work sync.WaitGroup
	for i := range clients {
		c, err := fleet.NewClient(fleet.ClientOptions{
			ID: "client-" + strconv.Itoa(i), Cluster: "web", Locality: zone, Server: g.front.Address(), Service: "checkout",
		})
		if err != nil {
			g.t.Fatal(err)
		}
		g.t.Cleanup(func() { _ = c.Close() })
		ready, done := context.WithTimeout(ctx, time.Minute)
		err = c.Ready(ready)
		done()
		if err != nil {
			g.t.Fatal(err)
		}
		gen := fleet.Poisson{
			Seed: uint64(i), Rate: func(time.Time) float64 { return 40 },
			Send: func(ctx context.Context, _ time.Time) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				defer cancel()
				out.sent.Add(1)
				if _, err := c.Call(ctx); err != nil {
					out.failed.Add(1)
					t.Logf("a request failed: %v", err)
				}
			},
			Refuse: func(time.Time, string) { out.failed.Add(1) },
		}
		work.Go(func() { gen.Run(ctx) })
	}
	shared := &contents{seen: map[string][sha256.Size]byte{}}
	for range size {
		w := newWatcher(g.front.Address(), zone, shared)
		out.watchers = append(out.watchers, w)
		work.Go(func() { w.run(ctx) })
	}
	out.stop = func() {
		cancel()
		work.Wait()
	}
	g.t.Cleanup(out.stop)
	return out
}

// Counts returns how many requests were sent, and how many failed, so far.
func (l *Load) Counts() (sent, failed int64) { return l.sent.Load(), l.failed.Load() }

// Least returns the newest version that all watchers have been told.
func (l *Load) Least() uint64 {
	least := uint64(math.MaxUint64)
	for _, w := range l.watchers {
		least = min(least, w.last.Load())
	}
	return least
}

// Faults returns what watchers saw since the last call that a client must never see.
func (l *Load) Faults() []string {
	var out []string
	for _, w := range l.watchers {
		for more := true; more; {
			select {
			case f := <-w.faults:
				out = append(out, f)
			default:
				more = false
			}
		}
	}
	return out
}

// Judge ends the load and asserts that no client noticed anything.
func (g *Group) Judge(l *Load) {
	g.t.Helper()
	l.stop()
	if l.failed.Load() > 0 {
		g.t.Errorf("%d of %d requests failed", l.failed.Load(), l.sent.Load())
	}
	streams := int64(0)
	for _, w := range l.watchers {
		streams += w.streams.Load()
		close(w.faults)
		for f := range w.faults {
			g.t.Error(f)
		}
	}
	g.t.Logf("%d requests, %d failed; %d streams of %d watchers", l.sent.Load(), l.failed.Load(), streams, len(l.watchers))
}
