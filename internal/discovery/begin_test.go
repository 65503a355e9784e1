package discovery_test

import (
	"context"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/store"
)

// recovering is a store that reads the version before, once, as one does whose disk
// gives an error that passes.
type recovering struct {
	*store.Memory

	before *store.Value
}

func (r *recovering) Get(ctx context.Context, key string) (store.Value, error) {
	if v := r.before; v != nil {
		r.before = nil
		return *v, nil
	}
	return r.Memory.Get(ctx, key)
}

// TestNewestVersionReadLate: what was acknowledged last is not written over by a
// process that could not read it at first.
func TestNewestVersionReadLate(t *testing.T) {
	kept := store.NewMemory()
	r := open(t, kept)
	put := func(r *discovery.Registry, name string) {
		t.Helper()
		if _, _, err := r.Put(name, svc(name, 1), 0); err != nil {
			t.Fatal(err)
		}
	}
	put(r, "a")
	before, err := kept.Get(t.Context(), "sources")
	if err != nil {
		t.Fatal(err)
	}
	put(r, "b")
	late := open(t, &recovering{Memory: kept, before: &before})
	put(late, "c")
	for _, name := range []string{"a", "b", "c"} {
		if o, err := open(t, kept).Get(name); err != nil || o.Owner != isobar.OwnerAPI {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}
