package discovery_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/store"
)

// FuzzSaved opens a registry on saved services and marks that may be damaged in
// any way: they are refused, or can be planned with, and what is saved then is
// read again as it was.
func FuzzSaved(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"format":1,"revision":3,"objects":[{"service":{"name":"web","localities":[{"locality":"us/a","endpoints":[{"address":"10.0.0.1:80"}],"max_rate":-1}]},"revision":2}],"health":[{"service":"web","address":"10.0.0.1:80","status":"draining","since":"9999-12-31T00:00:00Z"}]}`))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		if _, err := kept.CompareAndSwap(t.Context(), "sources", 0, data); err != nil {
			t.Fatal(err)
		}
		o := discovery.Options{Store: kept, Logger: slog.New(slog.DiscardHandler)}
		r, err := discovery.Open(t.Context(), o)
		if err != nil {
			return
		}
		top, table := r.State()
		_, _ = plan.Next(plan.Input{Now: time.Unix(0, 0), Trigger: assign.Reapply, Topology: top, Health: table, Version: 1}) // an error keeps the plan before
		names := len(r.List())
		r.Overrides()
		again, err := discovery.Open(t.Context(), o)
		if err != nil || len(again.List()) != names {
			t.Errorf("read again: %v", err)
		}
	})
}
