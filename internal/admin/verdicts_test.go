package admin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
)

const releaseLegacy = "/v1/services/legacy/health/release"

// probes is what a control loop knows of the health of one service.
type probes struct {
	held     bool
	failWith error
}

func (p *probes) health(_ context.Context, service string) ([]health.ServiceReport, error) {
	if p.failWith != nil {
		return nil, p.failWith
	}
	if service != "" && service != "legacy" {
		return nil, nil
	}
	report := health.ServiceReport{
		Service: "legacy", Summary: health.Summary{Endpoints: 1, Down: 1, FailOpen: true},
		Endpoints: []health.Verdict{{
			Key: health.Key{Service: "legacy", Address: "127.0.0.1:50051"}, Locality: isobar.MustLocality("us-east/b"),
			Status: isobar.Timeout, Since: connected, Why: "1 of 1 fresh vote in 1 zone agrees",
			Votes: []health.Vote{{Checker: "probe-1", Zone: isobar.MustLocality("us-east/b"), Status: isobar.Timeout, Heard: connected, Fresh: true, Counts: true}},
		}},
	}
	if p.held {
		report.Alarm = &health.Alarm{Service: "legacy", Why: "all of it at once"}
	}
	return []health.ServiceReport{report}, nil
}

func (p *probes) release(context.Context, string) (bool, error) {
	was := p.held
	p.held = false
	return was, p.failWith
}

func (p *probes) into(o *admin.Options) {
	healthOf(o).health, healthOf(o).release = p.health, p.release
	healthOf(o).checkers = func() []admin.Checker {
		return []admin.Checker{{
			ID: "probe-1", Locality: isobar.MustLocality("us-east/b"), Agent: "envoy 1.34", Peer: "127.0.0.1:1", Since: connected,
			Protocols: "http+tcp", Designated: 1, LastReport: connected, Rejected: 2, Reason: "cart: 10.0.0.1:80 was not to be probed",
		}}
	}
}

func TestVerdicts(t *testing.T) {
	p := &probes{held: true}
	srv := start(t, newWorld(), p.into)
	for _, path := range []string{"/v1/verdicts", "/v1/verdicts?service=legacy"} {
		a := do(t, srv, http.MethodGet, path, "")
		if a.code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, a.code, a.body)
		}
		for _, want := range []string{
			`"service":"legacy"`, `"fail_open":true`, `"status":"timeout"`, `"since":"1970-01-01T00:15:00Z"`, `"checker":"probe-1"`,
			`"why":"1 of 1 fresh vote in 1 zone agrees"`, `"alarm":{"service":"legacy"`, `"protocols":"http+tcp"`, `"designated":1`,
			`"rejected":2`, `"reason":"cart: 10.0.0.1:80 was not to be probed"`,
		} {
			if !strings.Contains(a.body, want) {
				t.Errorf("%s: no %s in %s", path, want, a.body)
			}
		}
		var list admin.VerdictList
		a.decode(t, &list)
		if len(list.Services) != 1 || len(list.Checkers) != 1 || !list.Checkers[0].LastReport.Equal(connected) {
			t.Errorf("%s: %+v", path, list)
		}
	}
	p.failWith = errors.New("it is busy")
	if a := do(t, srv, http.MethodGet, "/v1/verdicts", ""); a.code != http.StatusServiceUnavailable || !strings.Contains(a.body, "it is busy") {
		t.Errorf("without the loop: %d %s", a.code, a.body)
	}
}

// TestNoVerdicts: lists are never null, and without health discovery there is
// nothing to ask.
func TestNoVerdicts(t *testing.T) {
	nothing := func(context.Context, string) ([]health.ServiceReport, error) { return []health.ServiceReport{}, nil }
	srv := start(t, newWorld(), func(o *admin.Options) { healthOf(o).health = nothing })
	if a := do(t, srv, http.MethodGet, "/v1/verdicts", ""); a.body != `{"services":[],"checkers":[]}`+"\n" {
		t.Errorf("no verdicts are %s", a.body)
	}
	srv = start(t, newWorld(), nil)
	for method, path := range map[string]string{http.MethodGet: "/v1/verdicts", http.MethodPut: releaseLegacy} {
		if a := do(t, srv, method, path, ""); a.code != http.StatusNotFound {
			t.Errorf("%s %s: %d %s", method, path, a.code, a.body)
		}
	}
}

func TestReleaseOfMassFlip(t *testing.T) {
	var log bytes.Buffer
	p := &probes{held: true}
	srv := start(t, newWorld(), func(o *admin.Options) {
		p.into(o)
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	put := func(want int, text string, headers ...string) {
		t.Helper()
		if a := do(t, srv, http.MethodPut, releaseLegacy, "", headers...); a.code != want || !strings.Contains(a.body, text) {
			t.Errorf("%v: %d %s, want %d with %s", headers, a.code, a.body, want, text)
		}
	}
	put(http.StatusForbidden, "another origin", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	put(http.StatusBadRequest, "no revision", "If-Match", `"1"`)
	if !p.held || log.Len() > 0 {
		t.Errorf("released by a write that was refused: %s", log.String())
	}
	put(http.StatusOK, `{"service":"legacy","released":true}`)
	if !strings.Contains(log.String(), "service=legacy held=true") || !strings.Contains(log.String(), "peer=127.0.0.1") {
		t.Errorf("the log says %s", log.String())
	}
	put(http.StatusOK, `{"service":"legacy","released":false}`)
	if a := do(t, srv, http.MethodPut, "/v1/services/none/health/release", ""); a.code != http.StatusNotFound {
		t.Errorf("a service that is not probed: %d %s", a.code, a.body)
	}
	if a := do(t, srv, http.MethodPost, releaseLegacy, ""); a.code != http.StatusMethodNotAllowed || a.header.Get("Allow") != http.MethodPut {
		t.Errorf("POST: %d, allowed is %q", a.code, a.header.Get("Allow"))
	}
	p.failWith = errors.New("it is busy")
	put(http.StatusServiceUnavailable, "it is busy")

	p = &probes{held: true}
	srv = start(t, newWorld(), func(o *admin.Options) {
		p.into(o)
		o.Writable = false
	})
	put(http.StatusForbidden, "writable: true")
	if !p.held {
		t.Error("released by a read-only interface")
	}
}

// TestRemoteHealth: what the command line does over the interface.
func TestRemoteHealth(t *testing.T) {
	w := newWorld()
	v6 := service("legacy")
	v6.Localities[0].Endpoints = append(v6.Localities[0].Endpoints, isobar.Endpoint{Address: "[2001:db8::1]:80"})
	w.objects["legacy"] = isobar.Object{Owner: isobar.OwnerFile, Revision: 1, Service: v6}
	w.objects["a/b c"] = isobar.Object{Owner: isobar.OwnerFile, Revision: 1, Service: service("a/b c")}
	p := &probes{held: true}
	srv := start(t, w, p.into)
	remote := remoteOf(t, srv)
	for _, e := range []struct{ service, address string }{
		{"legacy", "127.0.0.1:50051"}, {"legacy", "[2001:db8::1]:80"}, {"a/b c", "127.0.0.1:50051"},
	} {
		for _, status := range []isobar.HealthStatus{isobar.Draining, isobar.Unhealthy, isobar.Healthy, isobar.Unknown} {
			out, err := remote.SetHealth(t.Context(), &isobar.HealthOverride{Service: e.service, Address: e.address, Status: status, Who: "ann", Reason: "a test"}, false)
			if err != nil || out.Version == "" || out.Reason != "" || out.Service != e.service {
				t.Fatalf("%v %v: %+v %v", e, status, out, err)
			}
			w.set(func() {
				if got := w.health[e.service+" "+e.address]; got != status {
					t.Errorf("%v is %v, want %v", e, got, status)
				}
				if w.ordered.Who != "ann" || w.ordered.Reason != "a test" {
					t.Errorf("ordered by %q because %q", w.ordered.Who, w.ordered.Reason)
				}
			})
		}
	}
	for _, where := range [][2]string{{"none", "127.0.0.1:50051"}, {"legacy", "127.0.0.1:1"}, {"..", ".."}, {"", ""}} {
		if _, err := remote.SetHealth(t.Context(), &isobar.HealthOverride{Service: where[0], Address: where[1], Status: isobar.Draining}, false); err == nil {
			t.Errorf("%q: no error", where)
		}
	}
	w.set(func() { w.held = true })
	if out, err := remote.SetHealth(t.Context(), &isobar.HealthOverride{Service: "legacy", Address: "127.0.0.1:50051", Status: isobar.Draining}, false); err != nil || !strings.Contains(out.Reason, "is kept") {
		t.Errorf("a write that no plan has: %+v %v", out, err)
	}
	for _, want := range []bool{true, false} {
		if out, err := remote.Release(t.Context(), "legacy"); err != nil || out.Released != want || out.Service != "legacy" {
			t.Errorf("release: %+v %v, want %v", out, err, want)
		}
	}
	if e, ok := errors.AsType[*admin.StatusError](func() error { _, err := remote.Release(t.Context(), "none"); return err }()); !ok || e.Code != http.StatusNotFound {
		t.Errorf("release of a service that is not probed: %v", e)
	}
	list, err := remote.Verdicts(t.Context(), "legacy")
	if err != nil || len(list.Services) != 1 || list.Services[0].Endpoints[0].Since != time.Unix(900, 0).UTC() {
		t.Errorf("verdicts: %+v %v", list, err)
	}
}

func remoteOf(t *testing.T, srv *httptest.Server) *admin.Remote {
	t.Helper()
	remote, err := admin.NewRemote(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return remote
}
