package xds_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// polled is the answer to a poll.
type polled struct {
	status  int
	body    string
	Version string            `json:"version_info"`
	TypeURL string            `json:"type_url"`
	All     []json.RawMessage `json:"resources"`
}

// poll posts a request in JSON; headers are given as name, value.
func (w *world) poll(path, body string, headers ...string) polled {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	xds.Handler(w.server, strings.HasPrefix(path, "/v2") && strings.Contains(body, "old")).ServeHTTP(answer, r)
	p := polled{status: answer.Code, body: answer.Body.String()}
	if p.status == http.StatusOK {
		if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil {
			w.t.Fatalf("%v: %s", err, p.body)
		}
	}
	return p
}

func pollBody(version, id string, names ...string) string {
	b, _ := json.Marshal(map[string]any{
		"version_info": version, "resource_names": names,
		"node": map[string]any{"id": id, "locality": map[string]string{"region": "us-east", "zone": "b"}, "from_the_future": 1},
	})
	return string(b)
}

// A poll is answered with the resources, then with 304 when nothing changed
// for as long as the client may wait, then with the change as soon as it comes.
func TestPolls(t *testing.T) {
	for _, path := range []string{"/v3/discovery:endpoints", "/v2/discovery:endpoints"} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1), serve("b", 7))
			first := w.poll(path, pollBody("", "n", "a"))
			if first.status != http.StatusOK || len(first.All) != 1 || !strings.Contains(first.body, `"lb_endpoints"`) || first.Version == "" {
				t.Fatalf("got %d %s", first.status, first.body)
			}
			if strings.HasPrefix(path, "/v2") != (first.TypeURL == resource.EndpointsURLv2) {
				t.Errorf("type %s", first.TypeURL)
			}
			for patience, headers := range map[time.Duration][]string{
				700 * time.Millisecond:   nil,
				4 * time.Second:          {"X-Envoy-Expected-Rq-Timeout-Ms", "5000"},
				10 * time.Second:         {"Prefer", "respond-async, wait=10"},
				time.Minute:              {"Prefer", "wait=3600"},
				700*time.Millisecond + 1: {"Prefer", "wait=never"},
			} {
				start := time.Now()
				if got := w.poll(path, pollBody(first.Version, "n", "a"), headers...); got.status != http.StatusNotModified {
					t.Fatalf("%v: got %d %s", headers, got.status, got.body)
				}
				if waited := time.Since(start); waited.Truncate(time.Millisecond) != patience.Truncate(time.Millisecond) {
					t.Errorf("%v: waited %v, want %v", headers, waited, patience)
				}
			}
			if got := w.server.Subscriptions(); len(got) != 1 || got[0].Service != "a" || got[0].Streams != 1 || got[0].Acked != 1 {
				t.Errorf("subscribed: %+v", got)
			}
			go func() {
				<-time.After(2 * time.Second)
				w.publish(serve("b", 8)) // of no interest
				<-time.After(3 * time.Second)
				w.publish(serve("a", 2))
			}()
			start := time.Now()
			got := w.poll(path, pollBody(first.Version, "n", "a"), "Prefer", "wait=30")
			if got.status != http.StatusOK || time.Since(start) != 5*time.Second || !strings.Contains(got.body, `"port_value":2`) {
				t.Errorf("after %v: %d %s", time.Since(start), got.status, got.body)
			}
			if c := w.server.Clients(); len(c) != 1 || c[0].Variant != "rest" || c[0].InSync {
				t.Errorf("clients: %+v", c)
			}
			for i := range w.server.Introspect() {
				if all := i.Resources(); i.Node.ID != "n" || len(all) != 1 || all[0].Delivery != xds.Unanswered || all[0].TypeURL != got.TypeURL {
					t.Errorf("introspected: %+v", all)
				}
			}
		})
	}
}

// Who has not polled for long is a client no more.
func TestPollersAreForgotten(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		for i := range 3 {
			w.poll("/v3/discovery:endpoints", pollBody("", fmt.Sprint("n", i), "a"))
		}
		<-time.After(3 * time.Minute)
		w.poll("/v3/discovery:endpoints", pollBody("", "n1", "a"))
		if n := len(w.server.Clients()); n != 3 {
			t.Fatalf("%d clients, want 3", n)
		}
		<-time.After(3 * time.Minute)
		if got := w.server.Subscriptions(); len(got) != 1 || got[0].Streams != 1 {
			t.Errorf("subscribed: %+v", got)
		}
		<-time.After(6 * time.Minute)
		if got, c := w.server.Subscriptions(), w.server.Clients(); len(got) != 0 || len(c) != 0 {
			t.Errorf("left: %+v, %+v", got, c)
		}
	})
}

// Clusters, listeners and routes can be polled for; an empty list of clusters
// means all of them.
func TestPollsForOtherTypes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 1))
		for path, want := range map[string]int{
			"/v3/discovery:clusters": 2, "/v3/discovery:listeners": 1, "/v3/discovery:routes": 1,
			"/v2/discovery:clusters": 2, "/v2/discovery:listeners": 1, "/v2/discovery:routes": 1,
		} {
			names := []string{"b"}
			if want == 2 {
				names = nil
			}
			if got := w.poll(path, pollBody("", "n", names...)); got.status != http.StatusOK || len(got.All) != want {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
	})
}

// In JSON, too, a client of 2017 gets its one drop, and no field of later.
func TestPoll2017(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), func(p *testPlan) {
			a := *p.assignments["a"]
			a.Drop = 0.125
			p.assignments["a"] = &a
		})
		got := w.poll("/v2/discovery:endpoints", pollBody("", "old", "a"))
		if got.status != http.StatusOK || !strings.Contains(got.body, `"policy":{"drop_overload":12.5}`) || strings.Contains(got.body, "control_plane") {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

func TestBadPolls(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		for body, want := range map[string]int{
			`{`:                        http.StatusBadRequest,
			`{"resource_names": [""]}`: http.StatusOK,
			`{"type_url": "rubbish"}`:  http.StatusBadRequest,
			`{"resourceNames": ["a"]}`: http.StatusOK,
			`{"type_url": "type.googleapis.com/envoy.config.cluster.v3.Cluster"}`: http.StatusBadRequest,
			strings.Repeat(" ", 5<<20): http.StatusRequestEntityTooLarge,
			`{"resource_locators": [` + strings.Repeat(`{},`, 130_000) + `{}]}`: http.StatusBadRequest,
		} {
			if got := w.poll("/v3/discovery:endpoints", body); got.status != want {
				t.Errorf("%.60q: %d %s, want %d", body, got.status, got.body, want)
			}
		}
		many := w.poll("/v2/discovery:endpoints", `{"resource_names": [`+strings.Repeat(`"",`, 260_000)+`""]}`)
		if !strings.Contains(many.body, "more than 250000 messages, fields and list entries") {
			t.Errorf("260,000 names: %d %s", many.status, many.body)
		}
		answer := httptest.NewRecorder()
		xds.Handler(w.server, false).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/v3/discovery:endpoints", nil))
		if answer.Code != http.StatusMethodNotAllowed {
			t.Errorf("GET: %d", answer.Code)
		}
	})
}

// Over gRPC a fetch is answered at once, in full, whatever version it shows.
func TestFetch(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		for method, url := range map[string]string{
			"/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints": edsURL,
			"/envoy.api.v2.EndpointDiscoveryService/FetchEndpoints":              edsURLv2,
			"/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters":    cdsURL,
		} {
			version := ""
			for range 3 {
				got := &discoveryv3.DiscoveryResponse{}
				request := &discoveryv3.DiscoveryRequest{Node: at("us-east/b"), ResourceNames: []string{"a"}, VersionInfo: version}
				if err := w.conn.Invoke(w.t.Context(), method, request, got); err != nil {
					t.Fatal(err)
				}
				version = got.GetVersionInfo()
				if got.GetTypeUrl() != url || len(got.GetResources()) != 1 || got.GetResources()[0].GetTypeUrl() != url || got.GetNonce() == "" {
					t.Errorf("%s: got %v", method, got)
				}
			}
		}
		synctest.Wait()
	}, func(o *xds.Options) { o.Identifier = "plane" })
}

// A service that is gone takes its endpoints from those who had them.
func TestPollOfWhatIsGone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		first := w.poll("/v3/discovery:endpoints", pollBody("", "n", "a"))
		w.publish(without("a"))
		got := w.poll("/v3/discovery:endpoints", pollBody(first.Version, "n", "a"))
		if got.status != http.StatusOK || len(got.All) != 1 || strings.Contains(got.body, "lb_endpoints") {
			t.Errorf("%d %s", got.status, got.body)
		}
		if again := w.poll("/v3/discovery:endpoints", pollBody(got.Version, "n", "a")); again.status != http.StatusNotModified {
			t.Errorf("%d %s", again.status, again.body)
		}
	})
}

// TestPollAfterARestart: a client that shows a version which another server gave
// it, and which is what it would be given, has what is published.
func TestPollAfterARestart(t *testing.T) {
	version := ""
	for restarted := range 2 {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			got := w.poll("/v3/discovery:endpoints", pollBody(version, "n", "a"))
			if version = got.Version; restarted == 0 {
				return
			}
			if got.status != http.StatusNotModified {
				t.Fatalf("got %+v", got)
			}
			if s := w.server.Subscriptions(); len(s) != 1 || s[0].Acked != 1 || s[0].AckedAt.IsZero() {
				t.Errorf("subscribed: %+v", s)
			}
		})
	}
}

// TestPollersOfTwoClientServices: what is dropped may depend on node.cluster, so
// those that share all else are told apart by it.
func TestPollersOfTwoClientServices(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		for _, cluster := range []string{"shop", "batch"} {
			body := strings.Replace(pollBody("", "n", "a"), `"id"`, `"cluster": "`+cluster+`", "id"`, 1)
			if got := w.poll("/v3/discovery:endpoints", body); got.status != http.StatusOK {
				t.Fatalf("got %+v", got)
			}
		}
		var clusters []string
		for _, c := range w.server.Clients() {
			clusters = append(clusters, c.Cluster)
		}
		if slices.Sort(clusters); !slices.Equal(clusters, []string{"batch", "shop"}) {
			t.Errorf("clients of %v", clusters)
		}
	})
}
