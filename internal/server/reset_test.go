package server_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/testhelp"
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
