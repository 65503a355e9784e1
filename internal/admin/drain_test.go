package admin_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
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
			Objects: w, Parser: jsonParser{}, Planner: &planner{world: w, explain: explain}, Fleet: &fleet{clients: clients}, Rules: admin.Rules{Writable: true},
			Operator: &operator{breaches: func(ctx context.Context, _ *admin.Drain) ([]string, error) {
				asked++
				cancel()
				return nil, ctx.Err()
			}},
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

// TestUnhealthyWaitsForNoDrain: what is down comes out of traffic at once, however
// many drains are being checked.
func TestUnhealthyWaitsForNoDrain(t *testing.T) {
	checking, release := make(chan struct{}, 1), make(chan struct{})
	srv := start(t, newWorld(), func(o *admin.Options) {
		operatorOf(o).breaches = func(context.Context, *admin.Drain) ([]string, error) {
			select {
			case checking <- struct{}{}:
			default:
			}
			<-release
			return nil, nil
		}
	})
	const path = "/v1/services/legacy/endpoints/127.0.0.1:50051/health"
	var drains sync.WaitGroup
	var busy atomic.Int32
	for range 100 {
		drains.Go(func() {
			if a := do(t, srv, http.MethodPut, path, "draining"); a.code == http.StatusServiceUnavailable {
				busy.Add(1)
			}
		})
	}
	<-checking
	testhelp.Eventually(t, "the drains that there is no room for are refused", func() bool { return busy.Load() == 68 })
	for _, state := range []string{"unhealthy", "healthy"} {
		if a := do(t, srv, http.MethodPut, path, state); a.code != http.StatusOK {
			t.Errorf("%s: %d %s", state, a.code, a.body)
		}
	}
	close(release)
	drains.Wait()
}
