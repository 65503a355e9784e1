package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestBadFilesKeepTheLastGood: whatever becomes of the file while the server
// runs, clients keep what they have. A file that was cleaned up to nothing, one
// with blank fields and one that grew over the limit took large services down
// elsewhere.
func TestBadFilesKeepTheLastGood(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "isobar.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	file := func(services string) string {
		return "xds: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\nstop_spread: 0s\n" + services
	}
	good := func(port int) string {
		return file(fmt.Sprintf("services:\n- name: checkout\n  localities: [{locality: us/a, endpoints: [\"10.0.0.1:%d\"]}]\n", port))
	}
	write(good(1))
	s, log := serveFile(t, path)
	endpoints := func() string {
		v, ok := s.Plan().Service("checkout")
		if !ok || len(v.Sites) == 0 {
			return "none"
		}
		return v.Sites[0].Group.Endpoints[0].Address
	}
	wait := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !holds(); {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not within a minute; serving %s; log:\n%.2000s", what, endpoints(), log.String())
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	for i, tc := range []struct{ name, text, says string }{
		{"empty", "", "the document is empty"},
		{"without services", file(""), "services: missing, but 1 service of this file is in force and stays"},
		{"blank services", file("services:\n"), "services"},
		{"blank localities", file("services:\n- name: checkout\n  localities:\n"), "localities"},
		{"null service", file("services: [null]\n"), "services"},
		{"null endpoints", file("services: [{name: checkout, localities: [{locality: us/a, endpoints: [null]}]}]\n"), "endpoints"},
		{"cut in the middle", good(2)[:len(good(2))-8], "isobar.yaml:"},
		{"over the limit", good(2) + strings.Repeat("#", config.MaxBytes), "too large"},
	} {
		port := 10 + i
		write(good(port)) // so that each is told again
		wait(tc.name+", before", func() bool { return endpoints() == fmt.Sprintf("10.0.0.1:%d", port) })
		before := len(log.String())
		write(tc.text)
		wait(tc.name, func() bool { return strings.Contains(log.String()[before:], tc.says) })
		if got := endpoints(); got != fmt.Sprintf("10.0.0.1:%d", port) {
			t.Errorf("%s: serving %s", tc.name, got)
		}
	}
	write(file("services: []\n"))
	wait("services that an operator removes", func() bool { return endpoints() == "none" })
}

// serveFile runs a server on a configuration file until the test ends.
func serveFile(t *testing.T, path string) (*server.Server, *testhelp.Log) {
	t.Helper()
	kept := store.NewMemory()
	t.Cleanup(func() { _ = kept.Close() })
	s, log, stop := serveFileFrom(t, path, kept)
	t.Cleanup(stop)
	return s, log
}

// serveFileFrom is serveFile with the state of an earlier process, until it is
// stopped.
func serveFileFrom(t *testing.T, path string, kept store.Store) (_ *server.Server, _ *testhelp.Log, stop func()) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Decode(path, data)
	if err != nil {
		t.Fatal(err)
	}
	ls, err := listen.All(t.Context(), &cfg.Fixed)
	if err != nil {
		t.Fatal(err)
	}
	log := &testhelp.Log{}
	s, err := server.New(cfg, ls, server.Options{Store: kept, File: path, Data: data, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, log, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestIdentitiesStayWithTLS: a file that asks for no certificates any more, which
// takes effect at the next start only, does not let everyone with a certificate do
// everything until then.
func TestIdentitiesStayWithTLS(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	path := filepath.Join(t.TempDir(), "isobar.yaml")
	write := func(xds string) {
		t.Helper()
		text := "xds: {listen: \"127.0.0.1:0\"" + xds + "}\nadmin: {listen: \"127.0.0.1:0\"}\nstop_spread: 0s\n" +
			"services:\n- name: checkout\n  localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tls := fmt.Sprintf(", tls: {cert: %q, key: %q, client_ca: %q}", files.Cert, files.Key, files.ClientCA)
	write(tls + ", identities: [{match: known.example, roles: [client]}]")
	s, log := serveFile(t, path)
	l := &loopback{t: t, server: s, log: log}
	denied := func() bool {
		_, _, err := subscribe(t.Context(), l.dial(ca.Client(&identitytest.Leaf{DNS: []string{"stranger.example"}})), nodeIn("n", "us/a"), "checkout")
		return status.Code(err) == codes.PermissionDenied
	}
	if !denied() {
		t.Fatal("a stranger gets in")
	}
	write("")
	testhelp.Eventually(t, "the file without certificates", func() bool { return strings.Contains(log.String(), "take effect at the next start only") })
	if !denied() {
		t.Error("a stranger gets in with a file that asks for no certificates from the next start on")
	}
	write(tls)
	testhelp.Eventually(t, "identities that the file takes away with certificates in force", func() bool { return !denied() })
}

// TestReloadTellsOfDefaultsThatDoNotReachTheAPI: they were filled in when the
// services were written.
func TestReloadTellsOfDefaultsThatDoNotReachTheAPI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isobar.yaml")
	write := func(defaults string) {
		t.Helper()
		text := "xds: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\", writable: true}\nstop_spread: 0s\n" + defaults
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	s, log := serveFile(t, path)
	body := strings.NewReader(`{"localities": [{"locality": "us/a", "endpoints": ["10.9.0.1:80"]}]}`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+s.AdminAddress()+"/v1/services/a", body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode/100 != 2 {
		t.Fatalf("answered %+v, %v", answer, err)
	}
	_ = answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	write("defaults: {mode: observe}\n")
	testhelp.Eventually(t, "the warning", func() bool {
		return strings.Contains(log.String(), "defaults have changed, but 1 service of the API keeps the defaults")
	})
}

// TestLostSectionsAreRefused: each of services and discovery is missed by itself,
// where what it has in force does not stand in the other one, and can be taken
// back in so many words.
func TestLostSectionsAreRefused(t *testing.T) {
	const (
		own       = "services: [{name: checkout, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}]\n"
		twoOwn    = "services: [{name: checkout, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}, {name: far, localities: [{locality: us/a, endpoints: [\"10.0.0.2:80\"]}]}]\n"
		listed    = "discovery: {xds: {server: \"127.0.0.1:1\", services: [{name: far}]}}\n"
		twoListed = "discovery: {xds: {server: \"127.0.0.1:1\", services: [{name: far}, {name: checkout}]}}\n"
		noOwn     = "services: missing, but 1 service of this file is in force and stays"
		noListed  = "discovery: missing, but 1 service whose endpoints it lists is in force and stays"
	)
	tests := []struct {
		name, file string
		refused    []string
	}{
		{"both", own + listed, nil},
		{"none", "network: {}\n", []string{noOwn, noListed}},
		{"no services", listed, []string{noOwn}},
		{"no services, by intent", "services: []\n" + listed, nil},
		{"services moved", twoListed, nil},
		{"no discovery", own, []string{noListed}},
		{"no discovery, by intent", own + "discovery: {}\n", nil},
		{"discovery moved", twoOwn, nil},
		{"nothing, by intent", "services: []\ndiscovery: {}\n", nil},
		{"no services by intent, discovery lost", "services: []\n", []string{noListed}},
		{"no discovery by intent, services lost", "discovery: {}\n", []string{noOwn}},
	}
	bubble.Test(t, func(t *testing.T) {
		cfg := configuration(t)
		cfg.Discovery.XDS = &config.XDSDiscovery{Server: "127.0.0.1:1", Services: []config.ListedService{{EDSName: "far", Service: isobar.Service{Name: "far"}}}}
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		dial := func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody there") }
		runWith(t, cfg, server.Options{Store: kept, DialSource: dial}, func(w *world) {
			w.start(everywhere(100)...)
			w.tick()
			for _, tc := range tests {
				var out admin.Problem
				code := w.order("/v1/plan", tc.file, &out)
				if want := map[bool]int{true: 200, false: 400}[len(tc.refused) == 0]; code != want {
					t.Errorf("%s: answered %d %+v", tc.name, code, out)
				}
				for _, text := range tc.refused {
					if told := fmt.Sprint(out); !strings.Contains(told, text) {
						t.Errorf("%s: told %s, want %q", tc.name, told, text)
					}
				}
			}
		})
	})
}

// TestReloadMissesServicesBesideASource: a reload refuses what a preview does.
func TestReloadMissesServicesBesideASource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isobar.yaml")
	write := func(text string) {
		t.Helper()
		text = "xds: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\nstop_spread: 0s\n" + text
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	const (
		services = "services: [{name: checkout, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}]\n"
		source   = "discovery: {xds: {server: \"127.0.0.1:1\", services: [{name: far}]}}\n"
	)
	write(services + source)
	s, log := serveFile(t, path)
	serves := func() bool {
		v, ok := s.Plan().Service("checkout")
		return ok && len(v.Sites) == 1
	}
	testhelp.Eventually(t, "the service of the file", func() bool { return s.Plan() != nil && serves() })
	write(source)
	testhelp.Eventually(t, "the refusal", func() bool { return strings.Contains(log.String(), "services: missing, but 1 service of this file") })
	if !serves() {
		t.Error("the services are gone with half of the file")
	}
	write("services: []\n" + source)
	testhelp.Eventually(t, "services that an operator removes", func() bool { return !serves() })
}
