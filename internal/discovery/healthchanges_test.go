package discovery_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/store"
)

// TestHealthChanges asserts that the registry describes what an operator ordered, and that the
// order has who gave it and why.
func TestHealthChanges(t *testing.T) {
	r := open(t, store.NewMemory())
	setFile(t, r, svc("f", 1))
	one, all := []string{"[0:0::1]:80"}, []string{"[::1]:80", "10.0.0.1:80"}
	for _, x := range []struct {
		addresses []string
		status    isobar.HealthStatus
		want      string
	}{
		{one, isobar.Draining, "drain of endpoint [::1]:80 in a/a"},
		{one, isobar.Unknown, "end of the drain of endpoint [::1]:80 in a/a"},
		{one, isobar.Unhealthy, "endpoint [::1]:80 in a/a set unhealthy"},
		{one, isobar.Unknown, "end of the health that operators set for endpoint [::1]:80 in a/a"},
		{all, isobar.Draining, "drain of 2 endpoints"},
		{all, isobar.Healthy, "2 endpoints set healthy"},
		{all, isobar.Draining, "drain of 2 endpoints"},
		{all, isobar.Unknown, "end of the drain of 2 endpoints"},
	} {
		before, _ := r.State()
		o := isobar.HealthChange{Service: "f", Addresses: x.addresses, Status: x.status, Who: "ann", Reason: "kernel update"}
		revision, err := r.SetHealths(&o)
		if err != nil {
			t.Fatal(err)
		}
		want := []discovery.HealthChange{{HealthChange: o, Revision: revision, What: x.want}}
		if got := r.HealthChanges(before.Revision, revision); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// TestOriginsOfOverrides asserts that an override keeps who set it and why: over a restart,
// while others set the same again, and on a replica that follows.
func TestOriginsOfOverrides(t *testing.T) {
	memory, engine := store.NewMemory(), &elections{}
	single, leader, follower := open(t, memory), openReplica(t, engine), openReplica(t, &elections{})
	write := []*discovery.Registry{single, leader}
	for _, r := range write {
		setFile(t, r, svc("f", 1))
	}
	order := func(who, reason string, h isobar.HealthStatus, addresses ...string) {
		t.Helper()
		for _, r := range write {
			if _, err := r.SetHealths(&isobar.HealthChange{Service: "f", Addresses: addresses, Status: h, Who: who, Reason: reason}); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries := map[string][]byte{}
	follow := func() {
		t.Helper()
		for _, c := range engine.written {
			if entries[c.Key] = c.Data; c.Data == nil {
				delete(entries, c.Key)
			}
		}
		o, err := discovery.DecodeShared(entries)
		if err != nil {
			t.Fatal(err)
		}
		if err := follower.Follow(o, &discovery.Configured{Services: []isobar.Service{svc("f", 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string, r *discovery.Registry, want ...[3]string) {
		t.Helper()
		var got [][3]string
		for _, o := range r.Overrides() {
			got = append(got, [3]string{o.Address, o.Who, o.Reason})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	order("ann", "kernel update", isobar.Draining, "[::1]:80")
	order("bob", "move", isobar.Draining, "[::1]:80", "10.0.0.1:80")
	restarted := open(t, memory)
	setFile(t, restarted, svc("f", 1))
	write = write[1:] // the single server has ended
	follow()
	for name, r := range map[string]*discovery.Registry{"as set": single, "restarted": restarted, "leader": leader, "follower": follower} {
		check(name, r, [3]string{"10.0.0.1:80", "bob", "move"}, [3]string{"[::1]:80", "ann", "kernel update"})
	}
	order("eve", "it is done", isobar.Unknown, "[::1]:80")
	order("eve", "again", isobar.Draining, "[::1]:80")
	follow() // it missed that the drain ended between
	check("a follower that missed a change", follower, [3]string{"10.0.0.1:80", "bob", "move"}, [3]string{"[::1]:80", "eve", "again"})
}

// TestOverridesOfEarlierVersions asserts that the registry reads overrides that an earlier
// version saved without who set them.
func TestOverridesOfEarlierVersions(t *testing.T) {
	memory := store.NewMemory()
	const saved = `{"format": 1, "revision": 7, "objects": [], "health": [{"service": "f", "address": "[::1]:80", "status": "draining"}]}`
	if _, err := memory.CompareAndSwapNotify(t.Context(), "sources", 0, []byte(saved), func() {}); err != nil {
		t.Fatal(err)
	}
	r := open(t, memory)
	setFile(t, r, svc("f", 1))
	want := []isobar.HealthOverride{{Service: "f", Address: "[::1]:80", Locality: isobar.MustLocality("a/a"), Status: isobar.Draining}}
	if got := r.Overrides(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
