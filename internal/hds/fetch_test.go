package hds_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// A checker that polls over gRPC: it asks, is told its name, and reports.
func TestFetch(t *testing.T) {
	inBubble(t, hds.Options{Interval: every(2 * time.Second)}, func(h *harness) {
		api := healthv3.NewHealthDiscoveryServiceClient(h.conn)
		fetch := func(id string, m *request) (*healthv3.HealthCheckSpecifier, string, error) {
			ctx := h.t.Context()
			if id != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, hds.CheckerHeader, id)
			}
			var header metadata.MD
			spec, err := api.FetchHealthCheck(ctx, m, grpc.Header(&header))
			return spec, strings.Join(header.Get(hds.CheckerHeader), " "), err
		}
		report := func(m *response) *request {
			return &request{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{EndpointHealthResponse: m}}
		}
		streaming := h.enter("poller", "r/b")
		spec, id, err := fetch("", hello("poller", "r/a"))
		if err != nil || id != "poller#2" || len(spec.GetClusterHealthChecks()) != 0 || spec.GetInterval().AsDuration() < 2*time.Second {
			t.Fatalf("first poll: %v, %q, %v", spec, id, err)
		}
		top := topology(service("cart", 1))
		h.srv.Designate(top, all(top, "poller", "poller#2"))
		if _, again, err := fetch("", hello("poller", "r/a")); err != nil || again != id {
			t.Errorf("second poll: %q, %v", again, err)
		}
		list := h.srv.Checkers(time.Now())
		if len(list) != 2 || list[0].Polling || !list[1].Polling || list[1].Designated != 3 {
			t.Errorf("checkers %+v", list)
		}
		spec, _, err = fetch(id, report(grouped("cart", "r/a", endpoint("10.0.1.1:80", down))))
		if err != nil || clusters(spec)["cart"] != 3 {
			t.Errorf("report: %v, %v", spec, err)
		}
		if got := h.srv.Collect(time.Now()); len(got) != 1 || got[0].Checker != id || got[0].Status != isobar.Unhealthy {
			t.Errorf("reports %+v", got)
		}
		for name, want := range map[string]codes.Code{"nobody": codes.FailedPrecondition, "poller": codes.FailedPrecondition} {
			if _, _, err := fetch(name, report(&response{})); status.Code(err) != want {
				t.Errorf("a report as %q: %v, want %v", name, err, want)
			}
		}
		if _, _, err := fetch("", hello("", "r/a")); status.Code(err) != codes.InvalidArgument {
			t.Errorf("without a node: %v", err)
		}
		// A cluster is drained over the polls, too.
		h.srv.Designate(topology(), nil)
		if spec, _, err = fetch(id, &request{}); err != nil || len(clusters(spec)) != 1 || clusters(spec)["cart"] != 0 {
			t.Errorf("drained: %v, %v", spec, err)
		}
		pass(2 * time.Second)
		if spec, _, err = fetch(id, &request{}); err != nil || len(clusters(spec)) != 0 {
			t.Errorf("gone: %v, %v", spec, err)
		}
		// Who stops reporting is gone.
		for h.signalled() { // take what came before
		}
		pass(7 * time.Second)
		streaming.send(&request{})
		synctest.Wait()
		if list := h.srv.Checkers(time.Now()); len(list) != 1 || list[0].ID != "poller" || !h.signalled() {
			t.Errorf("checkers %+v", list)
		}
		h.srv.Stop()
		if _, _, err := fetch("", hello("poller", "r/a")); status.Code(err) != codes.Unavailable {
			t.Errorf("after Stop: %v", err)
		}
		streaming.leave()
	})
}

// A checker that knows the API only sends no header of ours. Its reports count as long as it alone
// polls from its address; beside another one there nobody could tell whose they are.
func TestFetchWithoutTheHeader(t *testing.T) {
	identity := ""
	opts := hds.Options{Interval: every(2 * time.Second), Identity: func(context.Context) string { return identity }}
	inBubble(t, opts, func(h *harness) {
		fetch := func(m *request) (map[string]int, error) {
			spec, err := healthv3.NewHealthDiscoveryServiceClient(h.conn).FetchHealthCheck(h.t.Context(), m)
			return clusters(spec), err
		}
		report := &request{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{
			EndpointHealthResponse: grouped("cart", "r/a", endpoint("10.0.1.1:80", down)),
		}}
		if _, err := fetch(report); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a report before any request: %v", err)
		}
		streaming := h.enter("streaming", "r/a") // from the same address, and takes no part in it
		if _, err := fetch(hello("poller", "r/a")); err != nil {
			t.Fatal(err)
		}
		top := topology(service("cart", 1))
		h.srv.Designate(top, all(top, "streaming", "poller"))
		if got, err := fetch(report); err != nil || got["cart"] != 3 {
			t.Fatalf("told %v, %v", got, err)
		}
		pass(2 * time.Second)
		if _, err := fetch(report); err != nil {
			t.Fatal(err)
		}
		if got := h.srv.Collect(time.Now()); len(got) != 1 || got[0].Checker != "poller" || got[0].Status != isobar.Unhealthy {
			t.Errorf("votes %+v", got)
		}
		identity = "spiffe://example/other" // who shows a certificate is somebody else
		if _, err := fetch(report); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a report of another identity: %v", err)
		}
		identity = ""
		if _, err := fetch(hello("second", "r/a")); err != nil {
			t.Fatal(err)
		}
		if _, err := fetch(report); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), hds.CheckerHeader) {
			t.Errorf("a report of one of two: %v", err)
		}
		pass(5 * time.Second) // the first has fallen silent by then
		if _, err := fetch(hello("second", "r/a")); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if _, err := fetch(report); err != nil {
			t.Errorf("a report of the one that is left: %v", err)
		}
		streaming.leave()
	})
}

// The same over HTTP: JSON in either spelling comes in, proto names go out.
func TestREST(t *testing.T) {
	srv := hds.New(hds.Options{MaxStreams: 1})
	check := tcpCheck()
	check.Protocol, check.TCP, check.HTTP = isobar.CheckHTTP, nil, &isobar.HTTPCheck{Path: "/healthz", Expected: []isobar.StatusRange{{Start: 200, End: 300}}}
	top := topology(service("cart", 1, check))
	srv.Designate(top, all(top, "rest-1"))
	mux := http.NewServeMux()
	mux.Handle("POST "+rpc.CheckerPath, srv.Handler())
	post := func(id, body string) (int, string, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, rpc.CheckerPath, strings.NewReader(body))
		if id != "" {
			r.Header.Set(hds.CheckerHeader, id)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		out, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, strings.ReplaceAll(string(out), " ", ""), w.Result().Header.Get(hds.CheckerHeader)
	}
	const node = `"node": {"id": "rest-1", "locality": {"region": "r", "zone": "a", "subZone": ""}, "later_field": 1}`
	for _, body := range []string{
		`{"health_check_request": {` + node + `, "capability": {"health_check_protocols": ["HTTP", "TCP"]}}}`,
		`{"healthCheckRequest": {` + node + `, "capability": {"healthCheckProtocols": [0, "HTTP"]}}}`,
		`{` + node + `, "capability": {"healthCheckProtocols": ["HTTP"]}}`,
	} {
		code, out, id := post("", body)
		if code != http.StatusOK || id != "rest-1" {
			t.Fatalf("%s: %d %s %q", body, code, out, id)
		}
		for _, want := range []string{
			`"cluster_health_checks"`, `"cluster_name":"cart"`, `"no_traffic_interval":"1s"`, `"unhealthy_threshold":2`, `"expected_statuses":[{"start":"200","end":"300"}]`,
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: answer %s does not have %s", body, out, want)
			}
		}
	}
	const entry = `{"endpoint": {"address": {"socketAddress": {"address": "10.0.1.1", "port_value": 80}}}, "health_status": "TIMEOUT"}`
	report := `{"endpointHealthResponse": {"cluster_endpoints_health": [{"clusterName": "cart",
		"locality_endpoints_health": [{"locality": {"region": "r", "zone": "a"}, "endpointsHealth": [` + entry + `]}]}]}}`
	if code, out, _ := post("rest-1", report); code != http.StatusOK {
		t.Errorf("report: %d %s", code, out)
	}
	if got := srv.Collect(time.Now()); len(got) != 1 || got[0].Status != isobar.Timeout || got[0].Address != "10.0.1.1:80" {
		t.Errorf("reports %+v", got)
	}
	if code, out, id := post("", report); code != http.StatusOK || id != "rest-1" {
		t.Errorf("report without the header: %d %s", code, out)
	}
	for _, tc := range []struct {
		id, body string
		want     int
	}{
		{"rest-2", report, http.StatusConflict},
		{"", `{"health_check_request": {"node": {"id": "rest-2"}}}`, http.StatusTooManyRequests},
		{"", `{"health_check_request": {}}`, http.StatusBadRequest},
		{"", `{"health_check_request": `, http.StatusBadRequest},
		{"", `[]`, http.StatusBadRequest},
		{"", `{"health_check_request": "` + strings.Repeat("x", 5<<20) + `"}`, http.StatusRequestEntityTooLarge},
	} {
		if code, out, _ := post(tc.id, tc.body); code != tc.want {
			t.Errorf("%.80s: %d %s, want %d", tc.body, code, out, tc.want)
		}
	}
	w := httptest.NewRecorder()
	srv.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, rpc.CheckerPath, nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
	srv.Stop()
	if code, out, _ := post("rest-1", report); code != http.StatusServiceUnavailable {
		t.Errorf("after Stop: %d %s", code, out)
	}
}
