package admin_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/store"
)

func bodyOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestServiceLifecycle(t *testing.T) {
	w := newWorld()
	srv := start(t, w, nil)
	cart := bodyOf(t, service("cart"))

	created := do(t, srv, http.MethodPut, "/v1/services/cart", cart)
	var p admin.Published
	created.decode(t, &p)
	if created.code != http.StatusOK || p.Version != "102" || p.Service != "cart" || p.TopologyRevision != 2 {
		t.Fatalf("put: %d %s", created.code, created.body)
	}
	tag := created.header.Get("ETag")
	if tag != `"2"` {
		t.Errorf("ETag %s", tag)
	}

	got := do(t, srv, http.MethodGet, "/v1/services/cart", "")
	var obj isobar.Object
	got.decode(t, &obj)
	if got.code != http.StatusOK || obj.Owner != isobar.OwnerAPI || obj.Service.Name != "cart" || got.header.Get("ETag") != tag {
		t.Errorf("get: %d %s", got.code, got.body)
	}

	if a := do(t, srv, http.MethodPut, "/v1/services/cart", cart, "If-Match", tag); a.code != http.StatusOK || a.header.Get("ETag") != `"3"` {
		t.Errorf("put with the right revision: %d %s", a.code, a.body)
	}
	stale := do(t, srv, http.MethodPut, "/v1/services/cart", cart, "If-Match", tag)
	var problem admin.Problem
	stale.decode(t, &problem)
	if stale.code != http.StatusPreconditionFailed || problem.Revision != 3 || problem.Fix == "" {
		t.Errorf("put with a stale revision: %d %s", stale.code, stale.body)
	}
	if a := do(t, srv, http.MethodDelete, "/v1/services/cart", "", "If-Match", tag); a.code != http.StatusPreconditionFailed {
		t.Errorf("delete with a stale revision: %d %s", a.code, a.body)
	}
	if a := do(t, srv, http.MethodDelete, "/v1/services/cart", "", "If-Match", "*"); a.code != http.StatusOK {
		t.Errorf("delete: %d %s", a.code, a.body)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if a := do(t, srv, method, "/v1/services/cart", ""); a.code != http.StatusNotFound {
			t.Errorf("%s after the delete: %d %s", method, a.code, a.body)
		}
	}
	for _, match := range []string{"*", `"9"`} {
		if a := do(t, srv, http.MethodPut, "/v1/services/cart", cart, "If-Match", match); a.code != http.StatusPreconditionFailed {
			t.Errorf("put of nothing with If-Match %s: %d %s", match, a.code, a.body)
		}
	}
}

// TestSlashInNames: names of endpoints at Contour, such as shop/checkout/http, are
// written with %2F in URLs, behind a base path, too.
func TestSlashInNames(t *testing.T) {
	const name = "shop/checkout/http"
	srv := start(t, newWorld(), func(o *admin.Options) { o.BasePath = "/ops" })
	for _, base := range []string{"", "/ops"} {
		path := base + "/v1/services/shop%2Fcheckout%2Fhttp"
		var p admin.Published
		if a := do(t, srv, http.MethodPut, path, bodyOf(t, service(name))); a.code != http.StatusOK {
			t.Fatalf("put %s: %d %s", path, a.code, a.body)
		} else if a.decode(t, &p); p.Service != name {
			t.Errorf("put: %s", a.body)
		}
		var o isobar.Object
		if a := do(t, srv, http.MethodGet, path, ""); a.code != http.StatusOK {
			t.Errorf("get: %d %s", a.code, a.body)
		} else if a.decode(t, &o); o.Service.Name != name {
			t.Errorf("get: %s", a.body)
		}
		var e admin.EndpointHealth
		if a := do(t, srv, http.MethodGet, path+"/endpoints/127.0.0.1:50051/health", ""); a.code != http.StatusOK {
			t.Errorf("health: %d %s", a.code, a.body)
		} else if a.decode(t, &e); e.Service != name {
			t.Errorf("health: %s", a.body)
		}
		var problem admin.Problem
		a := do(t, srv, http.MethodGet, base+"/v1/services/"+name, "")
		if a.decode(t, &problem); a.code != http.StatusNotFound || !strings.Contains(problem.Fix, "%2F") {
			t.Errorf("get without escapes: %d %s", a.code, a.body)
		}
		if a := do(t, srv, http.MethodDelete, path, ""); a.code != http.StatusOK {
			t.Errorf("delete: %d %s", a.code, a.body)
		}
	}
}

func TestOwnersAreKeptApart(t *testing.T) {
	srv := start(t, newWorld(), nil)
	tests := []struct{ name, method, path, body string }{
		{"put", http.MethodPut, "/v1/services/legacy", bodyOf(t, service("legacy"))},
		{"put all", http.MethodPut, "/v1/services", bodyOf(t, []isobar.Service{service("cart"), service("legacy")})},
		{"delete", http.MethodDelete, "/v1/services/legacy", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := do(t, srv, tt.method, tt.path, tt.body)
			var p admin.Problem
			a.decode(t, &p)
			if a.code != http.StatusConflict || p.Owner != isobar.OwnerFile || !strings.Contains(p.Fix, "configuration file") {
				t.Errorf("got %d %s", a.code, a.body)
			}
		})
	}
	if a := do(t, srv, http.MethodGet, "/v1/services/cart", ""); a.code != http.StatusNotFound {
		t.Errorf("a refused set was written in part: %s", a.body)
	}
}

func TestPutAllReplacesTheSetOfTheAPI(t *testing.T) {
	srv := start(t, newWorld(), nil)
	do(t, srv, http.MethodPut, "/v1/services/old", bodyOf(t, service("old")))
	if a := do(t, srv, http.MethodPut, "/v1/services", bodyOf(t, []isobar.Service{service("a"), service("b")})); a.code != http.StatusOK {
		t.Fatalf("%d %s", a.code, a.body)
	}
	var list admin.ServiceList
	do(t, srv, http.MethodGet, "/v1/services", "").decode(t, &list)
	var names []string
	for _, o := range list.Services {
		names = append(names, o.Service.Name)
	}
	if got := strings.Join(names, " "); got != "a b legacy" {
		t.Errorf("services: %s", got)
	}
	if a := do(t, srv, http.MethodPut, "/v1/services", "[]", "If-Match", `"1"`); a.code != http.StatusBadRequest {
		t.Errorf("If-Match on the set: %d", a.code)
	}
}

func TestHealth(t *testing.T) {
	w := newWorld()
	srv := start(t, w, nil)
	const path = "/v1/services/legacy/endpoints/127.0.0.1:50051/health"
	tests := []struct {
		name, path, body string
		code             int
		want             isobar.HealthStatus
	}{
		{"plain", path, "unhealthy\n", 200, isobar.Unhealthy},
		{"json string", path, `"draining"`, 200, isobar.Draining},
		{"object", path, `{"health": "healthy"}`, 200, isobar.Healthy},
		{"yaml", path, "health: unhealthy", 200, isobar.Unhealthy},
		{"a verdict of probes", path, "timeout", 400, 0},
		{"nonsense", path, "well", 400, 0},
		{"empty", path, "", 400, 0},
		{"number", path, "3", 400, 0},
		{"no such endpoint", "/v1/services/legacy/endpoints/127.0.0.1:1/health", "healthy", 404, 0},
		{"no such service", "/v1/services/none/endpoints/127.0.0.1:1/health", "healthy", 404, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.set(func() { clear(w.health) })
			a := do(t, srv, http.MethodPut, tt.path, tt.body)
			if a.code != tt.code {
				t.Fatalf("got %d %s", a.code, a.body)
			}
			w.set(func() {
				if got := w.health["legacy 127.0.0.1:50051"]; got != tt.want {
					t.Errorf("health %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestHealthTakenBack(t *testing.T) {
	w := newWorld()
	srv := start(t, w, nil)
	const path = "/v1/services/legacy/endpoints/127.0.0.1:50051/health"
	do(t, srv, http.MethodPut, path, "draining")
	if a := do(t, srv, http.MethodDelete, path, ""); a.code != http.StatusOK {
		t.Errorf("got %d %s", a.code, a.body)
	}
	w.set(func() {
		if got := w.health["legacy 127.0.0.1:50051"]; got != isobar.Unknown {
			t.Errorf("health %v", got)
		}
	})
}

func TestWriteThatNoPlanTakes(t *testing.T) {
	w := newWorld()
	w.held = true
	srv := start(t, w, nil)
	a := do(t, srv, http.MethodPut, "/v1/services/cart", bodyOf(t, service("cart")))
	var p admin.Published
	a.decode(t, &p)
	if a.code != http.StatusAccepted || p.Version != "" || p.Revision == 0 {
		t.Fatalf("got %d %s", a.code, a.body)
	}
	for _, want := range []string{"revision 2", "plan 101 has revision 1", "control loop advanced"} {
		if !strings.Contains(p.Reason, want) {
			t.Errorf("the reason does not say %q: %s", want, p.Reason)
		}
	}
}

func TestRefusedWrites(t *testing.T) {
	cart := bodyOf(t, service("cart"))
	const path = "/v1/services/cart"
	tests := []struct {
		name    string
		path    string
		body    string
		headers []string
		code    int
		want    string
	}{
		{"broken body", path, "{", nil, 400, `"place":"1:2"`},
		{"other name", path, bodyOf(t, service("other")), nil, 400, "write cart"},
		{"broken set", "/v1/services", "{", nil, 400, "write a list"},
		{"foreign type", path, cart, []string{"Content-Type", "image/png"}, 415, "application/yaml"},
		{"no type at all", path, cart, []string{"Content-Type", ";"}, 415, "application/yaml"},
		{"revision that is no number", path, cart, []string{"If-Match", `"x"`}, 400, "ETag"},
		{"revision 0", path, cart, []string{"If-Match", "0"}, 400, "ETag"},
		{"If-None-Match", path, cart, []string{"If-None-Match", "*"}, 400, "If-Match"},
		{"rebound name", path, cart, []string{"Host", "evil.example:18080"}, 403, "Host"},
		{"foreign page", path, cart, []string{"Origin", "http://evil.example"}, 403, "origin"},
		{"sandboxed page", path, cart, []string{"Origin", "null"}, 403, "origin"},
		{"cross-site fetch", path, cart, []string{"Sec-Fetch-Site", "cross-site"}, 403, "origin"},
		{"too large", path, strings.Repeat(" ", 4<<20+1), nil, 413, "larger"},
	}
	srv := start(t, newWorld(), nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := do(t, srv, http.MethodPut, tt.path, tt.body, tt.headers...)
			var p admin.Problem
			a.decode(t, &p)
			if a.code != tt.code || !strings.Contains(a.body, tt.want) || p.Error == "" {
				t.Errorf("got %d %s, want %d with %q", a.code, a.body, tt.code, tt.want)
			}
		})
	}
}

func TestAcceptedWrites(t *testing.T) {
	cart := bodyOf(t, service("cart"))
	tests := []struct {
		name    string
		headers []string
	}{
		{"json", []string{"Content-Type", "application/json; charset=utf-8"}},
		{"yaml", []string{"Content-Type", "application/yaml"}},
		{"curl's default", []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"localhost", []string{"Host", "localhost:18080"}},
		{"IPv6", []string{"Host", "[::1]:18080"}},
		{"listed name", []string{"Host", "isobar.internal"}},
		{"same origin", []string{"Host", "localhost:18080", "Origin", "http://localhost:18080"}},
		{"same-origin fetch", []string{"Sec-Fetch-Site", "same-origin"}},
	}
	srv := start(t, newWorld(), func(o *admin.Options) { o.Hosts = []string{"isobar.internal"} })
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if a := do(t, srv, http.MethodPut, "/v1/services/cart", cart, tt.headers...); a.code != http.StatusOK {
				t.Errorf("got %d %s", a.code, a.body)
			}
		})
	}
}

func TestWarningsComeWithTheAnswer(t *testing.T) {
	doubtful := service("cart")
	doubtful.MaxShift = 5
	a := do(t, start(t, newWorld(), nil), http.MethodPut, "/v1/services/cart", bodyOf(t, doubtful))
	if a.code != http.StatusOK || !strings.Contains(a.body, "max_shift has no effect") {
		t.Errorf("got %d %s", a.code, a.body)
	}
}

func TestReadOnly(t *testing.T) {
	srv := start(t, newWorld(), func(o *admin.Options) { o.Writable = false })
	for _, path := range []string{"/v1/services/cart", "/v1/services", "/v1/services/legacy/endpoints/127.0.0.1:50051/health"} {
		a := do(t, srv, http.MethodPut, path, "healthy")
		if a.code != http.StatusForbidden || !strings.Contains(a.body, "writable: true") {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	if a := do(t, srv, http.MethodGet, "/v1/services", ""); a.code != http.StatusOK {
		t.Errorf("reading: %d", a.code)
	}
}

func TestStoreFailureIsNoFaultOfTheCaller(t *testing.T) {
	w := newWorld()
	w.failWith = errors.New("disk full")
	a := do(t, start(t, w, nil), http.MethodPut, "/v1/services/cart", bodyOf(t, service("cart")))
	if a.code != http.StatusInternalServerError || !strings.Contains(a.body, "disk full") {
		t.Errorf("got %d %s", a.code, a.body)
	}
}

// TestFilesThatAreGone: the answer says what the store says, and not that the
// change is to be repeated.
func TestFilesThatAreGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	files, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	revision, err := files.CompareAndSwap(t.Context(), "services", 0, []byte("x"))
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	_, w.failWith = files.CompareAndSwap(t.Context(), "services", revision, []byte("y"))
	a := do(t, start(t, w, nil), http.MethodPut, "/v1/services/cart", bodyOf(t, service("cart")))
	if a.code != http.StatusInternalServerError || !strings.Contains(a.body, "put them back") || strings.Contains(a.body, "repeat the change") {
		t.Errorf("got %d %s", a.code, a.body)
	}
}
