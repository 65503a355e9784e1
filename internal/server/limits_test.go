package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// TestRapidResets: a client that opens streams and resets them at once leaves
// nothing behind, and the streams of others are served meanwhile.
func TestRapidResets(t *testing.T) {
	const resets = 3000
	l := onLoopback(t, func(c *config.Config) { c.XDS.Admission = config.Admission{StreamsPerSecond: 1, Burst: 4000} })
	healthy, conn := l.dial(nil), l.dial(nil)
	open := make([]adsClient, 20)
	var err error
	for i := range open {
		if open[i], _, err = subscribe(t.Context(), healthy, nodeIn(fmt.Sprint(i), "us/a"), "checkout"); err != nil {
			t.Fatal(err)
		}
	}
	if s, _, err := subscribe(t.Context(), conn, nodeIn("resetter", "us/a"), "checkout"); err != nil || s == nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	api := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	refused := func() bool { return l.metric("isobar_admission_refused_total", "peer_rate,stream") > 0 }
	for i := range 10 * resets { // of those that a slow machine resets before it sends them the server sees nothing
		if i >= resets && i%500 == 0 && refused() {
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		s, err := api.StreamAggregatedResources(ctx)
		if err == nil && i%2 == 0 {
			_ = s.Send(&discoveryv3.DiscoveryRequest{Node: nodeIn("r", "us/a"), TypeUrl: resource.EndpointsURL, ResourceNames: []string{"checkout"}})
		}
		cancel()
		if i%500 != 0 {
			continue
		}
		for _, s := range open {
			if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resource.EndpointsURL, ResourceNames: []string{"checkout", fmt.Sprint("new-", i)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, s := range open {
		if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resource.ClusterURL, ResourceNames: []string{"checkout"}}); err != nil {
			t.Fatal(err)
		}
		for {
			m, err := s.Recv()
			if err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
			if m.GetTypeUrl() == resource.ClusterURL {
				break
			}
		}
	}
	testhelp.Eventually(t, "the streams that were reset to end", func() bool {
		return l.metric("isobar_xds_streams", "sotw") == float64(len(open)+1) && runtime.NumGoroutine() <= before+5
	})
	if !refused() {
		t.Error("resets cost nothing")
	}
}

// TestAHerdIsNotSentAwayAsAHerd: clients that connected all at once over the
// network are sent away one after the other, as all others.
func TestAHerdIsNotSentAwayAsAHerd(t *testing.T) {
	const spread = 2 * time.Second
	all := make([]watcher, 50)
	var running sync.WaitGroup
	ctx := t.Context()
	t.Run("server", func(t *testing.T) { // which stops at the end of it
		l := onLoopback(t, func(c *config.Config) { c.StopSpread = spread })
		for i := range all {
			conn, err := grpc.NewClient(l.server.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() {
				defer func() { _ = conn.Close() }()
				if err := all[i].run(ctx, conn); err != nil {
					t.Error(err)
				}
			})
		}
		testhelp.Eventually(t, "all are connected", func() bool {
			return l.metric("isobar_xds_streams", "sotw") == float64(len(all))
		})
	})
	running.Wait()
	first, last := all[0].ended, all[0].ended
	for i := range all {
		if at := all[i].ended; at.Before(first) {
			first = at
		} else if at.After(last) {
			last = at
		}
	}
	if took := last.Sub(first); took < spread/2 {
		t.Errorf("%d clients were sent away within %v, want about %v", len(all), took, spread)
	}
}

// TestPressureIsTold: names of one address that take half of what they may, and less than
// a quarter again.
func TestPressureIsTold(t *testing.T) {
	var mu sync.Mutex
	var told []bool
	cfg := configuration(t)
	cfg.XDS.Admission.NameMegabytes = 8
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		opts := server.Options{Store: kept, Log: slog.New(slog.DiscardHandler), Pressure: func(on bool) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, on)
		}}
		runWith(t, cfg, opts, func(w *world) { w.press(&mu, &told) })
	})
}

func (w *world) press(mu *sync.Mutex, told *[]bool) {
	t := w.t
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(w.conn)
	var ends []func() error
	for i := range 10 { // 80 KB each, of 1 MiB
		stream, err := client.StreamAggregatedResources(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		names := make([]string, 120)
		for j := range names {
			names[j] = fmt.Sprintf("x-%d-%d", i, j)
		}
		if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "n", Locality: &corev3.Locality{Region: "us", Zone: "a"}}, TypeUrl: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", ResourceNames: names}); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, stream.CloseSend)
	}
	time.Sleep(time.Second) //nolint:forbidigo // virtual time
	synctest.Wait()
	mu.Lock()
	if !slices.Equal(slices.Compact(slices.Clone(*told)), []bool{true}) {
		t.Errorf("told %v with names", *told)
	}
	mu.Unlock()
	for _, end := range ends {
		_ = end()
	}
	time.Sleep(time.Second) //nolint:forbidigo // virtual time
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(slices.Compact(slices.Clone(*told)), []bool{true, false}) {
		t.Errorf("told %v without them", *told)
	}
}
