package admin_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
)

// TestDrainGivenUp: a write whose caller goes away while it is checked what it
// drains is not done: whoever gave it up was told of nothing, and among many at
// once some would pass unchecked.
func TestDrainGivenUp(t *testing.T) {
	const without = `{"name":"legacy","localities":[{"locality":"us-east/b","endpoints":[]}]}`
	for _, tc := range []struct{ method, path, body string }{
		{http.MethodPut, "/v1/services/legacy/endpoints/127.0.0.1:50051/health", "draining"},
		{http.MethodPut, "/v1/services/own", strings.ReplaceAll(without, "legacy", "own")},
	} {
		w := newWorld()
		own := w.objects["legacy"]
		own.Owner, own.Service.Name = "api", "own"
		w.objects["own"] = own
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		asked := 0
		a, err := admin.New(admin.Options{
			Objects: w, Parser: jsonParser{}, Planner: w, Explain: explain, Clients: clients, Writable: true,
			Breaches: func(ctx context.Context, _ *admin.Drain) ([]string, error) {
				asked++
				cancel()
				return nil, ctx.Err()
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		before := w.revision
		r := httptest.NewRequestWithContext(ctx, tc.method, tc.path, strings.NewReader(tc.body))
		r.Host = "localhost"
		answer := httptest.NewRecorder()
		a.Handler().ServeHTTP(answer, r)
		if answer.Code != http.StatusServiceUnavailable || asked != 1 || w.revision != before || len(w.health) > 0 {
			t.Errorf("%s: %d %s; asked %d times, revision %d, was %d, health %v", tc.path, answer.Code, answer.Body, asked, w.revision, before, w.health)
		}
	}
}
