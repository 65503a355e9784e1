package admin_test

import (
	"math"
	"net/http"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/solver"
)

// TestFlows: the shares across zones and regions with their price, and the p99 by
// the formula of a queue, worked out by hand.
func TestFlows(t *testing.T) {
	us, eu := isobar.MustLocality("us"), isobar.MustLocality("eu")
	here, beside, far := isobar.MustLocality("us/a"), isobar.MustLocality("us/b"), isobar.MustLocality("eu/a")
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: us, To: eu, MS: 80}, {From: here, To: beside, MS: 2}})
	if err == nil {
		network, err = network.WithEgress([]isobar.EgressRule{{From: us, To: eu, Price: 10}})
	}
	if err != nil {
		t.Fatal(err)
	}
	overview := func(shares []float64, load []float64) admin.ServiceOverview {
		w := newWorld()
		w.current.Topology.Network = network
		svc := w.current.Services[0]
		site := svc.Result.Sites[0]
		svc.Result.Sites, svc.Problem = nil, &solver.Service{}
		for _, l := range []isobar.Locality{here, beside, far} {
			site.Group, site.Background = &isobar.EndpointGroup{Locality: l, Endpoints: site.Group.Endpoints}, 0
			svc.Result.Sites = append(svc.Result.Sites, site)
			svc.Problem.Localities = append(svc.Problem.Localities, solver.Locality{Capacity: 100, Servers: 1, Queues: 1})
		}
		svc.Result.Load = load
		svc.Result.Sources = []assign.SourceResult{{Source: here, Demand: 50, Shares: shares}}
		var got admin.Overview
		do(t, start(t, w, nil), http.MethodGet, "/v1/overview", "").decode(t, &got)
		return got.Services[0]
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.001*max(1, want) {
			t.Errorf("%s is %g instead of %g", what, got, want)
		}
	}
	// M/M/1 at a half: half of the requests wait, 20 ms in the mean, so 1% wait
	// longer than 20 ms * ln(0.5 / 0.01).
	o := overview([]float64{1, 0, 0}, []float64{50, 0, 0})
	near("cross-zone", o.CrossZone, 0)
	near("p99", o.P99MS, 20*math.Log(50))
	o = overview([]float64{0.5, 0.3, 0.2}, []float64{0, 0, 0})
	near("cross-zone", o.CrossZone, 0.5)
	near("cross-region", o.CrossRegion, 0.2)
	near("egress", o.EgressMS, 2)
	near("p99 without queues", o.P99MS, 80)
	o = overview([]float64{0, 0, 0}, []float64{50, 0, 0})
	near("p99 without flows", o.P99MS, 0)
}
