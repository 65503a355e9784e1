package admin_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestNamesThatAreNotThere: who misspells a service is told so, and where the
// names are, rather than that it has no history or no health checks.
func TestNamesThatAreNotThere(t *testing.T) {
	p := &probes{}
	srv := start(t, newWorld(), func(o *admin.Options) {
		p.into(o)
		o.Nearest = strict.Nearest
		o.Operator = past{changes: []plan.Change{{Version: 7, Services: []plan.ServiceChange{{Service: "gone"}}}}}
	})
	cart := service("cart")
	cart.Localities[0].Locality = isobar.MustLocality("eu-west/a")
	if a := do(t, srv, http.MethodPut, "/v1/services/cart", bodyOf(t, cart)); a.code != http.StatusOK {
		t.Fatalf("cart is not put: %d %s", a.code, a.body)
	}
	for _, tt := range []struct {
		method, path string
		code         int
		want         string
	}{
		{http.MethodGet, "/v1/verdicts?service=none", http.StatusNotFound, "no such service in the published plan"},
		{http.MethodGet, "/v1/verdicts?service=cart", http.StatusNotFound, "set health_checks of the service"},
		{http.MethodGet, "/v1/explain?service=lagacy&from=us-east/b", http.StatusNotFound, "no such service in the published plan; did you mean legacy?"},
		{http.MethodGet, "/v1/plan?service=crat", http.StatusNotFound, "no such service in the published plan; did you mean cart?"},
		{http.MethodGet, "/v1/explain?service=cart&from=eu-wset/a", http.StatusOK, "eu-wset/a: no service and no network entry knows the region, so all localities count as equally far away; did you mean eu-west?"},
		{http.MethodGet, "/v1/explain?service=cart&from=eu-west/aa", http.StatusOK, "knows the zone, so the others of its region count as equally near; did you mean eu-west/a?"},
		{http.MethodGet, "/v1/explain?service=cart&from=eu-west/a", http.StatusOK, `"warnings":null`},
		{http.MethodPut, "/v1/services/none/health/release", http.StatusNotFound, "no such service in the published plan"},
		{http.MethodGet, "/v1/history?service=none", http.StatusNotFound, "no such service in the published plan"},
		{http.MethodGet, "/v1/history?service=gone", http.StatusOK, `"service":"gone"`},
		{http.MethodGet, "/v1/history?service=cart", http.StatusOK, `"changes":`},
		{http.MethodGet, "/v1/services/none", http.StatusNotFound, "GET /v1/services lists"},
		{http.MethodDelete, "/v1/services/none", http.StatusNotFound, "GET /v1/services lists"},
		{http.MethodGet, "/v1/services/cart/endpoints/10.0.0.9:80/health", http.StatusNotFound, "GET /v1/services lists"},
	} {
		if a := do(t, srv, tt.method, tt.path, ""); a.code != tt.code || !strings.Contains(a.body, tt.want) {
			t.Errorf("%s %s: %d %s, want %d and %q", tt.method, tt.path, a.code, a.body, tt.code, tt.want)
		}
	}
}

// past is a loop that has seen some changes.
type past struct {
	mute

	changes []plan.Change
}

func (p past) History(context.Context, string) ([]plan.Change, error) { return p.changes, nil }
