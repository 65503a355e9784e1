package source_test

import (
	"errors"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/source"
	"github.com/isobar-xds/isobar/internal/store"
)

func putListed(t *testing.T, r *source.Registry, services ...isobar.Service) {
	t.Helper()
	if err := r.PutListed(services); err != nil {
		t.Fatal(err)
	}
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
	if err := r.PutListed([]isobar.Service{svc("", 1)}); !errors.Is(err, isobar.ErrInvalid) {
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
		if _, err := r.SetConfigured(file, listed, nil); err != nil {
			t.Fatal(err)
		}
	}
	set([]isobar.Service{svc("s", 1)}, nil)
	if _, err := r.SetHealth("s", "10.0.0.1:80", isobar.Draining); err != nil {
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
	conflicts, err := r.SetConfigured([]isobar.Service{svc("s", 1)}, []isobar.Service{svc("s", 2)}, nil)
	if err != nil || len(conflicts) != 1 {
		t.Errorf("a name in both: %q, %v; want one conflict", conflicts, err)
	}
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
