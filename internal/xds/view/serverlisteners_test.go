package view_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// The listener of a gRPC server is encoded once, whatever is published, and is
// there for those alone that ask by its name, in v3. However many names clients
// make up, each gets its listener.
func TestListenersOfGRPCServers(t *testing.T) {
	const name = "grpc/server/mtls?xds.resource.listening_address=0.0.0.0:50051"
	registry := prometheus.NewRegistry()
	b := view.NewBuilder(view.Options{Registerer: registry})
	first := b.Build(planOf("1", assignment("a", 1)), nil)
	v := first.View(east, nil, all)
	l := v.Lookup(resource.Listener, name)
	if l == nil || !first.Serves(resource.Listener, name) {
		t.Fatal("no listener")
	}
	second := b.Build(planOf("2"), first).View(west, nil, all)
	if second.Lookup(resource.Listener, name) != l || encodings(t, registry, "lds") != 1 {
		t.Error("encoded again")
	}
	if first.Serves(resource.Cluster, name) || first.Has(name) || v.Lookup(resource.Cluster, name) != nil || v.Lookup(resource.Route, name) != nil {
		t.Error("the name stands for a service, too")
	}
	if v.LookupAs(rpc.As{API: rpc.V2}, resource.Listener, name) != nil {
		t.Error("a listener in v2")
	}
	for port := range 5000 {
		name := fmt.Sprintf("grpc/server?xds.resource.listening_address=127.0.0.1:%d", port+1)
		if r := v.Lookup(resource.Listener, name); r == nil || r.Name != name {
			t.Fatalf("%s: %v", name, r)
		}
	}
}
