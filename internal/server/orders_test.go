package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestOrdersOutliveServices: a rollback to a version that had a service which is
// gone does not bring it back, history goes on telling of it, over a restart too,
// and what is paused together is paused when it comes back.
func TestOrdersOutliveServices(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		cfg := configuration(t)
		cfg.Admin.Writable = true
		const cart = `{"localities": [{"locality": "us/a", "endpoints": ["10.9.0.1:80"]}, {"locality": "us/b", "endpoints": ["10.9.0.2:80"]}]}`
		call := func(w *world, method, path, body string, out any) int {
			t.Helper()
			return w.operate(method, "127.0.0.1", path, body, out)
		}
		told := func(w *world, when string, want ...string) {
			t.Helper()
			var list admin.ChangeList
			w.read("127.0.0.1", "/v1/history?service=cart", &list)
			var reasons []string
			for i := range list.Changes {
				for _, s := range list.Changes[i].Services {
					reasons = append(reasons, s.Reason)
				}
			}
			if !slices.Equal(reasons, want) {
				t.Errorf("%s: the history of cart tells %q, want %q", when, reasons, want)
			}
		}
		var with *plan.Plan
		runWorld(t, cfg, kept, func(w *world) {
			w.start(everywhere(300)...)
			if code := call(w, http.MethodPut, "/v1/services/cart", cart, new(any)); code != 201 && code != 200 {
				t.Fatalf("cart: %d", code)
			}
			for range 5 {
				with = w.tick()
			}
			if code := call(w, http.MethodDelete, "/v1/services/cart", "", new(any)); code >= 300 {
				t.Fatalf("without cart: %d", code)
			}
			w.start(clients("us/a", 8, constant(1200))...) // or a rollback would change nothing
			for range 20 {
				w.tick()
			}
			var out admin.Operated
			if code := w.order("/v1/rollback", fmt.Sprintf(`{"version": %q, "force": true}`, with.VersionString()), &out); code != 200 || len(out.Paused) != 1 {
				t.Fatalf("a rollback of all: %d %+v", code, out)
			}
			p := w.server.Plan()
			noViolations(t, p)
			if _, back := p.Service("cart"); back || apart(with, p) > 0 {
				t.Errorf("cart is back: %v; checkout is %v points away", back, apart(with, p))
			}
			var refused admin.Problem
			if code := w.order("/v1/rollback", fmt.Sprintf(`{"version": %q, "service": "cart"}`, with.VersionString()), &refused); code != 404 || !strings.Contains(refused.Error, "cart") {
				t.Errorf("a rollback of what is gone: %d %+v", code, refused)
			}
			told(w, "before the restart", "the service was removed", "the service is new")
		})
		runWorld(t, cfg, kept, func(w *world) {
			w.start(everywhere(300)...)
			w.tick()
			told(w, "after the restart", "the service was removed", "the service is new")
			if code := call(w, http.MethodPut, "/v1/services/cart", cart, new(any)); code != 201 && code != 200 {
				t.Fatalf("cart again: %d", code)
			}
			p := w.tick()
			noViolations(t, p)
			if s, ok := p.Service("cart"); !ok || !strings.HasPrefix(s.Hold, "paused") {
				t.Errorf("cart is there: %v, and not paused with all", ok)
			}
			var refused admin.Problem
			if code := w.order("/v1/resume", `{"service": "cart"}`, &refused); code != 409 {
				t.Errorf("one of all is resumed: %d %+v", code, refused)
			}
			if moved := apart(with, w.tick()); moved > 0 {
				t.Errorf("checkout moved by %v points while all is paused", moved)
			}
			told(w, "when it is back", "the service is new", "the service was removed", "the service is new")
		})
	})
}
