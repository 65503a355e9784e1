package discovery_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/store"
)

func svc(name string, rate float64) isobar.Service {
	return isobar.Service{Name: name, Localities: []isobar.ServiceLocality{
		{Locality: isobar.MustLocality("b/b"), MaxRate: rate, Endpoints: []isobar.Endpoint{{Address: "10.0.0.1:80"}}},
		{Locality: isobar.MustLocality("a/a"), Endpoints: []isobar.Endpoint{{Address: "[::1]:80"}}},
	}}
}

func open(t *testing.T, s discovery.Store) *discovery.Registry {
	t.Helper()
	r, err := discovery.Open(t.Context(), discovery.Options{Store: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func setFile(t *testing.T, r *discovery.Registry, services ...isobar.Service) []string {
	t.Helper()
	conflicts, err := r.SetFile(services, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conflicts
}

func put(t *testing.T, r *discovery.Registry, s isobar.Service) isobar.Object {
	t.Helper()
	o, _, err := r.Put(s.Name, s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// setHealth orders the health of one endpoint.
func setHealth(r *discovery.Registry, service, address string, h isobar.HealthStatus) (topology uint64, err error) {
	return r.SetHealths(&isobar.HealthChange{Service: service, Addresses: []string{address}, Status: h})
}

func names(r *discovery.Registry) string {
	topology, _ := r.State()
	var out []string
	for i, o := range r.List() {
		if topology.Services[i].Name != o.Service.Name {
			out = append(out, "topology differs")
		}
		out = append(out, o.Service.Name+"="+o.Owner)
	}
	return strings.Join(out, " ")
}

func TestOwners(t *testing.T) {
	r := open(t, store.NewMemory())
	setFile(t, r, svc("f", 1))
	put(t, r, svc("a", 1))
	for _, test := range []struct {
		name string
		do   func() error
		want error
		text string
	}{
		{"put the file's", func() error { _, _, err := r.Put("f", svc("f", 2), 0); return err }, isobar.ErrOwned, "belongs to the configuration file"},
		{"delete the file's", func() error { _, err := r.Delete("f", 0); return err }, isobar.ErrOwned, "configuration file"},
		{"all with the file's", func() error { _, err := r.PutAll([]isobar.Service{svc("x", 1), svc("f", 2)}); return err }, isobar.ErrOwned, "f"},
		{"delete nothing", func() error { _, err := r.Delete("x", 0); return err }, isobar.ErrNotFound, "service x"},
		{"get nothing", func() error { _, err := r.Get("x"); return err }, isobar.ErrNotFound, "service x"},
		{"another name", func() error { _, _, err := r.Put("x", svc("y", 1), 0); return err }, isobar.ErrInvalid, `"y"`},
		{"no name", func() error { _, _, err := r.Put("", svc("", 1), 0); return err }, isobar.ErrInvalid, ""},
		{"twice", func() error { _, err := r.PutAll([]isobar.Service{svc("x", 1), svc("x", 2)}); return err }, isobar.ErrInvalid, `"x"`},
		{"stale put", func() error { _, _, err := r.Put("a", svc("a", 2), 1); return err }, isobar.ErrStale, "service a"},
		{"stale delete", func() error { _, err := r.Delete("a", 1); return err }, isobar.ErrStale, "service a"},
		{"match on nothing", func() error { _, _, err := r.Put("x", svc("x", 2), 1); return err }, isobar.ErrStale, "does not exist"},
		{"health of nothing", func() error { _, err := setHealth(r, "x", "10.0.0.1:80", isobar.Healthy); return err }, isobar.ErrNotFound, "service x"},
		{"health of no endpoint", func() error { _, err := setHealth(r, "a", "10.0.0.9:80", isobar.Healthy); return err }, isobar.ErrNotFound, "10.0.0.9:80"},
		{"no health", func() error { _, err := setHealth(r, "a", "10.0.0.1:80", 77); return err }, isobar.ErrInvalid, "77"},
		{"file twice", func() error { _, err := r.SetFile([]isobar.Service{svc("x", 1), svc("x", 1)}, nil); return err }, isobar.ErrInvalid, `"x"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			before, _ := r.State()
			err := test.do()
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			}
			if after, _ := r.State(); after != before {
				t.Error("a refused change made a new topology")
			}
		})
	}
	if got := names(r); got != "a=api f=file" {
		t.Errorf("have %s", got)
	}
}

func TestTheEarlierOwnerKeepsAName(t *testing.T) {
	registry := prometheus.NewRegistry()
	var logged strings.Builder
	r, err := discovery.Open(t.Context(), discovery.Options{
		Store: store.NewMemory(), Logger: slog.New(slog.NewTextHandler(&logged, nil)), Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, r, svc("x", 1))
	conflicts := setFile(t, r, svc("x", 2), svc("y", 2))
	if len(conflicts) != 1 || !strings.Contains(conflicts[0], "service x belongs to the API") || !strings.Contains(logged.String(), "service x belongs to the API") {
		t.Errorf("conflicts %q, log %s", conflicts, logged.String())
	}
	if got := names(r); got != "x=api y=file" {
		t.Errorf("have %s", got)
	}
	const want = `# HELP isobar_discovery_conflicts Services of the file, of another control plane, of DNS or of Kubernetes that are not in force because another owner has the name.
# TYPE isobar_discovery_conflicts gauge
isobar_discovery_conflicts 1
# HELP isobar_discovery_services Services in force, by owner.
# TYPE isobar_discovery_services gauge
isobar_discovery_services{owner="api"} 1
isobar_discovery_services{owner="dns"} 0
isobar_discovery_services{owner="file"} 1
isobar_discovery_services{owner="kubernetes"} 0
isobar_discovery_services{owner="xds"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	put(t, r, svc("x", 3)) // still the API's
	if _, err := r.Delete("x", 0); err != nil {
		t.Fatal(err)
	}
	if got := names(r); got != "x=file y=file" {
		t.Errorf("after the API gave it up: %s", got)
	}
	if _, _, err := r.Put("x", svc("x", 1), 0); !errors.Is(err, isobar.ErrOwned) {
		t.Errorf("now it is the file's: %v", err)
	}
}

func TestRevisions(t *testing.T) {
	r := open(t, store.NewMemory())
	setFile(t, r, svc("f", 1), svc("g", 1))
	first := put(t, r, svc("a", 1))
	if topology, _ := r.State(); topology.Revision != first.Revision {
		t.Errorf("the object has %d, the topology %d", first.Revision, topology.Revision)
	}
	if again := put(t, r, svc("a", 1)); again.Revision != first.Revision {
		t.Errorf("the same object again: %d, was %d", again.Revision, first.Revision)
	}
	second, topology, err := r.Put("a", svc("a", 2), first.Revision)
	if err != nil || second.Revision <= first.Revision || topology < second.Revision {
		t.Fatal(second.Revision, topology, err)
	}
	other := put(t, r, svc("b", 1))
	if _, err := r.PutAll([]isobar.Service{svc("a", 2), svc("b", 9), svc("c", 1)}); err != nil {
		t.Fatal(err)
	}
	if o, err := r.Get("a"); err != nil || o.Revision != second.Revision {
		t.Errorf("unchanged in the set: %d (%v), was %d", o.Revision, err, second.Revision)
	}
	if o, err := r.Get("b"); err != nil || o.Revision <= other.Revision {
		t.Errorf("changed in the set: %d (%v), was %d", o.Revision, err, other.Revision)
	}
	g, err := r.Get("g")
	if err != nil {
		t.Fatal(err)
	}
	setFile(t, r, svc("f", 2), svc("g", 1))
	if now, err := r.Get("g"); err != nil || now.Revision != g.Revision {
		t.Errorf("unchanged in the file: %d (%v), was %d", now.Revision, err, g.Revision)
	}
	if _, err := r.Delete("b", other.Revision); !errors.Is(err, isobar.ErrStale) {
		t.Errorf("stale delete: %v", err)
	}
	if _, err := r.PutAll(nil); err != nil {
		t.Fatal(err)
	}
	if got := names(r); got != "f=file g=file" {
		t.Errorf("have %s", got)
	}
}

func TestRestart(t *testing.T) {
	memory := store.NewMemory()
	r := open(t, memory)
	a := put(t, r, svc("a", 1))
	if setFile(t, r, svc("f", 1)); names(r) != "a=api f=file" {
		t.Errorf("have %s", names(r))
	}
	last, _ := r.State()
	for range 2 { // the second time nothing was changed in between
		again := open(t, memory)
		topology, _ := again.State()
		if topology.Revision <= last.Revision {
			t.Errorf("revision %d, was %d", topology.Revision, last.Revision)
		}
		last = topology
		o, err := again.Get("a")
		if err != nil || o.Revision != a.Revision || fmt.Sprint(o.Service) != fmt.Sprint(a.Service) {
			t.Errorf("got %+v, %v, want %+v", o, err, a)
		}
		if got := names(again); got != "a=api" {
			t.Errorf("have %s", got)
		}
	}
}

func TestTopologyIsSortedAndImmutable(t *testing.T) {
	r := open(t, store.NewMemory())
	mine := svc("a", 1)
	put(t, r, mine)
	mine.Localities[0].Endpoints[0].Address = "changed"
	topology, _ := r.State()
	if topology.Services[0].Localities[0].Locality.Region != "a" {
		t.Error("localities are not sorted")
	}
	o, err := r.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	o.Service.Localities[1].Endpoints[0].Address = "changed"
	if got := topology.Services[0].Localities[1].Endpoints[0].Address; got != "10.0.0.1:80" {
		t.Errorf("a caller changed the topology: %s", got)
	}
	if again, err := r.Get("a"); err != nil || again.Service.Localities[1].Endpoints[0].Address != "10.0.0.1:80" {
		t.Error("a caller changed the object")
	}
}

func TestChanged(t *testing.T) {
	r := open(t, store.NewMemory())
	<-r.Changed() // what was loaded is new
	put(t, r, svc("a", 1))
	put(t, r, svc("b", 1))
	<-r.Changed()
	select {
	case <-r.Changed():
		t.Error("a signal for each change")
	default:
	}
	put(t, r, svc("b", 1))
	select {
	case <-r.Changed():
		t.Error("a signal without change")
	default:
	}
}

func TestValidate(t *testing.T) {
	r, err := discovery.Open(t.Context(), discovery.Options{
		Store: store.NewMemory(), Logger: slog.New(slog.DiscardHandler),
		Validate: func(services []isobar.Service) error {
			if len(services) > 2 {
				return fmt.Errorf("%w: no more than 2", isobar.ErrInvalid)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	setFile(t, r, svc("f", 1))
	put(t, r, svc("a", 1))
	if _, _, err := r.Put("b", svc("b", 1), 0); !errors.Is(err, isobar.ErrInvalid) {
		t.Errorf("Put: %v", err)
	}
	if _, err := r.SetFile([]isobar.Service{svc("f", 1), svc("g", 1)}, nil); !errors.Is(err, isobar.ErrInvalid) {
		t.Errorf("SetFile: %v", err)
	}
	if got := names(r); got != "a=api f=file" {
		t.Errorf("have %s", got)
	}
}
