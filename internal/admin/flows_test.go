package admin_test

import (
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
		plannerOf(o).reserves = func() (time.Time, []plan.Reserve) {
			return time.Now(), []plan.Reserve{
				{Service: "a", Lost: isobar.MustLocality("us/b"), Utilization: 1.4},
				{Service: "b", Lost: isobar.MustLocality("us/b"), Utilization: 0.4},
				{Service: "c", Lost: isobar.MustLocality("eu/a"), Drop: 1},
			}
		}
	})
	remote, err := admin.NewRemote(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		from, to string
		want     map[string]float64
		reserve  map[string][2]int
	}{
		{"", "", map[string]float64{"> us": 10, "us > us": 67, "us > eu": 40}, map[string][2]int{"us": {2, 1}, "eu": {1, 1}}},
		{"us", "us", map[string]float64{"us/a > us/a": 40, "us/a > us/b": 27}, map[string][2]int{"us/a": {0, 0}, "us/b": {2, 1}}},
		{"us", "eu", map[string]float64{"us/a > eu/a": 40}, map[string][2]int{"eu/a": {1, 1}}},
		{"eu", "", map[string]float64{}, nil},
	} {
		got, err := remote.Flows(t.Context(), tt.from, tt.to)
		if err != nil || len(got.Flows) != len(tt.want) {
			t.Fatalf("%s to %s: %+v %v", tt.from, tt.to, got, err)
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
		for _, p := range got.Places {
			if want, ok := tt.reserve[p.Place.String()]; ok && (p.Reserve.Worst != want[0] || p.Reserve.Failing != want[1] || len(p.Reserve.Names) != want[1]) {
				t.Errorf("%s: %+v instead of %v", p.Place, p.Reserve, want)
			}
		}
	}
	empty := newWorld()
	empty.current = nil
	if a := do(t, start(t, empty, nil), "GET", "/v1/flows", ""); a.code != http.StatusServiceUnavailable {
		t.Errorf("without a plan: %d", a.code)
	}
}
