package hds_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/core"
	discoveryv2 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet/client2017"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/rpc"
)

func (h *harness) client2017(id string) *client2017.Client {
	return &client2017.Client{Conn: h.conn, Node: client2017.Node{
		ID: id, Locality: &client2017.Locality{Region: "r", Zone: "a"}, BuildVersion: "0123abcd/1.5.0/Clean/RELEASE",
	}}
}

// A checker of 2017 is told in its own words, and its reports, which name
// addresses only, count.
func Test2017(t *testing.T) {
	inBubble(t, hds.Options{Interval: every(2 * time.Second)}, func(h *harness) {
		ctx, cancel := context.WithCancel(h.t.Context())
		defer cancel()
		c, err := h.client2017("old").Checks(ctx, "HTTP", "TCP", "REDIS")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := h.srv.Checkers(time.Now()); len(got) != 1 || got[0].APIVersion != "2017" || got[0].Protocols.String() != "http+tcp+redis" ||
			got[0].UserAgent != "0123abcd/1.5.0/Clean/RELEASE" {
			t.Errorf("checkers %+v", got)
		}
		web := tcpCheck()
		web.Protocol, web.TCP, web.HTTP = isobar.CheckHTTP, nil, &isobar.HTTPCheck{Path: "/healthz"}
		redis := tcpCheck()
		redis.Protocol, redis.TCP, redis.Redis = isobar.CheckRedis, nil, &isobar.RedisCheck{}
		secure := tcpCheck()
		secure.TLS = true
		top := topology(service("cart", 1, web, tcpCheck(), redis), service("vault", 2, secure))
		top.Services[0].Localities[0].Endpoints[1].Check = &isobar.EndpointCheck{Port: 9000}
		h.srv.Designate(top, all(top, "old"))
		got, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		// The vault would be probed without TLS, and one endpoint on the wrong
		// port.
		if len(got.Clusters) != 1 || len(got.Clusters[0].Checks) != 3 || time.Duration(got.Interval) < 2*time.Second {
			t.Fatalf("told %+v", got)
		}
		cart := got.Clusters[0]
		if cart.Checks[0].HTTP == nil || cart.Checks[0].HTTP.Path != "/healthz" || cart.Checks[1].TCP == nil || cart.Checks[2].Redis == nil {
			t.Errorf("checks %+v", cart.Checks)
		}
		if len(cart.Localities) != 2 || len(cart.Localities[0].Endpoints) != 1 || len(cart.Localities[1].Endpoints) != 1 {
			t.Fatalf("localities %+v", cart.Localities)
		}
		pass(2 * time.Second)
		if err := c.Report(client2017.EndpointHealth{Endpoint: cart.Localities[1].Endpoints[0], Status: "UNHEALTHY"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		reports := h.srv.Collect(time.Now())
		if len(reports) != 1 || reports[0].Service != "cart" || reports[0].Address != "10.0.1.3:80" || reports[0].Status != isobar.Unhealthy {
			t.Errorf("reports %+v", reports)
		}
		polled, err := h.client2017("poller").Fetch(ctx, "TCP")
		if err != nil || len(polled.Clusters) != 0 || time.Duration(polled.Interval) < 2*time.Second {
			t.Errorf("polled %+v, %v", polled, err)
		}
	})
}

// A checker of v2 gets what v2 has: HTTP/2 and headers, but no TLS.
func TestV2(t *testing.T) {
	inBubble(t, hds.Options{}, func(h *harness) {
		ctx, cancel := context.WithCancel(h.t.Context())
		defer cancel()
		c, err := discoveryv2.NewHealthDiscoveryServiceClient(h.conn).StreamHealthCheck(ctx)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Send(&discoveryv2.HealthCheckRequestOrEndpointHealthResponse{
			RequestType: &discoveryv2.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{
				HealthCheckRequest: &discoveryv2.HealthCheckRequest{
					Node:       &corev2.Node{Id: "envoy-1", Locality: &corev2.Locality{Region: "r", Zone: "a"}},
					Capability: &discoveryv2.Capability{HealthCheckProtocols: []discoveryv2.Capability_Protocol{discoveryv2.Capability_HTTP, discoveryv2.Capability_TCP}},
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		web := tcpCheck()
		web.Protocol, web.TCP = isobar.CheckHTTP, nil
		web.HTTP = &isobar.HTTPCheck{Path: "/healthz", HTTP2: true, Headers: []isobar.Header{{Name: "x-probe", Value: "1"}}}
		secure := tcpCheck()
		secure.TLS = true
		top := topology(service("cart", 1, web), service("vault", 2, secure))
		h.srv.Designate(top, all(top, "envoy-1"))
		got, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(got.GetClusterHealthChecks()) != 1 || len(got.ProtoReflect().GetUnknown()) > 0 {
			t.Fatalf("told %v", got)
		}
		probe := got.GetClusterHealthChecks()[0].GetHealthChecks()[0].GetHttpHealthCheck()
		if !probe.GetUseHttp2() || probe.GetRequestHeadersToAdd()[0].GetAppend().GetValue() { //nolint:staticcheck // deprecated, and what old builds read
			t.Errorf("probe %v", probe)
		}
		if got := h.srv.Checkers(time.Now()); len(got) != 1 || got[0].APIVersion != "v2" {
			t.Errorf("checkers %+v", got)
		}
	})
}

// Over REST the path says which API version is used, and of the old ones the names in
// the request do; the answer has the same names.
func TestRESTAPIVersions(t *testing.T) {
	inBubble(t, hds.Options{}, func(h *harness) {
		redis := tcpCheck()
		redis.Protocol, redis.TCP, redis.Redis = isobar.CheckRedis, nil, &isobar.RedisCheck{}
		top := topology(service("cart", 1, redis))
		post := func(path, id, body string) (string, string) {
			t.Helper()
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(h.t.Context(), http.MethodPost, path, strings.NewReader(body))
			if id != "" {
				r.Header.Set(hds.CheckerHeader, id)
			}
			h.srv.Handler().ServeHTTP(w, r)
			answer, err := io.ReadAll(w.Body)
			if err != nil || w.Code != http.StatusOK {
				t.Fatalf("POST %s %s: %d, %s, %v", path, body, w.Code, answer, err)
			}
			return string(answer), w.Header().Get(hds.CheckerHeader)
		}
		node := func(id string) string {
			return `"node": {"id": "` + id + `", "locality": {"region": "r", "zone": "a"}}`
		}
		report := `{"endpoint_health_response": {"endpoints_health": [{"endpoint":
			{"address": {"socket_address": {"address": "10.0.1.1", "port_value": 80}}}, "health_status": "HEALTHY"}]}}`
		for _, tc := range []struct{ id, path, request, api string }{
			{"a", rpc.CheckerPath, `{"health_check_request": {` + node("a") + `, "capability": {"health_check_protocols": ["REDIS"]}}}`, "v3"},
			{"b", rpc.CheckerPathV2, `{"healthCheckRequest": {` + node("b") + `, "capability": {"healthCheckProtocols": ["REDIS"]}}}`, "v2"},
			{"c", rpc.CheckerPathV2, `{"health_check_request": {` + node("c") + `, "capability": {"health_check_protocol": ["REDIS"]}}}`, "2017"},
			{"d", rpc.CheckerPathV2, `{"healthCheckRequest": {` + node("d") + `, "capability": {"healthCheckProtocol": [2]}}}`, "2017"},
			{"e", rpc.CheckerPathV2, `{` + node("e") + `, "capability": {"health_check_protocol": ["REDIS"]}}`, "2017"},
		} {
			_, id := post(tc.path, "", tc.request)
			h.srv.Designate(top, all(top, id))
			h.srv.Collect(time.Now())
			answer, _ := post(tc.path, "", tc.request)
			if again, _ := post(tc.path, id, report); again != answer {
				t.Errorf("a report as %s was answered %s, the request %s", tc.api, again, answer)
			}
			var found bool
			for _, c := range h.srv.Checkers(time.Now()) {
				found = found || c.ID == id && c.APIVersion == tc.api && c.Protocols.String() == "redis"
			}
			if !found {
				t.Errorf("%s: checkers %+v, want one of form %s", tc.request, h.srv.Checkers(time.Now()), tc.api)
			}
			if tc.api != "2017" {
				named := strings.Contains(answer, `"cluster_health_checks"`) && strings.Contains(answer, `"locality_endpoints"`)
				if !named || tc.api == "v2" != strings.Contains(answer, "health_checker.redis.v2.Redis") {
					t.Errorf("%s was answered %s", tc.api, answer)
				}
				continue
			}
			m, err := client2017.New("HealthCheckSpecifier")
			if err != nil {
				t.Fatal(err)
			}
			if err := protojson.Unmarshal([]byte(answer), m); err != nil { // knows the names of 2017 only
				t.Errorf("%s was answered %s: %v", tc.api, answer, err)
			}
			var got client2017.Specifier
			if err := json.Unmarshal([]byte(answer), &got); err != nil || len(got.Clusters) != 1 || got.Clusters[0].Checks[0].Redis == nil ||
				len(got.Clusters[0].Localities) != 2 {
				t.Errorf("%s was answered %s: %+v, %v", tc.api, answer, got, err)
			}
			if got := h.srv.Collect(time.Now()); len(got) != 1 || got[0].Checker != id || got[0].Status != isobar.Healthy {
				t.Errorf("reports %+v", got)
			}
		}
	})
}
