package server_test

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

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
