package measure

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// patience bounds every wait for a server.
const patience = 3 * time.Minute

// audience is the streams of one server, all of which get every change: a wave.
type audience struct {
	conns  []*rawclient.Conn
	target int64 // streams

	got    atomic.Int64
	most   int64 // count at which 99% have it
	at99   time.Time
	atLast time.Time
	begun  atomic.Int64   // of the wave, in nanoseconds of the wall clock
	each   []atomic.Int64 // how long each response took, if it is noted
	noted  atomic.Int64
	size   atomic.Int64  // of the newest response, bytes
	wave   chan struct{} // capacity 1: all have it
	failed chan error    // capacity 1
}

func newAudience(streams int) *audience {
	n := int64(streams)
	return &audience{target: n, most: (n*99 + 99) / 100, wave: make(chan struct{}, 1), failed: make(chan error, 1)}
}

// connect opens the streams, and waits until each has its first response. Where
// API versions are mixed, a third of the connections each is of v3, of v2 and of 2017.
func (a *audience) connect(ctx context.Context, address string, perConnection int, names []string, mixed bool) error {
	for first := 0; first < int(a.target); first += perConnection {
		node := func(stream int) *corev3.Node { return node(first + stream) }
		api := rawclient.V3
		if mixed {
			api = []rawclient.APIVersion{rawclient.V3, rawclient.V2, rawclient.V2017}[len(a.conns)%3]
		}
		s, err := rawclient.NewSubscriber(api, names, node, func(_, size int) { a.count(size) })
		if err != nil {
			return err
		}
		conn, err := rawclient.Dial(ctx, address, api.Method, min(perConnection, int(a.target)-first), s.First, s)
		if err != nil {
			return err
		}
		a.conns = append(a.conns, conn)
		go a.run(conn)
	}
	return a.wait()
}

func node(i int) *corev3.Node {
	at := fleet.Zone(i % fleet.Zones)
	return &corev3.Node{
		Id: fmt.Sprintf("client-%d", i), Cluster: "bench", UserAgentName: "gRPC Go",
		Locality: &corev3.Locality{Region: at.Region, Zone: at.Zone},
	}
}

func (a *audience) run(conn *rawclient.Conn) {
	if err := conn.Run(); !rawclient.Ended(err) {
		select {
		case a.failed <- err:
		default:
		}
	}
}

// count counts a response. The next wave begins only after the last response
// of this one.
func (a *audience) count(size int) {
	if i := a.noted.Add(1) - 1; i < int64(len(a.each)) {
		a.each[i].Store(time.Now().UnixNano() - a.begun.Load())
	}
	a.size.Store(int64(size))
	switch a.got.Add(1) {
	case a.most:
		a.at99 = time.Now()
		if a.most == a.target {
			a.last()
		}
	case a.target:
		a.last()
	}
}

func (a *audience) last() {
	a.atLast = time.Now()
	a.got.Store(0)
	a.wave <- struct{}{}
}

// wait waits until all streams have a response.
func (a *audience) wait() error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-a.wave:
		return nil
	case err := <-a.failed:
		return err
	case <-timer.C:
		return fmt.Errorf("only %d of %d streams had a response within %v", a.got.Load(), a.target, patience)
	}
}

func (a *audience) close() {
	for _, conn := range a.conns {
		_ = conn.Close()
	}
}
