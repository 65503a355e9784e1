package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// watcher is a client with a connection of its own that notes what it is told
// to drop, and when it was sent away.
type watcher struct {
	mu    sync.Mutex
	drops bool
	ended time.Time
}

func (x *watcher) run(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	request := &discoveryv3.DiscoveryRequest{
		Node:          &corev3.Node{Id: "watcher", Locality: &corev3.Locality{Region: "us", Zone: "a"}},
		TypeUrl:       "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
		ResourceNames: []string{"checkout"},
	}
	for {
		if err := stream.Send(request); err != nil { // the server did not wait for it
			return fmt.Errorf("a client can't accept what it was sent: %w", err)
		}
		answer, err := stream.Recv()
		if err != nil {
			x.mu.Lock()
			x.ended = time.Now()
			x.mu.Unlock()
			return nil //nolint:nilerr // that is the end it waits for
		}
		request.VersionInfo, request.ResponseNonce = answer.GetVersionInfo(), answer.GetNonce()
		for _, r := range answer.GetResources() {
			cla := &endpointv3.ClusterLoadAssignment{}
			if err := r.UnmarshalTo(cla); err != nil {
				return err
			}
			x.mu.Lock()
			x.drops = len(cla.GetPolicy().GetDropOverloads()) > 0
			x.mu.Unlock()
		}
	}
}

// TestStopSendsClientsAwayOneByOne: a server that is told to stop takes back
// what clients drop, and then sends them away spread over the configured time,
// while operators are still answered.
func TestStopSendsClientsAwayOneByOne(t *testing.T) {
	const spread = 10 * time.Second
	bubble.Test(t, func(t *testing.T) {
		all, began, took := stopWhileClientsDrop(t, 200, spread)
		checkSpread(t, all, began, spread, took)
	})
}

// TestStopWaitsForTheLastPlan asserts that a server which sends its clients away at once waits
// until they have accepted its last plan. On one processor it looks before the plan is on its way.
func TestStopWaitsForTheLastPlan(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	bubble.Test(t, func(t *testing.T) {
		all, _, _ := stopWhileClientsDrop(t, 3, 0)
		for i := range all {
			if all[i].drops {
				t.Errorf("client %d was left dropping", i)
			}
		}
	})
}

// stopWhileClientsDrop stops a server whose clients drop requests, and returns the clients, when
// it was told to stop and how long that took.
func stopWhileClientsDrop(t *testing.T, clientsInAll int, spread time.Duration) (all []watcher, began time.Time, took time.Duration) {
	t.Helper()
	cfg := configuration(t)
	cfg.StopSpread = spread
	cfg.Services[0].MaxShed = 0.5
	pipe := bufconn.Listen(1 << 16)
	kept := store.NewMemory()
	defer func() { _ = kept.Close() }()
	s, err := server.New(cfg, server.Listeners{XDS: pipe}, server.Options{Store: kept, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	w := &world{t: t, ctx: t.Context(), server: s, conn: testhelp.Dial(t, pipe)}
	defer func() { _ = w.conn.Close() }()
	agents, leave := context.WithCancel(t.Context())
	defer leave()
	w.ctx = agents
	w.start(clients("us/a", 5, constant(6000), func(o *fleet.AgentOptions) { o.Kind = fleet.KindEnvoy })...)
	all = make([]watcher, clientsInAll)
	var running sync.WaitGroup
	for i := range all {
		conn := testhelp.Dial(t, pipe)
		defer func() { _ = conn.Close() }()
		running.Go(func() {
			if err := all[i].run(t.Context(), conn); err != nil {
				t.Error(err)
			}
		})
	}
	for range 6 {
		w.tick()
	}
	if !all[0].drops {
		t.Fatal("nothing is dropped at three times what the service can carry")
	}
	leave()
	began = time.Now()
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	took = time.Since(began)
	running.Wait()
	return all, began, took
}

func checkSpread(t *testing.T, all []watcher, began time.Time, spread, took time.Duration) {
	t.Helper()
	after := make([]time.Duration, len(all))
	for i := range all {
		if all[i].drops {
			t.Errorf("client %d was left dropping", i)
		}
		after[i] = all[i].ended.Sub(began)
	}
	slices.Sort(after)
	if most := spread + 3*time.Second; took > most {
		t.Errorf("stopping took %v, want at most %v", took, most)
	}
	for i, want := range []time.Duration{spread / 4, spread / 2, 3 * spread / 4} {
		got := after[(i+1)*len(after)/4]
		if got < want-2*time.Second || got > want+2*time.Second {
			t.Errorf("quarter %d of the clients was gone after %v, want about %v", i+1, got, want)
		}
	}
}

// TestStopSpreadFollowsTheFile: a server that was started without it spreads
// its end over what the file says later.
func TestStopSpreadFollowsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isobar.yaml")
	write := func(spread string) {
		identitytest.Replace(t, path, []byte("xds: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\nservices: []\nstop_spread: "+spread+"\n"))
	}
	write("0s")
	var log *testhelp.Log
	t.Cleanup(func() { // after the server has ended
		if !strings.Contains(log.String(), `msg="closing client connections" over=321ms`) {
			t.Errorf("clients are not sent away over what the file says:\n%.3000s", log)
		}
	})
	_, log = serveFile(t, path)
	write("321ms")
	testhelp.Eventually(t, "the new file", func() bool { return strings.Contains(log.String(), "configuration file reloaded") })
}
