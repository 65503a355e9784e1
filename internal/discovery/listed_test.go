package discovery_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/store"
)

func putListed(t *testing.T, r *discovery.Registry, services ...isobar.Service) {
	t.Helper()
	if err := r.Provider(isobar.OwnerXDS).PutListed(services); err != nil {
		t.Fatal(err)
	}
}

func xdsLists(services ...isobar.Service) []discovery.Provided {
	return []discovery.Provided{{Owner: isobar.OwnerXDS, Listed: services}}
}

// TestListedServicesHaveAnOwner: they are in force, nobody else may write them,
// and the others come before them.
func TestListedServicesHaveAnOwner(t *testing.T) {
	r := open(t, store.NewMemory())
	setFile(t, r, svc("f", 1))
	put(t, r, svc("a", 1))
	putListed(t, r, svc("x", 1), svc("f", 2), svc("a", 2))
	if got, want := names(r), "a=api f=file x=xds"; got != want {
		t.Errorf("in force are %s, want %s", got, want)
	}
	if o, err := r.Get("f"); err != nil || o.Service.Localities[1].MaxRate != 1 {
		t.Errorf("f is %v, %v; want the file's", o, err)
	}
	for name, do := range map[string]func() error{
		"put":     func() error { _, _, err := r.Put("x", svc("x", 2), 0); return err },
		"delete":  func() error { _, err := r.Delete("x", 0); return err },
		"put all": func() error { _, err := r.PutAll([]isobar.Service{svc("x", 2)}); return err },
	} {
		if err := do(); !errors.Is(err, isobar.ErrOwned) {
			t.Errorf("%s: %v, want ErrOwned", name, err)
		}
	}
	if _, err := r.Delete("a", 0); err != nil {
		t.Fatal(err)
	}
	if got, want := names(r), "a=xds f=file x=xds"; got != want {
		t.Errorf("in force are %s, want %s: the listed one takes its place", got, want)
	}
	if err := r.Provider(isobar.OwnerXDS).PutListed([]isobar.Service{svc("", 1)}); !errors.Is(err, isobar.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
}

// TestPutListedChangesWhatIsGiven: other services keep their revision, and the
// same once more is no change.
func TestPutListedChangesWhatIsGiven(t *testing.T) {
	r := open(t, store.NewMemory())
	putListed(t, r, svc("x", 1), svc("y", 1))
	before, _ := r.State()
	y, err := r.Get("y")
	if err != nil {
		t.Fatal(err)
	}
	putListed(t, r, svc("x", 1))
	if now, _ := r.State(); now != before {
		t.Error("the same content makes a new topology")
	}
	putListed(t, r, svc("x", 2))
	now, _ := r.State()
	if now.Revision != before.Revision+1 {
		t.Errorf("revision %d after %d", now.Revision, before.Revision)
	}
	if again, err := r.Get("y"); err != nil || again.Revision != y.Revision {
		t.Errorf("y is at revision %d, %v; want %d", again.Revision, err, y.Revision)
	}
}

// TestServicesMoveBetweenFileAndControlPlane: in both directions no topology
// lacks the service, and what operators said of its endpoints stays.
func TestServicesMoveBetweenFileAndControlPlane(t *testing.T) {
	r := open(t, store.NewMemory())
	set := func(file, listed []isobar.Service) {
		t.Helper()
		if _, err := r.SetConfigured(file, xdsLists(listed...), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	set([]isobar.Service{svc("s", 1)}, nil)
	if _, err := setHealth(r, "s", "10.0.0.1:80", isobar.Draining); err != nil {
		t.Fatal(err)
	}
	set(nil, []isobar.Service{svc("s", 1)})
	if got := names(r); got != "s=xds" || len(r.Overrides()) != 1 {
		t.Errorf("in force are %s, with %d overrides", got, len(r.Overrides()))
	}
	set([]isobar.Service{svc("s", 1)}, nil)
	if got := names(r); got != "s=file" || len(r.Overrides()) != 1 {
		t.Errorf("in force are %s, with %d overrides", got, len(r.Overrides()))
	}
	conflicts, err := r.SetConfigured([]isobar.Service{svc("s", 1)}, xdsLists(svc("s", 2)), nil, nil)
	if err != nil || len(conflicts) != 1 {
		t.Errorf("a name in both: %q, %v; want one conflict", conflicts, err)
	}
}

// TestOverridesWaitForTheirService: a service that moves to the control plane
// while nobody knows its endpoints, as at a start, keeps what operators said of
// them, until it is listed without them or nobody waits for it any more.
func TestOverridesWaitForTheirService(t *testing.T) {
	kept := store.NewMemory()
	begin := func() *discovery.Registry {
		r := open(t, kept)
		if _, err := r.SetConfigured([]isobar.Service{svc("s", 1), svc("gone", 1)}, nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"s", "gone"} {
			if _, err := setHealth(r, name, "10.0.0.1:80", isobar.Draining); err != nil {
				t.Fatal(err)
			}
		}
		r = open(t, kept) // a restart
		if _, err := r.SetConfigured(nil, []discovery.Provided{{Owner: isobar.OwnerXDS, Awaited: []isobar.Service{{Name: "s"}}}}, nil, nil); err != nil {
			t.Fatal(err)
		}
		return r
	}
	expect := func(r *discovery.Registry, why string, want int) {
		t.Helper()
		if got := r.Overrides(); len(got) != want || want > 0 && got[0].Service != "s" {
			t.Errorf("%s: overrides %+v, want %d", why, got, want)
		}
	}
	r := begin()
	expect(r, "awaited", 1)
	putListed(t, r, svc("other", 1))
	expect(r, "another is listed", 1)
	putListed(t, r, svc("s", 1))
	expect(r, "listed", 1)
	if _, table := r.State(); len(table.Overrides()) != 1 {
		t.Error("the override is not in force")
	}
	without := svc("s", 1)
	without.Localities = nil
	putListed(t, r, without)
	expect(r, "listed without the endpoint", 0)

	r = begin()
	if _, err := r.SetConfigured(nil, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	expect(r, "no longer awaited", 0)
}

// TestRevisionsOfListedServicesNeverGoBack: they are not saved one by one, but
// after a restart revisions are above all that were seen before.
func TestRevisionsOfListedServicesNeverGoBack(t *testing.T) {
	kept := store.NewMemory()
	r := open(t, kept)
	for i := range 3000 {
		putListed(t, r, svc("s", float64(i+1)))
	}
	before, _ := r.State()
	after, _ := open(t, kept).State()
	if after.Revision <= before.Revision {
		t.Errorf("revision %d after %d", after.Revision, before.Revision)
	}
}

// TestEachProviderHasItsOwn: a name belongs to one provider, and what another one
// lists under it is refused; a service that moves between them in one change
// is never missing.
func TestEachProviderHasItsOwn(t *testing.T) {
	r := open(t, store.NewMemory())
	dns := r.Provider(isobar.OwnerDNS)
	putListed(t, r, svc("x", 1))
	if err := dns.PutListed([]isobar.Service{svc("d", 1)}); err != nil {
		t.Fatal(err)
	}
	if got, want := names(r), "d=dns x=xds"; got != want {
		t.Errorf("in force are %s, want %s", got, want)
	}
	if err := dns.PutListed([]isobar.Service{svc("x", 2)}); !errors.Is(err, isobar.ErrOwned) {
		t.Errorf("dns puts what xds has: %v, want ErrOwned", err)
	}
	if _, _, err := r.Put("d", svc("d", 2), 0); !errors.Is(err, isobar.ErrOwned) {
		t.Errorf("the API puts what dns has: %v, want ErrOwned", err)
	}
	before, err := dns.Get("x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SetConfigured(nil, []discovery.Provided{{Owner: isobar.OwnerDNS, Listed: []isobar.Service{svc("d", 1), svc("x", 1)}}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := names(r), "d=dns x=dns"; got != want {
		t.Errorf("in force are %s, want %s", got, want)
	}
	if after, err := dns.Get("x"); err != nil || after.Revision <= before.Revision {
		t.Errorf("x has another owner at revision %d, %v, and was at %d", after.Revision, err, before.Revision)
	}
	twice := []discovery.Provided{{Owner: isobar.OwnerXDS, Listed: []isobar.Service{svc("d", 1)}}, {Owner: isobar.OwnerDNS, Listed: []isobar.Service{svc("d", 1)}}}
	if _, err := r.SetConfigured(nil, twice, nil, nil); !errors.Is(err, isobar.ErrInvalid) {
		t.Errorf("two providers have one name: %v, want ErrInvalid", err)
	}
	awaited := []discovery.Provided{{Owner: isobar.OwnerDNS, Awaited: []isobar.Service{{Name: "w"}}}}
	if _, err := r.SetConfigured(nil, awaited, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Provider(isobar.OwnerKubernetes).PutListed([]isobar.Service{svc("w", 1)}); !errors.Is(err, isobar.ErrOwned) {
		t.Errorf("kubernetes puts what dns has no endpoints of yet: %v, want ErrOwned", err)
	}
	if err := dns.PutListed([]isobar.Service{svc("w", 1)}); err != nil {
		t.Error(err)
	}
}

// TestSettings: what settle puts in force is in force before anybody sees the services of
// the same configuration, also if these are the same, and not if they are refused.
func TestSettings(t *testing.T) {
	kept := store.NewMemory()
	r := open(t, kept)
	signalled := func() bool {
		select {
		case <-r.Changed():
			return true
		default:
			return false
		}
	}
	settled := 0
	set := func(services ...isobar.Service) error {
		before, _ := r.State()
		_, err := r.SetConfigured(services, nil, nil, func() {
			settled++
			if now, _ := r.State(); now != before {
				t.Error("the services were in force before the settings")
			}
			if signalled() {
				t.Error("the change was signalled before the settings were in force")
			}
		})
		return err
	}
	signalled() // of what was there
	if err := set(svc("s", 1)); err != nil || settled != 1 {
		t.Errorf("%v, settled %d times, want once", err, settled)
	}
	if !signalled() {
		t.Error("the change was not signalled after the settings")
	}
	if err := set(svc("s", 1)); err != nil || settled != 2 {
		t.Errorf("the same services: %v, settled %d times, want twice", err, settled)
	}
	many := make([]isobar.Service, isobar.MaxServices+1)
	for i := range many {
		many[i] = svc(fmt.Sprint("s", i), 1)
	}
	if err := set(many...); !errors.Is(err, isobar.ErrInvalid) || settled != 2 {
		t.Errorf("too many services: %v, settled %d times, want twice", err, settled)
	}
}
