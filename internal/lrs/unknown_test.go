package lrs_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// The load of an Envoy whose own cluster names the DNS name of a Kubernetes Service counts
// for the service, unless a service has that name.
func TestLoadByAlias(t *testing.T) {
	services := []string{"checkout.shop:80", "cart.shop:80", "cart.shop.svc:80"}
	inBubble(t, lrs.Options{Services: func() []string { return services }, ReportBurst: -1}, func(h *harness) {
		c, _ := h.greet(node("envoy"))
		defer c.cancel()
		for _, name := range []string{"checkout.shop.svc.cluster.local:80", "cart.shop.svc:80"} {
			cs := stats("outbound", 10, 5*time.Second)
			cs.ClusterServiceName = name
			c.send(&loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{cs}})
			synctest.Wait()
		}
		var got []string
		for _, w := range h.srv.Collect(time.Now()) {
			for _, r := range w.Reports {
				for _, s := range r.Services {
					got = append(got, s.Service)
				}
			}
		}
		if want := []string{"checkout.shop:80", "cart.shop.svc:80"}; !slices.Equal(got, want) {
			t.Errorf("load of %q, want %q", got, want)
		}
		if unknown := h.srv.Unknown(); len(unknown) > 0 {
			t.Errorf("unknown clusters %q", unknown)
		}
	})
}

// Clusters that are no services are named for some minutes, but for the cluster
// by which Envoys reach the server. Their number is bounded.
func TestUnknownClusters(t *testing.T) {
	registry := prometheus.NewRegistry()
	opts := lrs.Options{
		Services: func() []string { return []string{"checkout"} }, ManagementCluster: "isobar",
		Registerer: registry, ReportBurst: -1,
	}
	inBubble(t, opts, func(h *harness) {
		c, _ := h.greet(node("envoy"))
		defer c.cancel()
		report := func(clusters ...string) {
			m := &loadstatsv3.LoadStatsRequest{}
			for _, name := range clusters {
				m.ClusterStats = append(m.ClusterStats, stats(name, 10, 5*time.Second))
			}
			c.send(m)
			synctest.Wait()
		}
		named := func(want ...string) {
			t.Helper()
			if got := h.srv.Unknown(); !slices.Equal(got, want) {
				t.Errorf("unknown clusters %q, want %q", got, want)
			}
		}
		report("checkout", "isobar")
		named()
		report("isobar", "chekout", "checkout", "billing")
		named("billing", "chekout")
		if n := testhelp.Series(t, registry, "isobar_lrs_unknown_service_entries_total")[""]; n != 2 {
			t.Errorf("%v entries on unknown services are counted, want 2", n)
		}
		time.Sleep(4 * time.Minute) //nolint:forbidigo // virtual time
		report("billing")
		time.Sleep(2 * time.Minute) //nolint:forbidigo // virtual time
		named("billing")
		var many []string
		for i := range 500 {
			many = append(many, fmt.Sprintf("cluster-%03d", i))
		}
		report(many...)
		if n := len(h.srv.Unknown()); n != 100 {
			t.Errorf("%d names are remembered, want 100", n)
		}
		time.Sleep(6 * time.Minute) //nolint:forbidigo // virtual time
		report("late")
		named("late")
	})
}
