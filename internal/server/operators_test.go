package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// read asks the admin interface under a host name.
func (w *world) read(host, path string, out any) int {
	w.t.Helper()
	return w.operate(http.MethodGet, host, path, "", out)
}

// operate asks the admin interface something and decodes its answer.
func (w *world) operate(method, host, path, body string, out any) (status int) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, method, "http://"+host+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.api.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		w.t.Fatalf("%s: %s", resp.Status, data)
	}
	return resp.StatusCode
}

// TestOverridesAreToldAtTheStart: what an operator set is in force after a
// restart, and whoever starts the server learns of it.
func TestOverridesAreToldAtTheStart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		cfg := configuration(t)
		cfg.Admin.Writable = true
		var log bytes.Buffer
		runLogged(t, cfg, kept, slog.New(slog.NewTextHandler(&log, nil)), func(w *world) {
			synctest.Wait()
			w.put("/v1/services/checkout/endpoints/10.2.0.1:80/health", "draining")
		})
		if strings.Contains(log.String(), "is in force") {
			t.Errorf("told of overrides before there were any: %s", log.String())
		}
		log.Reset()
		runLogged(t, cfg, kept, slog.New(slog.NewTextHandler(&log, nil)), func(w *world) {
			synctest.Wait()
			var list admin.HealthList
			if w.read("127.0.0.1", "/v1/health", &list); len(list.Overrides) != 1 || list.Overrides[0].Locality != loc("us/a") {
				t.Errorf("overrides %+v", list)
			}
		})
		if !strings.Contains(log.String(), `overrides="[checkout 10.2.0.1:80 draining]"`) {
			t.Errorf("the log says nothing: %s", log.String())
		}
	})
}

// TestHostsOfTheConfiguration: names that the configuration lists reach the
// admin interface, others do not.
func TestHostsOfTheConfiguration(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Hosts = []string{"isobar.example"}
	inWorld(t, cfg, func(w *world) {
		synctest.Wait()
		var answer map[string]json.RawMessage
		for host, want := range map[string]int{"isobar.example:18080": 200, "localhost": 200, "evil.example": 403} {
			if got := w.read(host, "/v1/plan", &answer); got != want {
				t.Errorf("as %s: %d, want %d", host, got, want)
			}
		}
	})
}

// TestClientsOfOneName: nodes that share an id keep their load report streams
// apart, and none gets lost.
func TestClientsOfOneName(t *testing.T) {
	inWorld(t, configuration(t), func(w *world) {
		agents := clients("us/c", 3, constant(30), func(o *fleet.AgentOptions) { o.ID = "same" })
		agents[2].Silent = true
		w.start(agents...)
		w.tick()
		w.tick()
		var list admin.ClientList
		w.read("127.0.0.1", "/v1/clients", &list)
		reporting := 0
		for i := range list.Clients {
			if c := &list.Clients[i]; c.LRS != nil && !c.LRS.LastReport.IsZero() && len(c.Types) > 0 {
				reporting++
			}
		}
		if len(list.Clients) != 3 || reporting != 2 {
			t.Errorf("%d clients, %d of them report load, want 3 and 2: %+v", len(list.Clients), reporting, list.Clients)
		}
	})
}

// TestClientThatRecovers: a refusal is the state of a client until it accepts
// again; its text stays for whoever looks later.
func TestClientThatRecovers(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		var refuse atomic.Bool
		w.start(clients("us/c", 1, constant(30), func(o *fleet.AgentOptions) {
			o.Accept = func(*endpointv3.ClusterLoadAssignment) error {
				if refuse.Load() {
					return errors.New("not to my taste")
				}
				return nil
			}
		})...)
		w.tick()
		state := func(when, want string, nacked bool) {
			t.Helper()
			var list admin.ClientList
			w.read("127.0.0.1", "/v1/clients", &list)
			if len(list.Clients) != 1 {
				t.Fatalf("%s: %d clients", when, len(list.Clients))
			}
			eds := list.Clients[0].Types["eds"]
			if eds.State() != want || (eds.NACK != nil) != nacked || list.Clients[0].InSync != (want == "in sync") {
				t.Errorf("%s: %s, %+v, want %s", when, eds.State(), eds, want)
			}
		}
		change := func(health string) {
			t.Helper()
			if status, answer := w.put("/v1/services/checkout/endpoints/10.2.0.1:80/health", health); status != http.StatusOK {
				t.Fatalf("%d %v", status, answer)
			}
			time.Sleep(time.Second) //nolint:forbidigo // virtual time
			synctest.Wait()
		}
		state("at first", "in sync", false)
		refuse.Store(true)
		change("draining")
		state("refusing", "NACK", true)
		refuse.Store(false)
		change("unhealthy")
		state("recovered", "in sync", true)
	})
}

// TestLoadReportSettings: what the configuration says of load reports reaches
// their service.
func TestLoadReportSettings(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		cfg := configuration(t)
		cfg.XDS.EndpointLoad, cfg.XDS.MaxStreams, cfg.XDS.Admission.PeerStreams = wanted, 2, 10
		inWorld(t, cfg, func(w *world) {
			var told []bool
			for i := range 3 {
				stream, err := loadstatsv3.NewLoadReportingServiceClient(w.conn).StreamLoadStats(w.ctx)
				if err != nil {
					t.Fatal(err)
				}
				_ = stream.Send(&loadstatsv3.LoadStatsRequest{Node: &corev3.Node{Id: fmt.Sprintf("node-%d", i)}}) // Recv knows why it failed
				resp, err := stream.Recv()
				if (err != nil) != (i == 2) {
					t.Fatalf("stream %d of 2 that are allowed: %v", i+1, err)
				}
				if err == nil {
					told = append(told, resp.GetReportEndpointGranularity())
				}
			}
			if len(told) != 2 || told[0] != wanted || told[1] != wanted {
				t.Errorf("endpoint_load: %v asks clients for %v", wanted, told)
			}
		})
	}
}

// TestStreamsOfOneClient: an Envoy whose clusters come from elsewhere has a
// stream for the endpoints of each cluster. They are one client, with the names
// of the services.
func TestStreamsOfOneClient(t *testing.T) {
	inWorld(t, configuration(t), func(w *world) {
		api := endpointservicev3.NewEndpointDiscoveryServiceClient(w.conn)
		node := &corev3.Node{Id: "envoy-1", Cluster: "web", Locality: &corev3.Locality{Region: "us", Zone: "c"}}
		for _, service := range []string{"checkout", "cart"} {
			s, err := api.StreamEndpoints(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			request := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: resource.EndpointsURL, ResourceNames: []string{service}}
			if err := s.Send(request); err != nil {
				t.Fatal(err)
			}
			if service != "checkout" {
				continue // there is no such service: nothing is sent
			}
			r, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			request.VersionInfo, request.ResponseNonce = r.GetVersionInfo(), r.GetNonce()
			if err := s.Send(request); err != nil {
				t.Fatal(err)
			}
		}
		w.tick()
		var list admin.ClientList
		w.read("127.0.0.1", "/v1/clients", &list)
		if len(list.Clients) != 1 || list.Clients[0].Streams != 2 {
			t.Fatalf("clients %+v", list.Clients)
		}
		eds := list.Clients[0].Types["eds"]
		if eds.Subscribed != 2 || strings.Join(eds.Names, " ") != "cart checkout" || eds.AckedVersion == "" {
			t.Errorf("eds %+v", eds)
		}
		var status admin.Status
		if w.read("127.0.0.1", "/v1/status", &status); status.Clients.Total != 1 {
			t.Errorf("status counts %d clients", status.Clients.Total)
		}
	})
}

// TestOperatorWritesOutliveServices: a rollback to a version that had a service which is
// gone does not bring it back, history goes on telling of it, over a restart too,
// and what is paused together is paused when it comes back.
func TestOperatorWritesOutliveServices(t *testing.T) {
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

// TestAdminIsNoWayAroundCertificates: where clients of xDS have to show a
// certificate, a checker that polls at an admin interface that asks for none has
// to, too.
func TestAdminIsNoWayAroundCertificates(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	ask := func(l *loopback) (int, string) {
		t.Helper()
		body := strings.NewReader(`{"health_check_request": {"node": {"id": "p"}, "capability": {"health_check_protocols": ["TCP"]}}}`)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Post("http://"+l.server.AdminAddress()+rpc.CheckerPath, "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(answer)
	}
	open := onLoopback(t, func(*config.Config) {})
	if code, body := ask(open); code != http.StatusOK {
		t.Errorf("xDS in plaintext: %d %s", code, body)
	}
	closed := onLoopback(t, func(c *config.Config) { c.XDS.TLS = &files })
	if code, body := ask(closed); code != http.StatusUnauthorized || !strings.Contains(body, "no client certificate was presented") {
		t.Errorf("xDS with client_ca: %d %s", code, body)
	}
	if n := closed.metric("isobar_identity_refused_total", "anonymous,checker"); n != 1 {
		t.Errorf("%v are counted", n)
	}
}

const token = "0123456789abcdef0123456789abcdef"

// TestAdminOverTLS: operators are spoken with over TLS, writes show the token,
// and checkers that poll are held to their identity.
func TestAdminOverTLS(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := onLoopback(t, func(c *config.Config) {
		c.XDS.TLS, c.Admin.TLS, c.Admin.TokenFile, c.Admin.Writable = &files, &files, path, true
		c.Identities = policy(t, [3]string{"checker.example", "checker", "us/*"}, [3]string{"jo.example", "admin", ""})
	})
	base := "https://" + l.server.AdminAddress()
	ask := func(leaf identitytest.Leaf, method, path, body, authorization string) (int, string) {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client(&leaf), DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(answer)
	}
	jo, checker := identitytest.Leaf{DNS: []string{"jo.example"}}, identitytest.Leaf{DNS: []string{"checker.example"}}
	const endpoint = "/v1/services/checkout/endpoints/10.0.0.1:80/health"
	poll := func(locality string) string {
		region, zone, _ := strings.Cut(locality, "/")
		return `{"health_check_request": {"node": {"id": "p", "locality": {"region": "` + region + `", "zone": "` + zone + `"}}, "capability": {"health_check_protocols": ["TCP"]}}}`
	}
	tests := []struct {
		name                    string
		leaf                    identitytest.Leaf
		method, path, body, say string
		want                    int
		says                    string
	}{
		{"reading", jo, "GET", "/v1/services", "", "", 200, "checkout"},
		{"a write without token", jo, "PUT", endpoint, `"draining"`, "", 401, "needs the bearer token"},
		{"a write with another token", jo, "PUT", endpoint, `"draining"`, "Bearer " + token[1:], 401, "not the one"},
		{"a write with the token", jo, "PUT", endpoint, `{"health": "draining"}`, "bearer " + token, 200, ""},
		{"a write of a checker", checker, "PUT", endpoint, `"healthy"`, "Bearer " + token, 403, "may not act as admin"},
		{"a poll without token", checker, "POST", rpc.CheckerPath, poll("us/a"), "", 401, ""},
		{"a poll", checker, "POST", rpc.CheckerPath, poll("us/a"), "Bearer " + token, 200, ""},
		{"a poll from elsewhere", checker, "POST", rpc.CheckerPath, poll("eu/a"), "Bearer " + token, 403, "locality not allowed"},
		{"a poll of an operator", jo, "POST", rpc.CheckerPath, poll("us/a"), "Bearer " + token, 403, "role not allowed"},
	}
	for _, tt := range tests {
		if code, body := ask(tt.leaf, tt.method, tt.path, tt.body, tt.say); code != tt.want || !strings.Contains(body, tt.says) {
			t.Errorf("%s: %d %s", tt.name, code, body)
		}
	}

	remote, err := admin.NewRemote(base, admin.WithTLS(ca.Client(&jo)), admin.WithToken(token))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Clients(t.Context()); err != nil {
		t.Error(err)
	}
	resp, err := http.Get("http://" + l.server.AdminAddress() + "/livez")
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("plaintext gets %d", resp.StatusCode)
		}
	}
}
