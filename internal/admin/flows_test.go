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
		plannerOf(o).lost = time.Now().Add(-40 * time.Second)
		plannerOf(o).losses = []plan.ZoneLoss{
			{Zone: isobar.MustLocality("us/a"), Services: 2},
			{Zone: isobar.MustLocality("us/b"), Services: 2, Failing: 1, Worst: []plan.Reserve{{Service: "a", Lost: isobar.MustLocality("us/b"), Utilization: 1.4}}},
		}
	})
	remote, err := admin.NewRemote(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		from, to string
		want     map[string]float64
		zones    map[string]int // services that fail if it is lost; -1: it was not played
	}{
		{"", "", map[string]float64{"> us": 10, "us > us": 67, "us > eu": 40}, map[string]int{"us/a": 0, "us/b": 1, "eu/a": -1}},
		{"us", "us", map[string]float64{"us/a > us/a": 40, "us/a > us/b": 27}, map[string]int{"us/a": 0, "us/b": 1}},
		{"us", "eu", map[string]float64{"us/a > eu/a": 40}, map[string]int{"eu/a": -1}},
		{"eu", "", map[string]float64{}, map[string]int{"us/a": 0, "us/b": 1, "eu/a": -1}},
	} {
		got, err := remote.Flows(t.Context(), tt.from, tt.to)
		if err != nil || len(got.Flows) != len(tt.want) {
			t.Fatalf("%s to %s: %+v %v", tt.from, tt.to, got, err)
		}
		if age := got.LossAgeSeconds; age == nil || *age < 40 || *age > 100 {
			t.Errorf("%s to %s: losses of zones were played %v s ago, not 40", tt.from, tt.to, age)
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
			t.Errorf("from %s to %s: zones %v instead of %v", tt.from, tt.to, failing, tt.zones)
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
