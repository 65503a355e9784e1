package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

const legacyHealth = "/v1/services/legacy/endpoints/127.0.0.1:50051/health"

// TestOverridesAreSeenEverywhere: what an operator set is told wherever one
// would look for the reason, until it is taken back.
func TestOverridesAreSeenEverywhere(t *testing.T) {
	srv := start(t, newWorld(), nil)
	places := map[string]string{
		"/v1/health":                             `{"service":"legacy","address":"127.0.0.1:50051","locality":"us-east/b","status":"draining","since":"1970-01-01T00:15:00Z","who":"ann","reason":"disk"}`,
		legacyHealth:                             `"override":{"status":"draining","since":"1970-01-01T00:15:00Z","who":"ann","reason":"disk"}`,
		"/v1/services":                           `"health_overrides":[{"service":"legacy"`,
		"/v1/services/legacy":                    `"health_overrides":[{"service":"legacy"`,
		"/v1/plan":                               `"health_overrides":[{"service":"legacy"`,
		"/v1/plan?service=legacy":                `"health_overrides":[{"service":"legacy"`,
		"/v1/explain?service=legacy&from=eu-w/a": "endpoint 127.0.0.1:50051 in us-east/b is draining by operator since 1970-01-01T00:15:00Z (ann: disk): DELETE " + legacyHealth + " removes this",
	}
	look := func(when string, want bool) {
		t.Helper()
		for path, text := range places {
			a := do(t, srv, http.MethodGet, path, "")
			if a.code != http.StatusOK || strings.Contains(a.body, text) != want {
				t.Errorf("%s: %s answers %d %s", when, path, a.code, a.body)
			}
		}
	}
	look("before", false)
	do(t, srv, http.MethodPut, legacyHealth+"?who=ann&reason=disk", "draining")
	look("set", true)
	do(t, srv, http.MethodDelete, legacyHealth, "")
	look("taken back", false)
	if a := do(t, srv, http.MethodGet, "/v1/health", ""); a.body != `{"overrides":[]}`+"\n" {
		t.Errorf("no overrides are %s", a.body)
	}
}

func TestHealthOfOneEndpoint(t *testing.T) {
	w := newWorld()
	srv := start(t, w, nil)
	get := func() (out admin.EndpointHealth) {
		t.Helper()
		do(t, srv, http.MethodGet, legacyHealth, "").decode(t, &out)
		return out
	}
	want := admin.EndpointHealth{
		Service: "legacy", Address: "127.0.0.1:50051", Locality: isobar.MustLocality("us-east/b"),
		Configured: isobar.Unknown, Health: isobar.Healthy, // what the published plan tells clients
	}
	if got := get(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	w.set(func() { w.current = nil })
	do(t, srv, http.MethodPut, legacyHealth, "unhealthy")
	w.set(func() { w.current = nil })
	if got := get(); got.Health != isobar.Unhealthy || got.Override == nil || got.Override.Status != isobar.Unhealthy {
		t.Errorf("without a plan, got %+v", got)
	}
	for _, path := range []string{"/v1/services/none/endpoints/127.0.0.1:50051/health", "/v1/services/legacy/endpoints/127.0.0.1:1/health"} {
		if a := do(t, srv, http.MethodGet, path, ""); a.code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
}

// TestWhoSetsHealth asserts that a write for one endpoint tells who gives it and why, in the
// body or in parameters, and that a request without a name has the address that it came from.
func TestWhoSetsHealth(t *testing.T) {
	w := newWorld()
	srv := start(t, w, nil)
	for _, x := range []struct{ method, query, body, who, reason string }{
		{http.MethodPut, "", `{"health": "draining", "who": " ann\n", "reason": "kernel\tupdate"}`, "ann", "kernel update"},
		{http.MethodPut, "?who=bob&reason=move", "unhealthy", "bob", "move"},
		{http.MethodPut, "?who=bob&reason=move", `{"health": "healthy", "who": "ann", "reason": "back"}`, "ann", "back"},
		{http.MethodDelete, "?who=eve&reason=it+is+done", "", "eve", "it is done"},
		{http.MethodPut, "", "draining", "127.0.0.1:", ""},
		{http.MethodDelete, "", "", "127.0.0.1:", ""},
	} {
		if a := do(t, srv, x.method, legacyHealth+x.query, x.body); a.code != http.StatusOK {
			t.Fatalf("%+v: %d %s", x, a.code, a.body)
		}
		var last isobar.HealthChange
		w.set(func() { last = w.ordered })
		if who := strings.TrimRight(last.Who, "0123456789"); who != x.who || last.Reason != x.reason {
			t.Errorf("%+v: ordered by %q because %q", x, last.Who, last.Reason)
		}
		var shown admin.EndpointHealth
		do(t, srv, http.MethodGet, legacyHealth, "").decode(t, &shown)
		if o := shown.Override; x.method == http.MethodPut && (o == nil || o.Who != last.Who || o.Reason != x.reason) {
			t.Errorf("%+v: shown as %+v", x, o)
		}
	}
}

// TestExplanationNamesSomeOverrides: a drained fleet does not drown the rest.
func TestExplanationNamesSomeOverrides(t *testing.T) {
	w := newWorld()
	for range 25 {
		w.said = append(w.said, isobar.HealthOverride{Service: "legacy", Address: "127.0.0.1:50051", Status: isobar.Draining})
	}
	var e plan.Explanation
	do(t, start(t, w, nil), http.MethodGet, "/v1/explain?service=legacy&from=eu-w/a", "").decode(t, &e)
	if len(e.Warnings) != 11 || !strings.HasPrefix(e.Warnings[10], "15 more endpoints") || strings.Contains(e.Warnings[0], "since") {
		t.Errorf("warnings %q", e.Warnings)
	}
}

func TestHealthTakesNoPrecondition(t *testing.T) {
	w := newWorld()
	srv := start(t, w, nil)
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		for _, header := range []string{"If-Match", "If-None-Match"} {
			a := do(t, srv, method, legacyHealth, "draining", header, `"1"`)
			if a.code != http.StatusBadRequest || !strings.Contains(a.body, "no revision") {
				t.Errorf("%s with %s: %d %s", method, header, a.code, a.body)
			}
		}
	}
	if a := do(t, srv, http.MethodPut, legacyHealth, "draining", "Content-Type", "image/png"); a.code != http.StatusUnsupportedMediaType {
		t.Errorf("a picture: %d %s", a.code, a.body)
	}
	if len(w.Overrides()) != 0 {
		t.Errorf("refused writes took effect: %+v", w.Overrides())
	}
}

// TestWritesAreLogged: who changed what can be found in the log; what was
// refused is no change.
func TestWritesAreLogged(t *testing.T) {
	var log bytes.Buffer
	srv := start(t, newWorld(), func(o *admin.Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	cart := bodyOf(t, service("cart"))
	for _, r := range []struct{ method, path, body string }{
		{http.MethodPut, "/v1/services/cart", cart},
		{http.MethodPut, "/v1/services/cart", "{"},
		{http.MethodPut, "/v1/services", "[" + cart + "]"},
		{http.MethodPut, legacyHealth, "draining"},
		{http.MethodDelete, legacyHealth, ""},
		{http.MethodDelete, "/v1/services/legacy", ""},
		{http.MethodDelete, "/v1/services/cart", ""},
	} {
		do(t, srv, r.method, r.path, r.body)
	}
	srv.Close() // so that nothing writes to the log any more
	var got []string
	for line := range strings.Lines(log.String()) {
		var record struct{ Msg, Service, Address, Health, Peer string }
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(record.Peer, "127.0.0.1:") {
			t.Errorf("no peer in %s", line)
		}
		got = append(got, strings.TrimSpace(record.Msg+" "+record.Service+" "+record.Address+" "+record.Health))
	}
	want := []string{
		"service written cart",
		"services of the API replaced",
		"health set by operator legacy 127.0.0.1:50051 draining",
		"override taken back legacy 127.0.0.1:50051",
		"service deleted cart",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the log holds %q, want %q", got, want)
	}
}

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
