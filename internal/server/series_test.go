package server_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

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
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Decode(path, data)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.Open(t.Context(), cfg, server.Options{File: path, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
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
