package reload

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/providers"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// configurationOf makes one in which a file is in force.
func configurationOf(t *testing.T, live *config.Live) *Configuration {
	t.Helper()
	kept := store.NewMemory()
	t.Cleanup(func() { _ = kept.Close() })
	none := func() *plan.Plan { return nil }
	registry, err := discovery.Open(t.Context(), discovery.Options{Store: kept, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	set, err := providers.Open(&providers.Options{
		Registry: registry, Store: kept, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Plan: none,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &Configuration{settings: &Settings{}, providers: set, registry: registry, plan: none}
	c.held.register(prometheus.NewRegistry())
	c.settings.live.Store(live)
	return c
}

// file has services of its own, and others that DNS resolves.
func file(own, dns []string) *config.Live {
	l := &config.Live{Services: []isobar.Service{}}
	for _, name := range own {
		l.Services = append(l.Services, isobar.Service{Name: name})
	}
	l.Discovery.Given = true
	l.Discovery.DNS = &config.DNSDiscovery{}
	for _, name := range dns {
		l.Discovery.DNS.Services = append(l.Discovery.DNS.Services, config.ResolvedService{Service: isobar.Service{Name: name}})
	}
	return l
}

// TestNoServicesMeansThoseOfTheFile: services: [] removes what the file itself lists, and
// excuses nothing that discovery loses.
func TestNoServicesMeansThoseOfTheFile(t *testing.T) {
	now := time.Now()
	dns := []string{"a", "b", "c", "d"}
	c := configurationOf(t, file(nil, dns))
	if what := c.removal(file(nil, dns[:1]), now); what != "3 of 4 services" {
		t.Errorf("a file that loses 3 of 4 names removes %q", what)
	}
	c = configurationOf(t, file([]string{"e", "f", "g", "h", "i"}, dns))
	if what := c.removal(file(nil, dns), now); what != "" {
		t.Errorf("services: [] removes %q", what)
	}
	if what := c.removal(file(nil, nil), now); what != "4 of 4 services" {
		t.Errorf("services: [] without the names removes %q", what)
	}
	none := &config.Live{Services: []isobar.Service{}}
	none.Discovery.Given = true
	if what := c.removal(none, now); what != "" {
		t.Errorf("services: [] with discovery: {} removes %q", what)
	}
}

// TestNoServicesHidesNoSteps: with services: [], too, what discovery loses in steps counts
// together, and services that DNS listed before they were held are not meant by it.
func TestNoServicesHidesNoSteps(t *testing.T) {
	now := time.Now()
	nine := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	c := configurationOf(t, file(nil, nine[:6]))
	had, has := c.contentsOf(file(nil, nine)), c.contentsOf(c.settings.Current())
	c.held.recent.note(&had, &has, now)
	if what := c.removal(file(nil, nine[:4]), now); what != "5 of 9 services, together with earlier removals" {
		t.Errorf("the second step removes %q", what)
	}
	c.held.services = map[string]*heldService{"a": {listed: true}, "b": {}}
	for name, want := range map[string]bool{"a": true, "b": false, "c": false} {
		if got := c.discovered(&isobar.Object{Service: isobar.Service{Name: name}, Owner: isobar.OwnerFile}); got != want {
			t.Errorf("%s: discovered %v", name, got)
		}
	}
}

// TestHeldStepsOutliveRefusedFiles: a file that can't be read for a moment makes a change that
// is held no less.
func TestHeldStepsOutliveRefusedFiles(t *testing.T) {
	c := configurationOf(t, file([]string{"a", "b", "c", "d"}, nil))
	now := time.Now()
	had, has := c.contentsOf(file([]string{"a", "b", "c", "d", "e"}, nil)), c.contentsOf(c.settings.Current())
	c.held.recent.note(&had, &has, now)
	next := file([]string{"a", "b", "c"}, nil)
	if c.removal(next, now) == "" {
		t.Fatal("the second step is not held")
	}
	c.wait(&heldChangeError{})
	c.noteFile(errors.New("open isobar.yaml: no such file"))
	if c.removal(next, now.Add(removalMemory+time.Minute)) == "" {
		t.Error("the second step is taken minutes later, after the file was gone for a moment")
	}
	c.wait(nil) // another file is in force
	if what := c.removal(next, now.Add(removalMemory+time.Minute)); what != "" {
		t.Errorf("later a step removes %q", what)
	}
}

// TestEachHeldChangeCountsOnce: the file is read again and again while a change is held.
func TestEachHeldChangeCountsOnce(t *testing.T) {
	c := configurationOf(t, file([]string{"a"}, nil))
	metrics := prometheus.NewRegistry()
	c.held.register(metrics)
	hold := func(digest string) func() { return func() { c.wait(&heldChangeError{digest: digest}) } }
	for _, step := range []struct {
		what string
		do   func()
		want float64
	}{
		{"a change", hold("a"), 1},
		{"the same, read again", hold("a"), 1},
		{"no file", func() { c.noteFile(errors.New("open isobar.yaml: no such file")) }, 1},
		{"the same, after the file was gone", hold("a"), 1},
		{"another change", hold("b"), 2},
		{"the content in force", func() { c.noteFile(nil) }, 2},
		{"the change again", hold("b"), 3},
		{"another file in force", func() { c.wait(nil) }, 3},
		{"the change of that one", hold("b"), 4},
	} {
		step.do()
		if n := testhelp.Metric(t, metrics, "isobar_discovery_held_changes_total"); n != step.want {
			t.Errorf("%s: counted %g, want %g", step.what, n, step.want)
		}
	}
}

type subscribers []admin.ServiceClients

func (s subscribers) Subscribers() []admin.ServiceClients { return s }

type alone struct{ Group }

// TestReplicasAgreeWhateverTheirClients: a replica knows its own clients only, so that it
// holds nothing for those that report no load.
func TestReplicasAgreeWhateverTheirClients(t *testing.T) {
	c := configurationOf(t, file([]string{"a"}, nil))
	c.clients = subscribers{{Service: "a", Streams: 3, Silent: 2}}
	if all, silent := c.subscribers(); all["a"] != 3 || silent["a"] != 2 {
		t.Errorf("a server alone counts %v clients, %v of them silent", all, silent)
	}
	c.group = alone{}
	if all, silent := c.subscribers(); len(all)+len(silent) > 0 {
		t.Errorf("a replica counts %v clients, %v of them silent", all, silent)
	}
}
