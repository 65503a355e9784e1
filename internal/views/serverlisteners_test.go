package views_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/views"
	"github.com/isobar-xds/isobar/internal/wire"
)

// The listener of a gRPC server is encoded once, whatever is published, and is
// there for those alone that ask by its name, in v3. However many names clients
// make up, each gets its listener.
func TestListenersOfGRPCServers(t *testing.T) {
	const name = "grpc/server/mtls?xds.resource.listening_address=0.0.0.0:50051"
	registry := prometheus.NewRegistry()
	b := views.NewBuilder(views.Options{Registerer: registry})
	first := b.Build(planOf("1", assignment("a", 1)), nil)
	v := first.View(east, nil, all)
	l := v.Lookup(wire.Listener, name)
	if l == nil || !first.Serves(wire.Listener, name) {
		t.Fatal("no listener")
	}
	second := b.Build(planOf("2"), first).View(west, nil, all)
	if second.Lookup(wire.Listener, name) != l || encodings(t, registry, "lds") != 1 {
		t.Error("encoded again")
	}
	if first.Serves(wire.Cluster, name) || first.Has(name) || v.Lookup(wire.Cluster, name) != nil || v.Lookup(wire.Route, name) != nil {
		t.Error("the name stands for a service, too")
	}
	if v.LookupAs(wire.As{Form: wire.V2}, wire.Listener, name) != nil {
		t.Error("a listener in v2")
	}
	for port := range 5000 {
		name := fmt.Sprintf("grpc/server?xds.resource.listening_address=127.0.0.1:%d", port+1)
		if r := v.Lookup(wire.Listener, name); r == nil || r.Name != name {
			t.Fatalf("%s: %v", name, r)
		}
	}
}
