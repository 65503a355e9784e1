package xdsclient_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/discovery/xdsclient"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/store"
)

// FuzzSaved opens a client on what another control plane is said to have listed
// last, which may be damaged in any way: it is refused, or handed over as
// something that the registry can take or refuse as a whole.
func FuzzSaved(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"format":1,"services":[{"name":"web","eds_name":"web","at":"2030-01-01T00:00:00Z","localities":[{"locality":"us/a","endpoints":[{"address":"10.0.0.1:80"}]}]},{"name":"web","eds_name":"web"}]}`))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		if _, err := kept.CompareAndSwap(t.Context(), "xds-source", 0, data); err != nil {
			t.Fatal(err)
		}
		registry, err := discovery.Open(t.Context(), discovery.Options{Store: kept})
		if err != nil {
			t.Fatal(err)
		}
		c, err := xdsclient.Open(t.Context(), xdsclient.Options{Registry: registry.Provider(isobar.OwnerXDS), Store: kept})
		if err != nil {
			return
		}
		_ = c.Configure(configuration("web"), func(listed, _ []isobar.Service) error { return registry.Provider(isobar.OwnerXDS).PutListed(listed) })
		top, table := registry.State()
		_, _ = plan.Next(plan.Input{Now: time.Unix(0, 0), Trigger: assign.Reapply, Topology: top, Health: table, Version: 1}) // an error keeps the plan before
		c.Status()
	})
}
