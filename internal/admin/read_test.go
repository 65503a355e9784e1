package admin_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

func TestPlan(t *testing.T) {
	w := newWorld()
	w.current.Violations = []invariant.Violation{{Rule: "conserved", Service: "legacy", Text: "x"}}
	srv := start(t, w, nil)
	for _, path := range []string{"/v1/plan", "/v1/plan?service=legacy"} {
		a := do(t, srv, http.MethodGet, path, "")
		var v admin.PlanView
		a.decode(t, &v)
		if a.code != http.StatusOK || v.Version != "101" || v.TopologyRevision != 1 || len(v.Services) != 1 || len(v.Violations) != 1 {
			t.Fatalf("%s: %d %s", path, a.code, a.body)
		}
		site := v.Services[0].Localities[0]
		if site.Healthy != 1 || site.Load != 40 || site.Utilization != 0.5 {
			t.Errorf("%s: locality %+v", path, site)
		}
		source := v.Services[0].Sources[0]
		if source.Source != isobar.MustLocality("eu-west/a") || source.Shares[0].Published != 1 || source.Priorities[0][0].Weight != isobar.WeightScale {
			t.Errorf("%s: source %+v", path, source)
		}
	}
	if a := do(t, srv, http.MethodGet, "/v1/plan?service=none", ""); a.code != http.StatusNotFound {
		t.Errorf("unknown service: %d", a.code)
	}
}

// TestPlanTellsOfHealthChecks: who asks for the verdicts of a service that the plan says has some
// is not refused.
func TestPlanTellsOfHealthChecks(t *testing.T) {
	for _, tt := range []struct {
		name         string
		checks       []isobar.HealthCheck
		discovers    bool // the server has health discovery
		want         bool
		wantVerdicts int
	}{
		{"with", []isobar.HealthCheck{{}}, true, true, http.StatusOK},
		{"without", nil, true, false, http.StatusNotFound},
		{"without health discovery", []isobar.HealthCheck{{}}, false, false, http.StatusNotFound},
	} {
		w := newWorld()
		spec := *w.current.Services[0].Spec
		spec.HealthChecks, w.current.Services[0].Spec = tt.checks, &spec
		srv := start(t, w, func(o *admin.Options) {
			if tt.discovers {
				healthOf(o).health = func(context.Context, string) (out []health.ServiceReport, err error) {
					if len(tt.checks) > 0 {
						out = append(out, health.ServiceReport{Service: "legacy"})
					}
					return out, nil
				}
			}
		})
		var v admin.PlanView
		do(t, srv, http.MethodGet, "/v1/plan?service=legacy", "").decode(t, &v)
		verdicts := do(t, srv, http.MethodGet, "/v1/verdicts?service=legacy", "")
		if v.Services[0].Checked != tt.want || verdicts.code != tt.wantVerdicts {
			t.Errorf("%s: checked %v, verdicts %d", tt.name, v.Services[0].Checked, verdicts.code)
		}
	}
}

func TestExplain(t *testing.T) {
	srv := start(t, newWorld(), nil)
	tests := []struct {
		name, query string
		code        int
		want        string
	}{
		{"known", "?service=legacy&from=eu-west/a", 200, `"source":"eu-west/a"`},
		{"client without locality", "?service=legacy", 200, `"source":""`},
		{"unknown service", "?service=none&from=eu-west/a", 404, "no such service"},
		{"unknown source", "?service=legacy&from=mars/a", 404, "mars/a"},
		{"no service", "?from=eu-west/a", 400, "add ?service="},
		{"bad locality", "?service=legacy&from=a/b/c/d", 400, "region/zone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := do(t, srv, http.MethodGet, "/v1/explain"+tt.query, "")
			if a.code != tt.code || !strings.Contains(a.body, tt.want) {
				t.Errorf("got %d %s", a.code, a.body)
			}
		})
	}
}

func TestProbesBeforeAndAfterThePlan(t *testing.T) {
	w := newWorld()
	first := w.current
	w.current = nil
	w.beat = time.Time{}
	srv := start(t, w, func(o *admin.Options) { processOf(o).stall = func() time.Duration { return time.Minute } })
	expect := func(when, path string, code int) {
		t.Helper()
		if a := do(t, srv, http.MethodGet, path, ""); a.code != code {
			t.Errorf("%s: %s is %d %s", when, path, a.code, a.body)
		}
	}
	expect("at start", "/livez", 200)
	for _, path := range []string{"/readyz", "/v1/plan", "/v1/explain?service=legacy"} {
		expect("at start", path, 503)
	}
	w.set(func() { w.current, w.beat = first, time.Now() })
	expect("running", "/livez", 200)
	expect("running", "/readyz", 200)
	w.set(func() { w.beat = time.Now().Add(-2 * time.Minute) })
	expect("stuck", "/livez", 503)
	expect("stuck", "/readyz", 503)
}

func TestOtherPaths(t *testing.T) {
	srv := start(t, newWorld(), nil)
	tests := []struct {
		method, path string
		code         int
		want         string
	}{
		{http.MethodGet, "/v1/nothing", 404, "/v1/services"},
		{http.MethodPost, "/v1/services/cart", 405, "GET or PUT or DELETE"},
		{http.MethodPost, "/v1/plan", 405, "use GET"},
		{http.MethodGet, "/debug/pprof/goroutine?debug=1", 200, "goroutine profile"},
		{http.MethodGet, "/debug/pprof/", 200, "heap"},
		{http.MethodGet, "/v1/clients", 200, "priority gap"},
	}
	for _, tt := range tests {
		a := do(t, srv, tt.method, tt.path, "")
		if a.code != tt.code || !strings.Contains(a.body, tt.want) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, a.code, a.body)
		}
	}
}

func TestMetricsCountByRoute(t *testing.T) {
	reg := prometheus.NewRegistry()
	srv := start(t, newWorld(), func(o *admin.Options) { o.Gatherer, o.Registerer = reg, reg })
	do(t, srv, http.MethodGet, "/v1/services/none", "")
	do(t, srv, http.MethodGet, "/v1/services/other", "")
	a := do(t, srv, http.MethodGet, "/metrics", "")
	if want := `isobar_admin_requests_total{code="404",route="GET /v1/services/{name}"} 2`; !strings.Contains(a.body, want) {
		t.Errorf("no %s in\n%s", want, a.body)
	}
}

// http2Server returns the address of one that greets with settings, as gRPC does.
func http2Server(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00@\x00"))
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

func TestRemote(t *testing.T) {
	srv := start(t, newWorld(), nil)
	remote, err := admin.NewRemote(strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Explain(t.Context(), "legacy", "eu-west/a")
	if err != nil || got.Service != "legacy" || got.Version != "101" {
		t.Errorf("explain: %+v %v", got, err)
	}
	if _, err := remote.Explain(t.Context(), "none", ""); err == nil || !strings.Contains(err.Error(), "/v1/services lists the names") {
		t.Errorf("unknown service: %v", err)
	}
	sources, err := remote.Sources(t.Context(), "legacy")
	if err != nil || len(sources) == 0 || sources[0].Demand <= 0 {
		t.Errorf("sources: %+v %v", sources, err)
	}
	list, err := remote.Clients(t.Context())
	if err != nil || len(list.Clients) != 1 || list.Clients[0].Types["eds"].NACK.Text != "priority gap" {
		t.Errorf("clients: %+v %v", list, err)
	}

	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	t.Cleanup(html.Close)
	other, err := admin.NewRemote(html.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Clients(t.Context()); err == nil || !strings.Contains(err.Error(), "admin interface") {
		t.Errorf("some web server: %v", err)
	}
	over := httptest.NewUnstartedServer(http.NotFoundHandler())
	over.Config.ErrorLog = log.New(io.Discard, "", 0)
	over.StartTLS()
	t.Cleanup(over.Close)
	for address, want := range map[string]string{
		http2Server(t): "expects gRPC or TLS: the admin interface is at admin.listen",
		over.URL:       "signed by unknown authority: look at --ca",
		strings.Replace(over.URL, "https:", "http:", 1): "HTTP request to an HTTPS server.): write https:// before the address",
	} {
		r, err := admin.NewRemote(address, admin.WithHint(func(err error) string {
			if strings.Contains(err.Error(), "unknown authority") {
				return "look at --ca"
			}
			return ""
		}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Clients(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	for _, bad := range []string{"ftp://x", "http://", "http://%zz"} {
		if _, err := admin.NewRemote(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// TestRemoteOfAStoppedServer: the kernel takes connections for a process that is stopped. The
// caller gets a message while it waits, and the error says what the likely cause is.
func TestRemoteOfAStoppedServer(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	told := make(chan string, 2)
	remote, err := admin.NewRemote(l.Addr().String(), admin.WithWait(10*time.Millisecond, func(host string) { told <- host }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := remote.Clients(ctx); err == nil || !strings.Contains(err.Error(), l.Addr().String()+" accepts connections and does not answer") {
		t.Errorf("a server that does not answer: %v", err)
	}
	if len(told) != 1 || <-told != l.Addr().String() {
		t.Error("nobody was told, once, that the server takes long")
	}
}

func TestServeStopsWithItsContext(t *testing.T) {
	w := newWorld()
	s, err := admin.New(admin.Options{Objects: w, Parser: jsonParser{}, Planner: &planner{world: w, explain: explain}, Fleet: &fleet{clients: clients}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	remote, err := admin.NewRemote(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Clients(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestNewWantsItsParts(t *testing.T) {
	if _, err := admin.New(admin.Options{Fleet: &fleet{clients: clients}}); err == nil {
		t.Error("an interface without objects was built")
	}
}

// TestOverview: a service in one line, with what is sent elsewhere than to the
// nearest locality.
func TestOverview(t *testing.T) {
	w := newWorld()
	near, far := isobar.MustLocality("eu-west/b"), isobar.MustLocality("us-east/b")
	svc := w.current.Services[0]
	site := svc.Result.Sites[0]
	site.Group = &isobar.EndpointGroup{Locality: near, Endpoints: site.Group.Endpoints}
	sick := site
	sick.Group = &isobar.EndpointGroup{Locality: isobar.MustLocality("eu-west/a"), Endpoints: []isobar.WeightedEndpoint{
		{Address: "x", Health: isobar.Unhealthy}, {Address: "y", Health: isobar.Draining},
	}}
	sick.Capacity = 0
	svc.Result.Sites = append(svc.Result.Sites, site, sick)
	svc.Result.Load = []float64{10, 60, 0}
	svc.Result.Sources = []assign.SourceResult{
		{Source: isobar.MustLocality("eu-west/a"), Demand: 60, Shares: []float64{0.25, 0.75, 0}, Want: []float64{0.5, 0.5, 0}},
		{Source: far, Demand: 20, Shares: []float64{1, 0, 0}, Want: []float64{1, 0, 0}},
	}
	srv := start(t, w, func(o *admin.Options) { plannerOf(o).ticks = func() (uint64, time.Duration) { return 7, time.Second } })
	var got admin.Overview
	do(t, srv, http.MethodGet, "/v1/overview", "").decode(t, &got)
	if len(got.Services) != 1 || got.Status.Version != "101" || got.Status.Ticks != 7 || got.Status.TickSeconds != 1 {
		t.Fatalf("got %+v", got)
	}
	o := got.Services[0]
	if o.Demand != 80 || o.Shift != 0.1875 || o.Moving != 0.1875 || o.Healthy != 2 || o.Draining != 1 || o.Endpoints != 4 || o.Solved {
		t.Errorf("got %+v", o)
	}
	if o.Fullest == nil || o.Fullest.Locality != near || o.Fullest.Utilization != 0.7 {
		t.Errorf("fullest %+v", o.Fullest)
	}
	var one admin.PlanView
	do(t, srv, http.MethodGet, "/v1/plan?service=legacy", "").decode(t, &one)
	if l := one.Services[0].Localities[2]; l.Healthy != 0 || l.Draining != 1 || l.Endpoints != 2 {
		t.Errorf("the locality with a drained endpoint: %+v", l)
	}
	w.set(func() { w.current = nil })
	a := do(t, srv, http.MethodGet, "/v1/overview", "")
	a.decode(t, &got)
	if a.code != http.StatusOK || len(got.Services) != 0 || got.Status.OK {
		t.Errorf("before the first plan: %d %s", a.code, a.body)
	}
}

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
		{http.MethodGet, "/v1/explain?service=cart&from=eu-wset/a", http.StatusOK, "eu-wset/a: no service and no network entry names the region, so all localities count as equally far away; did you mean eu-west?"},
		{http.MethodGet, "/v1/explain?service=cart&from=eu-west/aa", http.StatusOK, "names the zone, so the other zones of its region count as equally near; did you mean eu-west/a?"},
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
