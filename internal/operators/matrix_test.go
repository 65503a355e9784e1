package operators

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

func matrixPlan(sources int) *plan.Plan {
	a, b, far := isobar.MustLocality("us/a"), isobar.MustLocality("us/b"), isobar.MustLocality("eu/a")
	svc := &plan.Service{
		Spec: &isobar.Service{Name: "checkout"},
		Result: &assign.Result{
			Sites:   []assign.Site{{Group: &isobar.EndpointGroup{Locality: a}}, {Group: &isobar.EndpointGroup{Locality: b}}, {Group: &isobar.EndpointGroup{Locality: far}}},
			Sources: []assign.SourceResult{{Source: a, Demand: 100, Shares: []float64{0.5, 0.3, 0.2}}},
		},
		Load: &load.ServiceLoad{Sources: []load.SourceLoad{{Source: a, Landed: []load.LandedLoad{{Locality: a, Issued: 30}, {Locality: b, Issued: 10}}}}},
	}
	for i := range sources {
		svc.Result.Sources = append(svc.Result.Sources, assign.SourceResult{
			Source: isobar.Locality{Region: "r", Zone: fmt.Sprint(i)}, Shares: []float64{1, 0, 0},
		})
	}
	return &plan.Plan{Services: []*plan.Service{svc, {Spec: &isobar.Service{Name: "other"}, Result: svc.Result}}}
}

func TestMatrixMetrics(t *testing.T) {
	p := matrixPlan(0)
	c := NewMatrix(func() *plan.Plan { return p }, func() []string { return []string{"checkout", "gone"} })
	const want = `
# HELP isobar_matrix_observed_share_ratio Reported fraction of the requests of a source to a locality, for services in metrics.matrix.
# TYPE isobar_matrix_observed_share_ratio gauge
isobar_matrix_observed_share_ratio{locality="eu/a",service="checkout",source="us/a"} 0
isobar_matrix_observed_share_ratio{locality="us/a",service="checkout",source="us/a"} 0.75
isobar_matrix_observed_share_ratio{locality="us/b",service="checkout",source="us/a"} 0.25
# HELP isobar_matrix_published_share_ratio Published share: fraction of the requests of a source for a locality, for services in metrics.matrix.
# TYPE isobar_matrix_published_share_ratio gauge
isobar_matrix_published_share_ratio{locality="eu/a",service="checkout",source="us/a"} 0.2
isobar_matrix_published_share_ratio{locality="us/a",service="checkout",source="us/a"} 0.5
isobar_matrix_published_share_ratio{locality="us/b",service="checkout",source="us/a"} 0.3
# HELP isobar_cross_region_ratio Share of the requests of a service that is served in another region than the client's, by the published shares.
# TYPE isobar_cross_region_ratio gauge
isobar_cross_region_ratio{service="checkout"} 0.2
isobar_cross_region_ratio{service="other"} 0.2
# HELP isobar_cross_zone_ratio Share of the requests of a service that is served in another zone than the client's, other regions included, by the published shares.
# TYPE isobar_cross_zone_ratio gauge
isobar_cross_zone_ratio{service="checkout"} 0.5
isobar_cross_zone_ratio{service="other"} 0.5
# HELP isobar_matrix_left_out_series Missing series of services in metrics.matrix, beyond the limit of 20,000.
# TYPE isobar_matrix_left_out_series gauge
isobar_matrix_left_out_series 0
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestMatrixIsBounded: what is beyond the bound is counted.
func TestMatrixIsBounded(t *testing.T) {
	p := matrixPlan(7000) // x 3 localities, without reports
	c := NewMatrix(func() *plan.Plan { return p }, func() []string { return []string{"checkout"} })
	if n := testutil.CollectAndCount(c, "isobar_matrix_published_share_ratio", "isobar_matrix_observed_share_ratio"); n != maxMatrixSeries {
		t.Errorf("%d series", n)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "isobar_matrix_left_out_series" {
			if got := f.GetMetric()[0].GetGauge().GetValue(); got != 7001*3+3-maxMatrixSeries {
				t.Errorf("%v series are left out", got)
			}
		}
	}
}
