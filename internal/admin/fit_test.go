package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/source"
)

// The parts that the interface is made for fit it.
var (
	_ admin.Objects = (*source.Registry)(nil)
	_ admin.Parser  = config.Parser{}
)

// TestFaultsOfARealBody shows what the real parser's errors become.
func TestFaultsOfARealBody(t *testing.T) {
	srv := start(t, newWorld(), func(o *admin.Options) { o.Parser = config.Parser{} })
	const body = "localities:\n  - locality: us-east/b\n    max_rate: -1\n    endpoints: [localhost]\n"
	a := do(t, srv, http.MethodPut, "/v1/services/cart", body)
	var p admin.Problem
	a.decode(t, &p)
	if a.code != http.StatusBadRequest || len(p.Problems) != 2 {
		t.Fatalf("got %d %s", a.code, a.body)
	}
	if got := p.Problems[0]; !strings.Contains(got.Place, "3:15") || !strings.Contains(got.Place, "max_rate") {
		t.Errorf("the first fault is at %q: %s", got.Place, a.body)
	}
	if got := p.Problems[1]; !strings.Contains(got.Fix, "IP:port") {
		t.Errorf("the second fault has the fix %q", got.Fix)
	}
	if a := do(t, srv, http.MethodPut, "/v1/services/cart", strings.Replace(strings.Replace(body, "-1", "1", 1), "localhost", "\"127.0.0.1:1\"", 1)); a.code != http.StatusOK {
		t.Errorf("mended: %d %s", a.code, a.body)
	}
}
