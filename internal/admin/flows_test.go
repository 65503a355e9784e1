package admin_test

import (
	"maps"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/solver"
)

// TestFlows: the sums over services, worked by hand.
func TestFlowsBetweenPlaces(t *testing.T) {
	us, eu := isobar.MustLocality("us"), isobar.MustLocality("eu")
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: us, To: eu, MS: 60}})
	if err == nil {
		network, err = network.WithEgress([]isobar.EgressRule{{From: us, To: eu, Price: 30}})
	}
	if err != nil {
		t.Fatal(err)
	}
	site := func(l string) assign.Site {
		return assign.Site{Group: &isobar.EndpointGroup{Locality: isobar.MustLocality(l)}}
	}
	source := func(l string, demand float64, shares ...float64) assign.SourceResult {
		s := assign.SourceResult{Demand: demand, Shares: shares}
		if l != "" {
			s.Source = isobar.MustLocality(l)
		}
		return s
	}
	w := newWorld()
	w.current.Topology.Network = network
	w.current.Services = []*plan.Service{
		{Spec: &isobar.Service{Name: "a"}, Result: &assign.Result{
			Sites: []assign.Site{site("us/a"), site("us/b/1"), site("eu/a")}, Drop: 0.5,
			Sources: []assign.SourceResult{source("us/a", 200, 0.4, 0.2, 0.4), source("", 20, 0, 1, 0)},
		}},
		{Spec: &isobar.Service{Name: "b"}, Result: &assign.Result{Sites: []assign.Site{site("us/b/2")}, Sources: []assign.SourceResult{source("us/a/x", 7, 1), source("eu/c", 0, 1)}}},
		{Spec: &isobar.Service{Name: "c"}},
	}
	srv := start(t, w, func(o *admin.Options) {
		plannerOf(o).lost, plannerOf(o).outdated = time.Now().Add(-40*time.Second), true
		plannerOf(o).losses = []plan.ZoneLoss{
			{Zone: isobar.MustLocality("us/a"), Services: 2},
			{Zone: isobar.MustLocality("us/b"), Services: 2, Failing: 1, Worst: []plan.Reserve{{Service: "a", Lost: isobar.MustLocality("us/b"), Utilization: 1.4}}},
		}
	})
	for _, tt := range []struct {
		query string
		want  map[string]float64
		zones map[string]int // services that fail if it is lost; -1: it was not played
	}{
		{"", map[string]float64{"> us": 10, "us > us": 67, "us > eu": 40}, map[string]int{"us/a": 0, "us/b": 1, "eu/a": -1}},
		{"?from=us&to=us", map[string]float64{"us/a > us/a": 40, "us/a > us/b": 27}, map[string]int{"us/a": 0, "us/b": 1}},
		{"?from=us&to=eu", map[string]float64{"us/a > eu/a": 40}, map[string]int{"eu/a": -1}},
		{"?from=eu", map[string]float64{}, map[string]int{"us/a": 0, "us/b": 1, "eu/a": -1}},
	} {
		var got admin.FlowList
		do(t, srv, http.MethodGet, "/v1/flows"+tt.query, "").decode(t, &got)
		if len(got.Flows) != len(tt.want) {
			t.Fatalf("%q: %+v", tt.query, got)
		}
		if age := got.LossAgeSeconds; age == nil || *age < 40 || *age > 100 || !got.LossOutdated {
			t.Errorf("%q: losses of zones were played %v s ago, not 40, and should be outdated", tt.query, age)
		}
		for _, f := range got.Flows {
			name := f.From.String() + " > " + f.To.String()
			if f.From.IsZero() {
				name = "> " + f.To.String()
			}
			if math.Abs(f.Rate-tt.want[name]) > 1e-9 {
				t.Errorf("%s: %v requests/s instead of %v", name, f.Rate, tt.want[name])
			}
			want := 0.0
			if f.To.Region == "eu" {
				want = 30
			}
			if math.Abs(f.PriceMS-want) > 1e-9 {
				t.Errorf("%s: price %v instead of %v", name, f.PriceMS, want)
			}
		}
		failing := map[string]int{}
		for _, z := range got.Zones {
			failing[z.Zone.String()] = -1
			if z.Loss != nil {
				failing[z.Zone.String()] = z.Loss.Failing
			}
		}
		if !maps.Equal(failing, tt.zones) {
			t.Errorf("%q: zones %v instead of %v", tt.query, failing, tt.zones)
		}
	}
	// A region whose endpoints serve nothing is listed, too.
	idle := newWorld()
	idle.current.Services = []*plan.Service{{Spec: &isobar.Service{Name: "a"}, Result: &assign.Result{
		Sites: []assign.Site{site("us/a"), site("eu/a")}, Sources: []assign.SourceResult{source("us/a", 20, 1, 0)},
	}}}
	var list admin.FlowList
	do(t, start(t, idle, nil), "GET", "/v1/flows", "").decode(t, &list)
	if len(list.Places) != 2 || !list.Places[0].Hosts || list.Places[0].Serves != 0 || len(list.Zones) != 2 {
		t.Errorf("a region that serves nothing: %+v", list)
	}
	empty := newWorld()
	empty.current = nil
	if a := do(t, start(t, empty, nil), "GET", "/v1/flows", ""); a.code != http.StatusServiceUnavailable {
		t.Errorf("without a plan: %d", a.code)
	}
}

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
			site.Group, site.Unmanaged = &isobar.EndpointGroup{Locality: l, Endpoints: site.Group.Endpoints}, 0
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
