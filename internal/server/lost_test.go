package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestLostSectionsAreRefused: each of services and discovery is missed by itself,
// where what it has in force does not stand in the other one, and can be taken
// back in so many words.
func TestLostSectionsAreRefused(t *testing.T) {
	const (
		own       = "services: [{name: checkout, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}]\n"
		twoOwn    = "services: [{name: checkout, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}, {name: far, localities: [{locality: us/a, endpoints: [\"10.0.0.2:80\"]}]}]\n"
		listed    = "discovery: {xds: {server: \"127.0.0.1:1\", services: [{name: far}]}}\n"
		twoListed = "discovery: {xds: {server: \"127.0.0.1:1\", services: [{name: far}, {name: checkout}]}}\n"
		noOwn     = "services: missing, but 1 of this file are in force and stay"
		noListed  = "discovery: missing, but 1 services whose endpoints it lists are in force and stay"
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
	testhelp.Eventually(t, "the refusal", func() bool { return strings.Contains(log.String(), "services: missing, but 1 of this file") })
	if !serves() {
		t.Error("the services are gone with half of the file")
	}
	write("services: []\n" + source)
	testhelp.Eventually(t, "services that an operator removes", func() bool { return !serves() })
}
