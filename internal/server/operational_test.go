package server_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestGRPCHealth: load balancers and probes that ask gRPC's health service learn
// when there is something to serve, of the server and of each service, and when
// it ends.
func TestGRPCHealth(t *testing.T) {
	var mu sync.Mutex
	var watched []healthpb.HealthCheckResponse_ServingStatus
	inWorld(t, configuration(t), func(w *world) {
		client := healthpb.NewHealthClient(w.conn)
		watch, err := client.Watch(w.t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				m, err := watch.Recv()
				if err != nil {
					return
				}
				mu.Lock()
				watched = append(watched, m.GetStatus())
				mu.Unlock()
			}
		}()
		synctest.Wait()
		for _, service := range []string{
			"", "envoy.service.discovery.v3.AggregatedDiscoveryService", "envoy.service.load_stats.v3.LoadReportingService",
			"envoy.service.health.v3.HealthDiscoveryService", "envoy.service.status.v3.ClientStatusDiscoveryService", "grpc.channelz.v1.Channelz",
		} {
			m, err := client.Check(w.t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil || m.GetStatus() != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("%q: %v, %v", service, m.GetStatus(), err)
			}
		}
		if _, err := client.Check(w.t.Context(), &healthpb.HealthCheckRequest{Service: "nothing"}); status.Code(err) != codes.NotFound {
			t.Errorf("an unknown service: %v", err)
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if n := len(watched); n < 2 || watched[n-2] != healthpb.HealthCheckResponse_SERVING || watched[n-1] != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("watched %v, want SERVING and, when the server stops, NOT_SERVING", watched)
	}
}

// TestChannelz: what gRPC knows of its own sockets can be asked for.
func TestChannelz(t *testing.T) {
	inWorld(t, configuration(t), func(w *world) {
		w.start(clients("us/a", 2, constant(10))...)
		w.tick()
		client := channelzpb.NewChannelzClient(w.conn)
		var servers []*channelzpb.Server // of the whole process, a page at a time
		for next := int64(0); ; {
			page, err := client.GetServers(w.t.Context(), &channelzpb.GetServersRequest{StartServerId: next})
			if err != nil {
				t.Fatal(err)
			}
			servers = append(servers, page.GetServer()...)
			if page.GetEnd() || len(servers) > 10_000 {
				break
			}
			next = servers[len(servers)-1].GetRef().GetServerId() + 1
		}
		if !slices.ContainsFunc(servers, func(s *channelzpb.Server) bool { return s.GetData().GetCallsStarted() >= 5 }) {
			t.Errorf("no server has the streams of two clients: %v", servers)
		}
	})
}

// TestProbesKnowTheTick: a loop that rests for its configured tick is alive.
func TestProbesKnowTheTick(t *testing.T) {
	cfg := configuration(t)
	cfg.Tick = 5 * time.Minute
	inWorld(t, cfg, func(w *world) {
		for range 4 {
			time.Sleep(4 * time.Minute) //nolint:forbidigo // virtual time
			synctest.Wait()
			for _, path := range []string{"/livez", "/readyz"} {
				if status := w.get(path); status != http.StatusOK {
					t.Errorf("%s answers %d while the loop rests", path, status)
				}
			}
		}
	})
}

func (w *world) get(path string) int {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://127.0.0.1"+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.api.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestDocumentedSeriesAppear: each series of the dashboard, the alert rules and the
// reference appears in a scrape of a server that has clients, checkers and load. An
// alert on a metric that is described and never collected can't fire.
func TestDocumentedSeriesAppear(t *testing.T) {
	wanted := map[string]bool{}
	for _, path := range []string{"../../deploy/grafana/isobar.json", "../../deploy/prometheus/isobar.rules.yml", "../../docs/reference/metrics.md"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bisobar_[a-z0-9_]*[a-z0-9]\b`).FindAllString(string(data), -1) {
			wanted[name] = true
		}
	}
	found := map[string]bool{}
	scrape := func(s *server.Server) {
		t.Helper()
		families, err := s.Metrics().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			found[f.GetName()] = found[f.GetName()] || len(f.GetMetric()) > 0
		}
	}
	cfg := checked(t)
	first := &cfg.Services[0]
	cfg.MetricsMatrix = []string{first.Name}
	first.Mode, first.Limits = isobar.ModeAuto, []isobar.Limit{{Metric: isobar.MetricRate, Max: 200}}
	first.Criticality = &isobar.Criticality{
		Clients: []isobar.ClientClass{{Client: "batch-*", Class: isobar.ClassSheddable}}, MaxShed: isobar.ClassFractions{0, 0.5, 0.5, 0.75},
	}
	inWorld(t, cfg, func(w *world) {
		var tr truth
		w.checkers(&tr, fiveZones...)
		w.start(everywhere(300)...)
		w.settle(3 * time.Minute)
		scrape(w.server)
	})
	scrape(withEverything(t))
	listen := testhelp.FreePort(t)
	scrape(startMember(t, replicaConfig(t, "a", listen, fmt.Sprintf("{file: %q}", t.TempDir()), checkoutAndCart, "a="+listen)).server)
	// What needs clients that do not follow, reports of utilization at many rates, or
	// identities (TestAdminIsNoWayAroundCertificates), and what another program has.
	for _, name := range []string{"isobar_source_deviation_ratio", "isobar_learned_capacity_requests_per_second", "isobar_observed_capacity_requests_per_second", "isobar_identity_refused_total"} {
		delete(wanted, name)
	}
	maps.DeleteFunc(wanted, func(name string, _ bool) bool { return strings.HasPrefix(name, "isobar_checker_") })
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if !found[name] && !found[base] {
			t.Errorf("%s is not in the scrape", name)
		}
	}
}

// startFile writes a configuration file, and runs a server with it until the test ends.
func startFile(t *testing.T, path string, data []byte) *server.Server {
	t.Helper()
	identitytest.Replace(t, path, data)
	cfg, _, err := config.Decode(path, data)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.Open(t.Context(), cfg, server.Options{File: path, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// withEverything is a server with files, TLS, state on disk and a trace, that an
// operator has asked and a client without a certificate has tried.
func withEverything(t *testing.T) *server.Server {
	t.Helper()
	dir := t.TempDir()
	ca := identitytest.NewCA(t)
	f := ca.Write(dir, identitytest.Leaf{})
	path := filepath.Join(dir, "isobar.yaml")
	data := fmt.Appendf(nil, "xds: {listen: \"127.0.0.1:0\", tls: {cert: %q, key: %q}}\nadmin: {listen: \"127.0.0.1:0\"}\nstate_dir: %q\n"+
		"trace: {directory: %q}\nstop_spread: 0s\n", f.Cert, f.Key, filepath.Join(dir, "state"), filepath.Join(dir, "trace"))
	s := startFile(t, path, data)
	remote, err := admin.NewRemote("http://" + s.AdminAddress())
	if err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, "an answer to an operator", func() bool {
		_, err := remote.Status(t.Context())
		return err == nil && len(testhelp.Series(t, s.Metrics(), "isobar_discovery_file_good")) > 0
	})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.XDSAddress())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte("plain text\r\n")) // the server tells what it thinks of it
	defer func() { _ = conn.Close() }()
	ca.Write(dir, identitytest.Leaf{})
	testhelp.Eventually(t, "a failed handshake, and certificates read again", func() bool {
		s.Reread()
		return len(testhelp.Series(t, s.Metrics(), "isobar_tls_handshake_failures_total")) > 0 &&
			len(testhelp.Series(t, s.Metrics(), "isobar_tls_reloads_total")) > 0
	})
	return s
}

// TestMetricsOfExceptions asserts that metrics.localities of the file takes effect, and
// that series of services stay.
func TestMetricsOfExceptions(t *testing.T) {
	for setting, want := range map[string]bool{"all": true, "exceptions": false} {
		s := startMember(t, fmt.Sprintf("xds: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0}\nstate_dir: %q\nmetrics: {localities: %s}\nservices:\n%s", t.TempDir(), setting, fileServices)).server
		testhelp.Eventually(t, "the first plan", func() bool { return s.Plan() != nil })
		if got := testhelp.Series(t, s.Metrics(), "isobar_locality_drained"); (len(got) == 2) != want {
			t.Errorf("%s: drained %v", setting, got)
		}
		if got := testhelp.Series(t, s.Metrics(), "isobar_demand_requests_per_second"); len(got) != 1 {
			t.Errorf("%s: demand %v", setting, got)
		}
	}
}
