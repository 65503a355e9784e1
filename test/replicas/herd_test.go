package replicas

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The herd: as many streams as one replica has in a large fleet, on as many connections as
// a proxy would make of them.
const herdStreams, herdConnections = 10_000, 200

// crowd is many bare streams that come back when they end.
type crowd struct {
	answered atomic.Int64 // streams with an answer since it was set to 0
	opened   atomic.Int64
}

func (c *crowd) run(ctx context.Context, conn *grpc.ClientConn, node string) {
	for ctx.Err() == nil {
		_ = c.stream(ctx, conn, node) // it is opened again
		pause := time.NewTimer(time.Duration(rand.Int64N(int64(500 * time.Millisecond))))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

func (c *crowd) stream(ctx context.Context, conn *grpc.ClientConn, node string) error {
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	request := &discoveryv3.DiscoveryRequest{
		Node:    &corev3.Node{Id: node, Cluster: "crowd", Locality: &corev3.Locality{Region: "us", Zone: "a"}},
		TypeUrl: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", ResourceNames: []string{"checkout"},
	}
	counted := false
	for {
		if err := stream.Send(request); err != nil {
			return err
		}
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if !counted {
			counted = true
			c.opened.Add(1)
			c.answered.Add(1)
		}
		request.VersionInfo, request.ResponseNonce = r.GetVersionInfo(), r.GetNonce()
	}
}

// herdCPU is how much more processor time, at most, the other replicas may take for the streams
// that come to them than the follower took for the same streams.
const herdCPU = 2

// herd opens the streams on one follower, kills it, and measures until each one has an
// answer of another replica. It asserts that none comes back a second time, and what processor
// time the other replicas take for them.
func herd(w *world) time.Duration {
	leader, _ := w.Leader()
	follower := w.others(leader)[0]
	w.Direct(follower)
	ctx, stop := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	c := &crowd{}
	defer func() {
		stop()
		running.Wait()
	}()
	first := w.CPU(follower)
	for i := range herdConnections {
		conn, err := grpc.NewClient("passthrough:///"+w.Front(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			w.t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		for k := range herdStreams / herdConnections {
			running.Go(func() { c.run(ctx, conn, fmt.Sprintf("crowd-%d-%d", i, k)) })
		}
	}
	w.Await("all streams on one follower", func() bool { return c.answered.Load() >= herdStreams })
	first = w.CPU(follower) - first
	w.Direct(w.Replicas...)
	c.answered.Store(0)
	second := -w.CPU(w.others(follower)...)
	began := time.Now()
	w.Kill(follower)
	w.Await("an answer on each stream", func() bool { return c.answered.Load() >= herdStreams })
	took := time.Since(began)
	second += w.CPU(w.others(follower)...)
	w.t.Logf("processor time for %d streams: %.2f s of the follower, then %.2f s of the others together", herdStreams, first.Seconds(), second.Seconds())
	if second > herdCPU*first {
		w.t.Errorf("the other replicas took %v for what the follower did in %v", second, first)
	}
	opened := c.opened.Load()
	<-time.After(5 * time.Second)
	if again := c.opened.Load() - opened; again > 0 {
		w.t.Errorf("%d streams came a second time", again)
	}
	w.Start(follower)
	return took
}
