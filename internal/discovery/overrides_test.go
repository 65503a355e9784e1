package discovery_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/store"
)

func TestHealth(t *testing.T) {
	memory := store.NewMemory()
	r := open(t, memory)
	setFile(t, r, svc("f", 1))
	before, _ := r.State()
	revision, err := setHealth(r, "f", "[0:0::1]:80", isobar.Draining) // another spelling of [::1]:80
	if err != nil || revision <= before.Revision {
		t.Fatal(revision, err)
	}
	status := func(r *discovery.Registry, address string) isobar.HealthStatus {
		_, table := r.State()
		return table.Status("f", &isobar.Endpoint{Address: address})
	}
	if got := status(r, "[::1]:80"); got != isobar.Draining {
		t.Errorf("got %v", got)
	}
	if again, err := setHealth(r, "f", "[::1]:80", isobar.Draining); err != nil || again != revision {
		t.Errorf("the same again: %d, %v, want %d", again, err, revision)
	}
	restarted := open(t, memory)
	if got := status(restarted, "[::1]:80"); got != isobar.Draining {
		t.Errorf("after a restart, before the file: %v", got)
	}
	setFile(t, restarted, svc("f", 1))
	if got := status(restarted, "[::1]:80"); got != isobar.Draining {
		t.Errorf("after a restart and the file: %v", got)
	}
	if _, err := setHealth(restarted, "f", "[::1]:80", isobar.Unknown); err != nil {
		t.Fatal(err)
	}
	if _, err := setHealth(restarted, "f", "10.0.0.1:80", isobar.Unhealthy); err != nil {
		t.Fatal(err)
	}
	if _, table := restarted.State(); len(table.Overrides()) != 1 {
		t.Errorf("overrides %v, want the one that was not taken back", table.Overrides())
	}
	setFile(t, restarted)
	setFile(t, restarted, svc("f", 1))
	if _, table := restarted.State(); len(table.Overrides()) != 0 {
		t.Errorf("overrides %v outlive their endpoints", table.Overrides())
	}
}

// TestOverrides: what operators set can be read back, with its place and since
// when, also after a restart.
func TestOverrides(t *testing.T) {
	memory := store.NewMemory()
	r := open(t, memory)
	setFile(t, r, svc("g", 1), svc("f", 1))
	began := time.Now().Add(-time.Second)
	for _, set := range []struct{ service, address string }{{"g", "10.0.0.1:80"}, {"f", "[::1]:80"}} {
		if _, err := setHealth(r, set.service, set.address, isobar.Draining); err != nil {
			t.Fatal(err)
		}
	}
	first := r.Overrides()
	if len(first) != 2 || first[0].Service != "f" || first[0].Address != "[::1]:80" || first[0].Locality != isobar.MustLocality("a/a") ||
		first[1].Locality != isobar.MustLocality("b/b") || first[1].Status != isobar.Draining || first[1].Since.Before(began) {
		t.Errorf("overrides %+v", first)
	}
	if _, err := setHealth(r, "f", "[::1]:80", isobar.Draining); err != nil {
		t.Fatal(err)
	}
	restarted := open(t, memory)
	if early := restarted.Overrides(); len(early) != 2 || !early[0].Locality.IsZero() {
		t.Errorf("before the file is read: %+v", early)
	}
	setFile(t, restarted, svc("g", 1), svc("f", 1))
	if again := restarted.Overrides(); !reflect.DeepEqual(again, first) {
		t.Errorf("after a restart: %+v, want %+v", again, first)
	}
	if _, err := setHealth(restarted, "f", "[::1]:80", isobar.Unknown); err != nil {
		t.Fatal(err)
	}
	setFile(t, restarted, svc("f", 1))
	if left := restarted.Overrides(); len(left) != 0 {
		t.Errorf("taken back and gone: %+v", left)
	}
}
