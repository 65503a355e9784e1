package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// line is a line of GET /v1/stream.
type line struct {
	Version  string                  `json:"version"`
	Whole    bool                    `json:"whole"`
	Status   *admin.Status           `json:"status"`
	Services []admin.ServiceOverview `json:"services"`
	Service  *admin.ServiceView      `json:"service"`
}

func (l *line) names() string {
	var out []string
	for i := range l.Services {
		out = append(out, l.Services[i].Name)
	}
	return strings.Join(out, " ")
}

// reader reads a stream.
type reader struct {
	t      *testing.T
	answer *http.Response
	lines  *bufio.Scanner
}

// listen opens a stream; headers come in pairs.
func listen(t *testing.T, srv *httptest.Server, path string, headers ...string) *reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
	})
	return &reader{t, resp, bufio.NewScanner(resp.Body)}
}

// next reads the next line but those that only say that the stream goes on.
func (r *reader) next() line {
	r.t.Helper()
	for r.lines.Scan() {
		var l line
		if err := json.Unmarshal(r.lines.Bytes(), &l); err != nil {
			r.t.Fatalf("%v in %q", err, r.lines.Text())
		}
		if l.Version != "" || l.Status != nil {
			return l
		}
	}
	r.t.Fatalf("the stream ended: %v", r.lines.Err())
	return line{}
}

// TestStream: a reader is sent everything first, then what changed, and everything
// again where a service is gone.
func TestStream(t *testing.T) {
	w := newWorld()
	srv := start(t, w, nil)
	r := listen(t, srv, "/v1/stream")
	if r.answer.StatusCode != http.StatusOK || r.answer.Header.Get("Content-Type") != "application/x-ndjson" || r.answer.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", r.answer.StatusCode, r.answer.Header)
	}
	first := r.next()
	if !first.Whole || first.Version != "101" || first.Status == nil || first.names() != "legacy" {
		t.Errorf("first: %+v", first)
	}
	put := func(name string) {
		if _, _, err := w.Put(name, service(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	put("added")
	if l := r.next(); l.Whole || l.names() != "added" || l.Version != "102" {
		t.Errorf("an added service: %+v", l)
	}
	late := listen(t, srv, "/v1/stream").next()
	if !late.Whole || late.names() != "added legacy" {
		t.Errorf("a late reader: %+v", late)
	}
	if _, err := w.Delete("added", 0); err != nil {
		t.Fatal(err)
	}
	if l := r.next(); !l.Whole || l.names() != "legacy" || l.Version != "103" {
		t.Errorf("a removed service: %+v", l)
	}
}

// TestStreamOfAService: the plan of one service, and null where it is gone.
func TestStreamOfAService(t *testing.T) {
	w := newWorld()
	srv := start(t, w, nil)
	r := listen(t, srv, "/v1/stream?service=added")
	if l := r.next(); l.Service != nil || l.Version != "101" {
		t.Errorf("a service that is not there: %+v", l)
	}
	if _, _, err := w.Put("added", service("added"), 0); err != nil {
		t.Fatal(err)
	}
	if l := r.next(); l.Service == nil || l.Service.Name != "added" || len(l.Service.Sources) != 1 || l.Version != "102" {
		t.Errorf("when it is there: %+v", l)
	}
}

// TestCoverageIsOneNumber: clients that report nothing lower the coverage on every page and in every command.
func TestCoverageIsOneNumber(t *testing.T) {
	w := newWorld()
	srv := start(t, w, func(o *admin.Options) {
		o.Fleet = &fleet{clients: clients, subscribers: []admin.ServiceClients{{Service: "added", Locality: isobar.MustLocality("eu-west/a"), Streams: 2, Silent: 1}}}
	})
	if _, _, err := w.Put("added", service("added"), 0); err != nil {
		t.Fatal(err)
	}
	var overview admin.Overview
	do(t, srv, http.MethodGet, "/v1/overview", "").decode(t, &overview)
	i := slices.IndexFunc(overview.Services, func(o admin.ServiceOverview) bool { return o.Name == "added" })
	want := overview.Services[i].Coverage
	if want >= 1 {
		t.Fatalf("coverage %v with a silent client", want)
	}
	var explained plan.Explanation
	do(t, srv, http.MethodGet, "/v1/explain?service=added&from=eu-west/a", "").decode(t, &explained)
	var whole, one admin.PlanView
	do(t, srv, http.MethodGet, "/v1/plan", "").decode(t, &whole)
	do(t, srv, http.MethodGet, "/v1/plan?service=added", "").decode(t, &one)
	k := slices.IndexFunc(whole.Services, func(v admin.ServiceView) bool { return v.Name == "added" })
	fleetLine := listen(t, srv, "/v1/stream").next()
	j := slices.IndexFunc(fleetLine.Services, func(o admin.ServiceOverview) bool { return o.Name == "added" })
	for where, got := range map[string]float64{
		"explain": explained.Coverage, "plan": whole.Services[k].Coverage, "plan of the service": one.Services[0].Coverage,
		"stream": fleetLine.Services[j].Coverage, "stream of the service": listen(t, srv, "/v1/stream?service=added").next().Service.Coverage,
	} {
		if got != want {
			t.Errorf("%s: coverage %v, want %v", where, got, want)
		}
	}
}

// TestStreamsAreBounded: what is one reader too many is told to come back, and its
// place is free when another one leaves.
func TestStreamsAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	opts := optionsOf(newWorld())
	opts.Registerer = registry
	s, err := admin.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{}, 200)
	request := func(ctx context.Context) *httptest.ResponseRecorder {
		out := httptest.NewRecorder()
		s.Handler().ServeHTTP(out, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/v1/stream", http.NoBody))
		return out
	}
	for range 200 {
		go func() {
			request(ctx)
			ended <- struct{}{}
		}()
	}
	open := func() float64 { return testhelp.Metric(t, registry, "isobar_admin_streams") }
	testhelp.Eventually(t, "200 streams", func() bool { return open() == 200 })
	if a := request(t.Context()); a.Code != http.StatusServiceUnavailable || a.Header().Get("Retry-After") == "" || !strings.Contains(a.Body.String(), "too many readers") {
		t.Errorf("one too many: %d %v %s", a.Code, a.Header(), a.Body)
	}
	cancel()
	for range 200 {
		<-ended
	}
	if open() != 0 {
		t.Errorf("%g streams are counted as open", open())
	}
}

// TestSlowStreamReader: who takes nothing of a stream is let go, and holds up no
// other reader meanwhile.
func TestSlowStreamReader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, err := admin.New(optionsOf(newWorld()))
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		slow := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Handler().ServeHTTP(slow, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/stream", http.NoBody))
		}()
		other := httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		s.Handler().ServeHTTP(other, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/v1/stream", http.NoBody))
		if !strings.Contains(other.Body.String(), `"whole":true`) || !other.Flushed {
			t.Errorf("the other reader got %q", other.Body)
		}
		<-done
		if took := time.Since(begun); took < 25*time.Second || took > time.Minute {
			t.Errorf("the slow reader was let go after %v", took)
		}
	})
}

// deadlined is a connection that takes nothing until its deadline is over.
type deadlined struct {
	*httptest.ResponseRecorder

	at time.Time
}

func (d *deadlined) SetWriteDeadline(at time.Time) error {
	d.at = at
	return nil
}

func (d *deadlined) Write([]byte) (int, error) {
	<-time.After(time.Until(d.at))
	return 0, errors.New("the deadline is over")
}

// TestStreamEndsWithItsAccess: when the token is replaced, who came with the old
// one is sent nothing any more.
func TestStreamEndsWithItsAccess(t *testing.T) {
	var token atomic.Value
	token.Store("old")
	srv := start(t, newWorld(), func(o *admin.Options) {
		o.Token, o.TokenForAll = func(presented string) bool { return presented == token.Load() }, true
	})
	if a := do(t, srv, "GET", "/v1/stream", ""); a.code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", a.code)
	}
	r := listen(t, srv, "/v1/stream", "Authorization", "Bearer old")
	r.next()
	token.Store("new")
	if r.lines.Scan() {
		t.Errorf("after the token was replaced: %s", r.lines.Text())
	}
}

// TestStreamEndsWithTheServer: readers don't keep a server that stops.
func TestStreamEndsWithTheServer(t *testing.T) {
	var stopping atomic.Bool
	srv := start(t, newWorld(), func(o *admin.Options) { processOf(o).stopping = stopping.Load })
	r := listen(t, srv, "/v1/stream")
	r.next()
	stopping.Store(true)
	if r.lines.Scan() || r.lines.Err() != nil {
		t.Errorf("%q %v", r.lines.Text(), r.lines.Err())
	}
}

// TestStreamOutlivesTheLimitsOfRequests: the server's deadlines are for requests
// that end.
func TestStreamOutlivesTheLimitsOfRequests(t *testing.T) {
	w := newWorld()
	s, err := admin.New(optionsOf(w))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(s.Handler())
	srv.Config.ReadTimeout, srv.Config.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond
	srv.Start()
	t.Cleanup(srv.Close)
	r := listen(t, srv, "/v1/stream")
	r.next()
	<-time.After(700 * time.Millisecond)
	if _, _, err := w.Put("added", service("added"), 0); err != nil {
		t.Fatal(err)
	}
	if l := r.next(); l.names() != "added" {
		t.Errorf("%+v", l)
	}
}
