package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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
	"github.com/isobar-xds/isobar/internal/fleet"
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
